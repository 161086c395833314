"""Split one open file into lines, a chunk at a time, for growing files and lines of any length. Blocking: call it
in a thread.

The name does not identify a file. The bytes that were read from it are compared with its present ones. Otherwise a
file that was truncated and written again would be read on in its middle.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from headrace.sources.directory.journal import Sum
from headrace.sources.files.line_splitter import Line, LineSplitter
from headrace.sources.files.status import Status, is_written, status_of

CHUNK: Final = 256 * 1024
HEAD_BYTES: Final = 1024
CHECK_BYTES: Final = 256
CHECK_EVERY_BYTES: Final = 16 * 1024


class Rewritten(Exception):
    """The file no longer has the bytes that were read from it."""


class NotRegular(Exception):
    """The name leads to something other than a regular file, such as a pipe or a device."""


class Mark(NamedTuple):
    """The byte up to which a file was read or committed, and the checksums of its first bytes and of those before
    an offset up to `at`.
    """

    at: int = 0
    head: Sum | None = None
    check: Sum | None = None


class Chunk(NamedTuple):
    """The lines that one read completed, the offset after the last whole line (blank or not), and whether the file
    ended there.

    `status` is the file's status before the read; `checks` are checksums at rising offsets up to `read`.
    """

    lines: list[Line]
    read: int
    at_end: bool
    status: Status
    checks: list[Sum]


class LineReader:
    """Read the lines of the file at `path`, from its beginning or from `resume`. All calls from one thread.

    Between two reads at the end of the file, memory has at most LONG_LINE_PREFIX_BYTES bytes of an unfinished line.

    Raises OSError, and `NotRegular`.
    """

    def __init__(self, path: str | Path) -> None:
        # Without this flag, opening a pipe waits for its writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        self._at = self._checked = 0
        self._before = b""
        self._lines = LineSplitter()
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
        """Return the identity of the open file."""
        return self.status.key

    @property
    def head(self) -> Sum | None:
        """Return the checksum of the first bytes, once there are some."""
        return self._head

    def resume(self, mark: Mark) -> None:
        """Read from `mark` on, the start of a line. Raises `Rewritten` unless the file has the same bytes before
        it, and OSError.
        """
        if status_of(self._descriptor).size < mark.at:
            raise Rewritten
        for known, length in ((mark.head, HEAD_BYTES), (mark.check, CHECK_BYTES)):
            if known is not None and crc32(self._bytes(max(known.end - length, 0), known.end)) != known.crc:
                raise Rewritten
        self._at = self._checked = mark.at
        self._lines = LineSplitter(mark.at)
        self._head = mark.head
        self._before = self._bytes(max(mark.at - CHECK_BYTES, 0), mark.at)

    def read(self, *, final: bool = False) -> Chunk:
        """Read the next chunk. `final` makes a line of the text after the last line end, if the file has ended and
        no process writes to it.

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
        lines = self._lines.feed(new)
        if self._head is None and new and begin == 0:
            self._head = Sum(min(len(new), HEAD_BYTES), crc32(new[:HEAD_BYTES]))
        if at_end and final and self._lines.has_unfinished_line and not is_written(self._descriptor):
            lines += self._lines.end()
        checks = self._checks(data, begin)
        self._before = data[-CHECK_BYTES:]
        if at_end and self._lines.drop_long_line():
            # Many files may wait for the end of a long line. The next read reads this line again from its start.
            self._at = self._lines.start
            self._before = self._bytes(max(self._at - CHECK_BYTES, 0), self._at)
        return Chunk(lines, self._lines.start, at_end, status, checks)

    def close(self) -> None:
        """Close the file; do nothing if it is closed."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _bytes(self, begin: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - begin, begin)

    def _checks(self, data: bytes, begin: int) -> list[Sum]:
        """Return the checksums before the end of the last whole line, and at fixed distances within the whole
        lines.

        `data` starts at the offset `begin`. An unfinished line may still change, so no checksum covers it.
        """
        first = max(self._checked, begin)
        offsets = {*range((first // CHECK_EVERY_BYTES + 1) * CHECK_EVERY_BYTES, self._lines.start, CHECK_EVERY_BYTES)}
        if self._lines.start > first:
            offsets.add(self._lines.start)
        self._checked = max(self._checked, self._lines.start)
        whole = (offset for offset in sorted(offsets) if begin == 0 or offset - CHECK_BYTES >= begin)
        return [Sum(end, crc32(data[max(end - CHECK_BYTES - begin, 0) : end - begin])) for end in whole]
