"""How far each file of a folder is done: a journal of JSON lines, appended and made durable, compacted when it is opened.

A line that was torn by a crash is passed over: what it said was not yet promised to anybody, and its lines are read again.
Blocking: call it in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, frozen=True, array_like=True):
    """Which file it was, whatever its name is by now."""

    inode: int
    size: int
    modified_ns: int


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last word on one lane: everything before byte `at` is done; `ended` once all is, `moved` once the file is out of the way.

    `last` is where the last line that is done starts, if one is.
    """

    lane: str
    file: str
    at: int
    ended: Identity | None = None
    moved: bool = False
    last: int | None = None


class Journal:
    """The journal at `path`. `entries` holds the last entry of each lane, as it was when the journal was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries = {entry.lane: entry for entry in _read(path)}
        self._compact()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._descriptor).st_size

    def append(self, entries: Iterable[Entry], *, durable: bool = True) -> None:
        """Write the entries; on return they are on the disk. After an OSError the journal is as it was before."""
        data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            if durable:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Close the file; nothing may be appended any more."""
        os.close(self._descriptor)

    def _compact(self) -> None:
        part = self._path.with_name(self._path.name + ".part")
        with part.open("wb") as out:
            out.writelines(msgspec.json.encode(entry) + b"\n" for entry in self.entries.values())
            out.flush()
            os.fsync(out.fileno())
        part.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read(path: Path) -> Iterable[Entry]:
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Entry)
    for line in path.read_bytes().splitlines():
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            continue
