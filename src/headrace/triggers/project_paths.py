"""Where relative paths in a project start: in the project file's folder, wherever the process was started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Final

_resolved: Final[ContextVar[dict[str, Path] | None]] = ContextVar("headrace_resolved_paths", default=None)


MAX_PARSED_PATHS: Final = 4_096
"""Paths that are remembered as parsed: `pathlib` takes 10 µs for one, and many watches name the same few."""

_parsed = lru_cache(maxsize=MAX_PARSED_PATHS)(Path)


def parse_path(path: str | Path) -> Path:
    """Return a path as a user writes it, where `~` is the home folder."""
    return (path if isinstance(path, Path) else _parsed(path)).expanduser()


class ProjectFolder:
    """The folder of the project that this process has loaded, if it has loaded one."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def set(self, folder: Path | None) -> None:
        """Resolve relative paths against `folder`, or against the working directory."""
        self._folder = folder

    def resolve(self, path: Path) -> Path:
        """Return `path`, absolute and without links, as all of the project's processes see it; unchanged where no project is loaded."""
        return path if self._folder is None else resolve_path(self._folder, path)

    def absolute(self, path: Path) -> Path:
        """Return `path`, absolute, with its links."""
        return path.absolute() if self._folder is None else self._folder / path


@contextmanager
def resolve_each_path_once() -> Iterator[None]:
    """Have `resolve_path` look at the file system once for each path, in this context.

    100,000 watches name a handful of folders, and to resolve one path costs 50 µs. A context is one pass over the watches: the next pass
    sees links that changed.
    """
    token = _resolved.set({})
    try:
        yield
    finally:
        _resolved.reset(token)


def resolve_path(folder: Path, path: Path) -> Path:
    """Return `path`, which starts in `folder` where it is relative, absolute and without links."""
    known = _resolved.get()
    if known is None:
        return (folder / path).resolve()
    key = f"{folder}\0{path}"  # texts: to hash a `Path` costs as much as all the rest
    found = known.get(key)
    if found is None:
        found = known[key] = (folder / path).resolve()
    return found


PROJECT_FOLDER = ProjectFolder()
"""That of this process; set when a project is loaded."""
