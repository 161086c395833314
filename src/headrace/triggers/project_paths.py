"""The base of relative paths in a project: the project file's folder, whatever the working directory is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Final

_resolved: Final[ContextVar[dict[str, Path] | None]] = ContextVar("headrace_resolved_paths", default=None)


MAX_PARSED_PATHS: Final = 4_096
"""Maximum number of cached parsed paths: `pathlib` takes 10 µs for one, and many watches name the same paths."""

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
        """Return `path`, absolute and without links, the same in all of the project's processes; unchanged if no
        project is loaded.
        """
        return path if self._folder is None else resolve_path(self._folder, path)

    def absolute(self, path: Path) -> Path:
        """Return `path`, absolute, with its links."""
        return path.absolute() if self._folder is None else self._folder / path


@contextmanager
def resolve_each_path_once() -> Iterator[None]:
    """Cache the result of `resolve_path` for each path in this context.

    100,000 watches may name the same few folders, and to resolve one path costs 50 µs. A context is one pass over
    the watches: the next pass sees changed links.
    """
    token = _resolved.set({})
    try:
        yield
    finally:
        _resolved.reset(token)


def resolve_path(folder: Path, path: Path) -> Path:
    """Return `path`, absolute and without links. A relative one starts in `folder`."""
    known = _resolved.get()
    if known is None:
        return (folder / path).resolve()
    key = f"{folder}\0{path}"  # texts: hashing a `Path` costs as much as all other work
    resolved = known.get(key)
    if resolved is None:
        resolved = known[key] = (folder / path).resolve()
    return resolved


PROJECT_FOLDER = ProjectFolder()
"""The folder of this process; set when a project is loaded."""
