"""A folder that other programs put files into, as an upstream: each file a lane, each line a message."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from headrace.errors import UpstreamError
from headrace.sources.directory.producer import DirectoryProducer
from headrace.triggers.project_paths import PROJECT_FOLDER, parse_path, resolve_path
from headrace.triggers.upstream import FOLDER_STREAM, Upstream


class Directory(Upstream):
    """The files of one folder whose names match `pattern`, read line by line. Each line is one JSON message.

    Add complete files by rename. Names that begin with a dot or end in `.part` are ignored, and so are subfolders. A finished file is moved
    to a folder of the day in `done`, and deleted after `keep_done` days (None: never). Raises `UpstreamError`.
    """

    def __init__(self, path: str | Path, pattern: str = "*.jsonl", *, keep_done: int | None = None) -> None:
        if not pattern or "/" in pattern:
            raise UpstreamError(
                f"The pattern {pattern!r} of a Directory cannot match a file name.",
                hint="Give a glob pattern for names in that one folder, such as '*.jsonl'.",
            )
        self._path = parse_path(path)
        self._pattern = pattern
        if keep_done is not None and keep_done < 1:
            raise UpstreamError(
                f"Finished files cannot be kept for {keep_done} days.", hint="Give keep_done= a number of days from 1 on, or leave it out."
            )
        self._keep_done = keep_done

    @property
    def folder(self) -> Path:
        """The folder. A relative path starts in the project's folder."""
        return PROJECT_FOLDER.resolve(self._path)

    @property
    def pattern(self) -> str:
        """The glob pattern of the names of its files."""
        return self._pattern

    def stream_key(self) -> str:
        """Return `directory:` with the folder and the pattern. A relative path starts in the project's folder."""
        return f"{FOLDER_STREAM}{str(self.folder).rstrip('/')}/{self._pattern}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the folder and the pattern as text."""
        return f"{type(self).__module__}.{type(self).__qualname__}", self._kwargs(self._path)

    def producer(self) -> DirectoryProducer:
        """Return a new producer. It opens the folder in `open_stream`."""
        producer = DirectoryProducer(self.folder, self._pattern, self._keep_done)
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The default type of an event from a line."""
        return "headrace.directory.line"

    def relative_to(self, base: Path) -> Self:
        """Return the same folder with an absolute path, resolved against `base`."""
        return type(self)(**self._kwargs(resolve_path(base, self._path)))

    def _kwargs(self, path: Path) -> dict[str, Any]:
        retention = {} if self._keep_done is None else {"keep_done": self._keep_done}
        return {"path": str(path), "pattern": self._pattern, **retention}
