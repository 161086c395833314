"""Cutting one open file into lines, a chunk at a time, however it grows and however long a line is. Blocking: call it in a thread.

A file is known by more than its name: what was read of it before is compared with what is there now, so that a file that was emptied
and written again is not read on in its middle.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from headrace.sources.directory.journal import Sum
from headrace.sources.file_status import Status, is_written, status_of

CHUNK: Final = 256 * 1024
LONGEST_LINE: Final = 1024 * 1024
KEPT_OF_A_LONG_LINE: Final = 16 * 1024
HEAD_BYTES: Final = 1024
CHECK_BYTES: Final = 256
CHECK_EVERY_BYTES: Final = 16 * 1024
BOM: Final = b"\xef\xbb\xbf"


class Rewritten(Exception):
    """What was read of the file before is no longer what it has there."""


class NotRegular(Exception):
    """There is something of that name that is not a file with contents, such as a pipe or a device."""


class Line(NamedTuple):
    """One line that is not blank: its bytes without the line end, where it starts, where the next one starts."""

    data: bytes
    start: int
    end: int
    too_long: bool = False


class Mark(NamedTuple):
    """Up to which byte a file was read or done, and the sums that its first bytes, and those before an offset up to `at`, must have."""

    at: int = 0
    head: Sum | None = None
    check: Sum | None = None


class Chunk(NamedTuple):
    """The lines that one read completed, the offset after the last whole line (blank or not), and whether the file ended there.

    `status` is the file's from before the read; `checks` are sums at rising offsets up to the end of what was read.
    """

    lines: list[Line]
    read: int
    at_end: bool
    status: Status
    checks: list[Sum]


class LineReader:
    """Reads the lines of the file at `path`, from its beginning or from where `resume` says. All calls from one thread.

    Raises OSError, and `NotRegular`.
    """

    def __init__(self, path: str | Path) -> None:
        # Opening a pipe would otherwise wait for its writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        self._at = self._start = self._dropped = 0
        self._before = self._rest = b""
        self._head: Sum | None = None
        try:
            self.status = status_of(self._descriptor)
            if not self.status.regular:
                raise NotRegular
        except (OSError, NotRegular):
            self.close()
            raise

    @property
    def key(self) -> tuple[int, int]:
        """The identity of the file that is open."""
        return self.status.key

    @property
    def head(self) -> Sum | None:
        """The sum of the first bytes, once there are some."""
        return self._head

    def resume(self, mark: Mark) -> None:
        """Read from `mark` on, the start of a line. Raises `Rewritten` unless the file still has what it had there, and OSError."""
        if status_of(self._descriptor).size < mark.at:
            raise Rewritten
        for known, length in ((mark.head, HEAD_BYTES), (mark.check, CHECK_BYTES)):
            if known is not None and crc32(self._bytes(max(known.end - length, 0), known.end)) != known.crc:
                raise Rewritten
        self._at = self._start = mark.at
        self._head = mark.head
        self._before = self._bytes(max(mark.at - CHECK_BYTES, 0), mark.at)

    def read(self, *, final: bool = False) -> Chunk:
        """Read on; `final` makes a line of what comes after the last line end, if the file has ended and no process writes to it.

        Raises OSError, and `Rewritten`.
        """
        status = self.status = status_of(self._descriptor)
        if status.size < self._at:
            raise Rewritten
        begin = self._at - len(self._before)
        data = os.pread(self._descriptor, len(self._before) + CHUNK, begin)
        if not data.startswith(self._before):
            raise Rewritten
        new = data[len(self._before) :] if self._before else data
        at_end = len(new) < CHUNK
        self._at += len(new)
        lines = self._cut(new)
        if self._head is None and new and begin == 0:
            self._head = Sum(min(len(new), HEAD_BYTES), crc32(new[:HEAD_BYTES]))
        if at_end and final and self._rest and not is_written(self._descriptor):
            self._take(self._rest, 0, lines)
            self._rest = b""
        checks = self._checks(data, begin, len(new))
        self._before = data[-CHECK_BYTES:]
        return Chunk(lines, self._start, at_end, status, checks)

    def close(self) -> None:
        """Close the file; does nothing when it is closed."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _bytes(self, begin: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - begin, begin)

    def _checks(self, data: bytes, begin: int, new: int) -> list[Sum]:
        """Return the sums before every so many bytes of what is new, and before the end of the last whole line."""
        first = self._at - new
        offsets = [*range((first // CHECK_EVERY_BYTES + 1) * CHECK_EVERY_BYTES, self._at + 1, CHECK_EVERY_BYTES)]
        if self._start > begin:
            offsets.append(self._start)
        whole = [offset for offset in offsets if begin == 0 or offset - CHECK_BYTES >= begin]
        return [Sum(end, crc32(data[max(end - CHECK_BYTES - begin, 0) : end - begin])) for end in sorted(whole)]

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
