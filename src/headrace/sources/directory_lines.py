"""Cutting one file into lines, a chunk at a time, however it grows and however long a line is. Blocking: call it in a thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, Self

CHUNK: Final = 256 * 1024
LONGEST_LINE: Final = 1024 * 1024
KEPT_OF_A_LONG_LINE: Final = 16 * 1024
BOM: Final = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line that is not blank: its bytes without the line end, where it starts, where the next one starts."""

    data: bytes
    start: int
    end: int
    too_long: bool = False


class Chunk(NamedTuple):
    """The lines that one read completed, the offset after the last whole line (blank or not), and whether the file ended there."""

    lines: list[Line]
    read: int
    at_end: bool


class LineReader:
    """Reads the lines of `path` from the byte `offset` on, which is the start of a line. A context manager.

    It may be left while a thread is still reading (the task that waited for it was cancelled): that thread then closes the file.
    """

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._start = offset
        self._rest = b""
        self._dropped = 0
        self._file: BinaryIO | None = None
        self._lock = Lock()
        self._busy = self._left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        with self._lock:
            self._left = True
            self._close_if_free()

    def inode(self) -> int:
        """Open the file and return its inode; raises OSError."""
        with self._opened() as file:
            return os.fstat(file.fileno()).st_ino

    def read(self, *, final: bool = False) -> Chunk:
        """Read on; `final` makes a line of what comes after the last line end, once the file has ended. Raises OSError."""
        with self._opened() as file:
            data = file.read(CHUNK)
        at_end = len(data) < CHUNK
        lines = self._cut(data)
        if at_end and final and self._rest:
            self._take(self._rest, 0, lines)
            self._rest = b""
        return Chunk(lines, self._start, at_end)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self._lock:
            self._busy = True
        try:
            if self._file is None:
                self._file = self._path.open("rb", buffering=0)
                self._file.seek(self._start)
            yield self._file
        finally:
            with self._lock:
                self._busy = False
                self._close_if_free()

    def _close_if_free(self) -> None:
        if self._left and not self._busy and self._file is not None:
            self._file.close()

    def _cut(self, data: bytes) -> list[Line]:
        lines: list[Line] = []
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop()
        for part in parts:
            self._take(part, 1, lines)
        if len(self._rest) > LONGEST_LINE or (self._dropped and len(self._rest) > KEPT_OF_A_LONG_LINE):
            self._dropped += len(self._rest) - KEPT_OF_A_LONG_LINE
            self._rest = self._rest[:KEPT_OF_A_LONG_LINE]
        return lines

    def _take(self, part: bytes, line_end: int, lines: list[Line]) -> None:
        """Make a line of `part`, and move on behind it and its line end."""
        start, length = self._start, self._dropped + len(part)
        self._start = start + length + line_end
        self._dropped = 0
        if start == 0:
            part = part.removeprefix(BOM)
        part = part.removesuffix(b"\r")
        if length > LONGEST_LINE:
            lines.append(Line(part[:KEPT_OF_A_LONG_LINE], start, self._start, too_long=True))
        elif part and not part.isspace():
            lines.append(Line(part, start, self._start))
