"""The progress of each file of a folder: a journal of JSON lines, appended durably and compacted as it grows.

It has the lanes whose files are in progress, and removes a lane when its file is done. A line that a crash
truncated is skipped: its entry was not yet confirmed, and its lines are read again. Blocking: call it in one
thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headrace.durable_files import sync_folder
from headrace.errors import UpstreamError
from headrace.triggers.stream_log import LogMark

COMPACT_AT_BYTES: Final = 4 * 1024 * 1024
COMPACT_AT_GROWTH: Final = 8
_MARK_BEGINS: Final = b'{"log":'  # an entry begins with its lane


class Sum(NamedTuple):
    """The CRC-32 of the bytes that end at offset `end`."""

    end: int
    crc: int


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last entry of one lane: all before byte `at` of the `file` (its name as text) is done; `over`: the lane
    is done.

    `last` is the start of the last line that is done, if any. `inode` and `birth` identify the file. `head` and
    `check` are checksums of its first bytes and of those before an offset up to `at`.
    """

    lane: str
    file: str
    at: int = 0
    last: int | None = None
    inode: int = 0
    birth: int = 0
    head: Sum | None = None
    check: Sum | None = None
    over: bool = False


class MarkLine(msgspec.Struct, frozen=True):
    """The event log that all entries before this line were recorded in; see `LogMark`."""

    log: str
    stream: str
    receipts: int


class Journal:
    """The journal at `path`. `entries` holds the last entry of each lane in progress. Raises OSError if it cannot be opened.

    `mark` is that of the event log that the folder was advanced for last, or None if it never was.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: dict[str, Entry] = {}
        self.mark: LogMark | None = None
        if path.exists():
            self._read()
        self._descriptor, self._size = self._compacted()
        self._compact_at = max(COMPACT_AT_BYTES, COMPACT_AT_GROWTH * self._size)
        self._torn = b""

    def append(self, entries: Iterable[Entry], *, durable: bool = True, mark: LogMark | None = None) -> None:
        """Write the entries, and a new mark. On return they are durable. After an OSError the journal is unchanged.

        Raises `UpstreamError` if the path no longer leads to the journal: the folder was deleted, moved or created
        again.
        """
        entries = list(entries)
        self._still_there()
        new = mark if mark is not None and mark != self.mark else None
        data = self._torn + b"".join(_lines(new, entries))
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            if durable:
                os.fdatasync(self._descriptor)
        except OSError:
            # If a partial line cannot be truncated, a line end is written before the next one.
            self._torn = b"\n"
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
                self._torn = b""
            raise
        self._torn = b""
        self._size += len(data)
        self.mark = new or self.mark
        for entry in entries:
            self._note(entry)
        if self._size > self._compact_at:
            try:
                self._compact()
            except OSError:
                # The entry is durable. The journal stays longer than necessary and is compacted later.
                self._compact_at = self._size + COMPACT_AT_BYTES

    def close(self) -> None:
        """Close the file. No call may append afterwards."""
        os.close(self._descriptor)

    def _still_there(self) -> None:
        with suppress(FileNotFoundError, NotADirectoryError):
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return
        raise UpstreamError(f"The folder {self._path.parent.parent} was deleted, moved or made again while it was read.")

    def _note(self, entry: Entry) -> None:
        if entry.over:
            self.entries.pop(entry.lane, None)
        else:
            self.entries[entry.lane] = entry

    def _compact(self) -> None:
        descriptor, size = self._compacted()
        os.close(self._descriptor)
        self._descriptor, self._size = descriptor, size
        self._compact_at = max(COMPACT_AT_BYTES, COMPACT_AT_GROWTH * size)

    def _compacted(self) -> tuple[int, int]:
        """Replace the journal by one with only the current entries; return its descriptor and size."""
        part = self._path.with_name(self._path.name + ".part")
        with part.open("wb") as out:
            out.writelines(_lines(self.mark, self.entries.values()))
            out.flush()
            os.fsync(out.fileno())
        descriptor = os.open(part, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            part.replace(self._path)
            sync_folder(self._path.parent)
            return descriptor, os.fstat(descriptor).st_size
        except OSError:
            os.close(descriptor)
            raise

    def _read(self) -> None:
        for line in _parsed(self._path):
            if isinstance(line, MarkLine):
                self.mark = LogMark(*msgspec.structs.astuple(line))
            else:
                self._note(line)


def _lines(mark: LogMark | None, entries: Iterable[Entry]) -> Iterator[bytes]:
    if mark is not None:
        yield msgspec.json.encode(MarkLine(*mark)) + b"\n"
    for entry in entries:
        yield msgspec.json.encode(entry) + b"\n"


def read_entries(path: Path) -> dict[str, Entry]:
    """Return the last entry of each lane in progress, without a change of the journal. A missing journal has none. Raises OSError."""
    entries: dict[str, Entry] = {}
    with suppress(FileNotFoundError):
        for line in _parsed(path):
            if isinstance(line, Entry):
                entries.pop(line.lane, None)
                if not line.over:
                    entries[line.lane] = line
    return entries


def _parsed(path: Path) -> Iterator[Entry | MarkLine]:
    """Yield the lines of a journal. A line that a crash truncated is skipped."""
    entry, mark = msgspec.json.Decoder(Entry), msgspec.json.Decoder(MarkLine)
    with path.open("rb") as file:
        for line in file:
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                yield mark.decode(line) if line.startswith(_MARK_BEGINS) else entry.decode(line)
