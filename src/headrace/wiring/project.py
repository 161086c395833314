"""Load the project in a process that runs users' code."""

from __future__ import annotations

from headrace.project import Project, load_project
from headrace.settings import Settings
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST


def read_project(settings: Settings) -> Project:
    """Import the project file; from then on, triggers come from its modules and headrace's only. Raises `ProjectError`."""
    project = load_project(settings.project)
    IMPORT_ALLOWLIST.allow_only({*settings.modules, *project.modules()}, settings.project.resolve().parent)
    return project
