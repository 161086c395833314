"""Load the project in a process that runs users' code."""

from __future__ import annotations

from headrace.project import Project, load_project
from headrace.settings import Settings
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST
from headrace.triggers.installed_upstreams import installed_modules


def read_project(settings: Settings) -> Project:
    """Import the project file. From then on, triggers and upstreams come only from allowed modules.

    These are Headrace's, the project's, those of installed upstreams and those of HEADRACE_ALLOWED_MODULES. Raises `ProjectError`.
    """
    project = load_project(settings.project)
    allowed = {*settings.modules, *project.modules(), *installed_modules()}
    IMPORT_ALLOWLIST.allow_only(allowed, settings.project.resolve().parent)
    return project
