"""The modules that class paths from the API may name. Other modules are not imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from headrace.errors import ProjectError

OURS = "headrace"


class ImportAllowlist:
    """The modules that triggers and upstreams may come from, in one process. Before `allow_only` is called, all modules are allowed."""

    def __init__(self) -> None:
        self._allowed: frozenset[str] | None = None
        self._folder = Path()

    def allow_only(self, allowed: Iterable[str], folder: Path) -> None:
        """Allow the modules of Headrace, the `allowed` ones and modules below them, and the modules in the project's folder."""
        self._allowed = frozenset((OURS, *allowed))
        self._folder = folder.resolve()

    def any(self) -> None:
        """Allow every module again."""
        self._allowed = None

    def check(self, classpath: str, what: str) -> None:
        """Check that a class path names an allowed module, without an import.

        Raises:
            ProjectError: The module is not allowed. `what` is the subject of the message.
        """
        if self._allowed is None:
            return
        module = classpath.rpartition(".")[0]
        parts = module.split(".")
        above = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
        if above & self._allowed or self._in_folder(parts[0]):
            return
        raise ProjectError(
            f"{what} cannot be loaded: {classpath!r} is in a module that is not allowed.",
            hint="Allowed are modules of the project, of headrace and of installed upstreams. Name others in HEADRACE_ALLOWED_MODULES.",
        )

    def _in_folder(self, name: str) -> bool:
        """Return whether the loaded module of this name, or else the one that an import would find, lies in the project's folder."""
        loaded = sys.modules.get(name)
        if loaded is not None:
            file = getattr(loaded, "__file__", None)
            return file is not None and Path(file).resolve().is_relative_to(self._folder)
        return name.isidentifier() and PathFinder.find_spec(name, [str(self._folder)]) is not None


IMPORT_ALLOWLIST = ImportAllowlist()
"""The allowlist of this process, set when the project is loaded."""
