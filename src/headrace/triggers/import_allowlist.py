"""Which modules a class path that comes over the wire may name: what is not among them is not even imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from headrace.errors import ProjectError

OURS = "headrace"


class ImportAllowlist:
    """The modules that triggers and upstreams may come from, in one process. Until `only` is called, any may: a test is its own project."""

    def __init__(self) -> None:
        self._allowed: frozenset[str] | None = None
        self._folder = Path()

    def allow_only(self, allowed: Iterable[str], folder: Path) -> None:
        """Allow Headrace's own, those named (with what is below them), and those that lie in the project's folder."""
        self._allowed = frozenset((OURS, *allowed))
        self._folder = folder.resolve()

    def any(self) -> None:
        """Allow every module again."""
        self._allowed = None

    def check(self, classpath: str, what: str) -> None:
        """Refuse a class path of another module; nothing is imported to find out.

        Raises:
            ProjectError: The module is not allowed; `what` names who wants it.
        """
        if self._allowed is None:
            return
        module = classpath.rpartition(".")[0]
        parts = module.split(".")
        above = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
        if above & self._allowed or self._in_folder(parts[0]):
            return
        raise ProjectError(
            f"{what} cannot be loaded: {classpath!r} is not of a module that triggers may come from.",
            hint="Those are the project's own and headrace's; name others in HEADRACE_ALLOWED_MODULES.",
        )

    def _in_folder(self, name: str) -> bool:
        """Whether a module of this name is the project's own: the one that is loaded, or else the one that would be."""
        loaded = sys.modules.get(name)
        if loaded is not None:
            file = getattr(loaded, "__file__", None)
            return file is not None and Path(file).resolve().is_relative_to(self._folder)
        return name.isidentifier() and PathFinder.find_spec(name, [str(self._folder)]) is not None


IMPORT_ALLOWLIST = ImportAllowlist()
"""Those of this process; set when the project is read."""
