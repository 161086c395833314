"""A folder that others put files into, as an upstream: each file a lane, each line a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from headrace.errors import UpstreamError
from headrace.sources.directory_producer import DirectoryProducer
from headrace.triggers.upstream import Upstream


class Directory(Upstream):
    """The files of one folder whose names match `pattern`, read line by line; every line is one JSON message.

    Writers put complete files in by rename; names that begin with a dot or end in `.part` are left alone. A file that is done is
    moved to the `done` folder in it. Files in the folder's own subfolders are not read.
    """

    def __init__(self, path: str | Path, pattern: str = "*.jsonl") -> None:
        if not pattern or "/" in pattern:
            raise UpstreamError(
                f"The pattern {pattern!r} of a Directory cannot match a file name.",
                hint="Give a glob pattern for names in that one folder, such as '*.jsonl'.",
            )
        self._path = Path(path).expanduser()
        self._pattern = pattern

    def stream_key(self) -> str:
        """Return `directory:` and the folder and pattern."""
        return f"directory:{self._path / self._pattern}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the folder and pattern as text."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"path": str(self._path), "pattern": self._pattern}

    def producer(self) -> DirectoryProducer:
        """Return a new producer; the folder is looked at when its stream is opened."""
        return DirectoryProducer(self._path, self._pattern)

    @property
    def event_type(self) -> str:
        """The type of an event made of a line whose watch does not say otherwise."""
        return "headrace.directory.line"

    def relative_to(self, base: Path) -> Self:
        """Return the same folder as seen from `base`: absolute."""
        return type(self)((base / self._path).resolve(), self._pattern)
