"""Split bytes into lines as they arrive. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_LINE_BYTES: Final = 1024 * 1024
LONG_LINE_PREFIX_BYTES: Final = 16 * 1024
LONG_LINE: Final = f"The line is longer than {MAX_LINE_BYTES} bytes."
"""The reason why a line that is too long is malformed."""
BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = b"\n"


class Line(NamedTuple):
    """One line that is not blank: its bytes without the line end, its start, and the start of the next line."""

    data: bytes
    start: int
    end: int
    too_long: bool = False


class LineSplitter:
    """Make lines of the bytes from offset `start` on, which begins a line. Blank lines are left out.

    Memory has one unfinished line of up to MAX_LINE_BYTES. Of a longer line, only the first LONG_LINE_PREFIX_BYTES are stored.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        """The offset after the last whole line, blank or not."""
        self._rest = b""
        self._dropped = 0

    @property
    def has_unfinished_line(self) -> bool:
        """Whether there are bytes after the last whole line."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that these bytes complete."""
        lines: list[Line] = []
        parts = (self._rest + data).split(_LINE_END)
        self._rest = parts.pop()
        for part in parts:
            self._take(part, len(_LINE_END), lines)
        if len(self._rest) > MAX_LINE_BYTES or (self._dropped and len(self._rest) > LONG_LINE_PREFIX_BYTES):
            self._dropped += len(self._rest) - LONG_LINE_PREFIX_BYTES
            self._rest = self._rest[:LONG_LINE_PREFIX_BYTES]
        return lines

    def end(self) -> list[Line]:
        """Return the last line, if it has no line end."""
        lines: list[Line] = []
        if self._rest:
            self._take(self._rest, 0, lines)
            self._rest = b""
        return lines

    def drop_long_line(self) -> bool:
        """Drop an unfinished line of which memory has more than its prefix. Return whether it did: then feed from `start` again."""
        if self._dropped or len(self._rest) <= LONG_LINE_PREFIX_BYTES:
            return False
        self._rest = b""
        return True

    def _take(self, part: bytes, line_end: int, lines: list[Line]) -> None:
        start, length = self.start, self._dropped + len(part)
        self.start = start + length + line_end
        self._dropped = 0
        if start == 0:
            part = part.removeprefix(BOM)
        part = part.removesuffix(b"\r")
        if length > MAX_LINE_BYTES:
            lines.append(Line(part[:LONG_LINE_PREFIX_BYTES], start, self.start, too_long=True))
        elif part and not part.isspace():
            lines.append(Line(part, start, self.start))
