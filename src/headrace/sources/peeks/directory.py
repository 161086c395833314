"""Peek at the files of a folder: read each after its place in the journal, without the lock of the folder."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from headrace.errors import UpstreamError
from headrace.sources.directory.files import unusable_folder
from headrace.sources.directory.folder import JOURNAL_NAME, OWN_FOLDER
from headrace.sources.directory.journal import Entry, read_entries
from headrace.sources.directory.lane import QUIET
from headrace.sources.directory.lines import LineReader, Mark, NotRegular, Rewritten
from headrace.sources.directory.producer import raw_event
from headrace.sources.directory.upstream import Directory
from headrace.sources.directory.watch import matcher
from headrace.sources.files.names import text_of
from headrace.sources.peeks import peek as port
from headrace.triggers.raw_event import RawEvent

MAX_NOTES: Final = 20
NS: Final = 1_000_000_000


class _File(NamedTuple):
    """A file to read: the time of its last change (ns), its name, and its place in the journal."""

    modified: int
    name: str
    entry: Entry | None

    @property
    def lane(self) -> str:
        """The lane, or the name of a file that no reader has begun."""
        return text_of(self.name) if self.entry is None else self.entry.lane


async def peek(upstream: Directory, request: port.PeekRequest) -> port.Peek:
    """Return the lines that are not done, of the file with the oldest change first."""
    return await asyncio.to_thread(_peek, upstream.folder, upstream.pattern, request)


def _peek(folder: Path, pattern: str, request: port.PeekRequest) -> port.Peek:
    if not folder.is_dir():
        raise UpstreamError(f"There is no folder {folder}.", hint="Create it, or correct the path of the Directory.")
    try:
        begun = {(entry.inode, entry.birth): entry for entry in read_entries(folder / OWN_FOLDER / JOURNAL_NAME).values()}
        files = sorted(_files(folder, pattern, begun))
    except OSError as error:
        raise unusable_folder(folder, error) from error
    lanes = set(port.matching_lanes([file.lane for file in files], request))
    messages: list[RawEvent] = []
    notes: list[str] = []
    size = 0
    for file in files:
        if len(messages) >= request.limit or size > port.MAX_PEEK_BYTES:
            break
        if file.lane not in lanes:
            continue
        try:
            more = _lines(folder / file.name, file, request.limit - len(messages))
        except (OSError, NotRegular) as error:
            if len(notes) < MAX_NOTES:
                notes.append(f"{text_of(file.name)}: {'It is not a file.' if isinstance(error, NotRegular) else f'{error.strerror}.'}")
            continue
        messages += more
        size += sum(len(message.data) for message in more)
    return port.Peek(messages, notes)


def _files(folder: Path, pattern: str, begun: Mapping[tuple[int, int], Entry]) -> Iterator[_File]:
    """Yield the files of the pattern, and the files that a reader has begun under another name."""
    is_selected, inodes = matcher(pattern), {inode for inode, _ in begun}
    with os.scandir(folder) as entries:
        for one in entries:
            if not (is_selected(one.name) or one.inode() in inodes) or one.is_dir():
                continue
            try:
                reader = LineReader(one.path)
            except (OSError, NotRegular):
                yield _File(0, one.name, None)
                continue
            reader.close()
            entry = begun.get(reader.key)
            if entry is not None or is_selected(one.name):
                yield _File(reader.status.modified, one.name, entry)


def _lines(path: Path, file: _File, count: int) -> list[RawEvent]:
    """Return up to `count` lines that are not done. A file with other contents than the journal has is read from its beginning."""
    reader = LineReader(path)
    lane = file.lane
    try:
        if file.entry is not None:
            try:
                reader.resume(Mark(file.entry.at, file.entry.head, file.entry.check))
            except Rewritten:
                reader.close()
                reader, lane = LineReader(path), text_of(file.name)
        is_quiet = time.time_ns() - reader.status.modified > QUIET * NS
        messages: list[RawEvent] = []
        while len(messages) < count:
            try:
                chunk = reader.read(final=is_quiet)
            except Rewritten:
                break
            messages += [raw_event(line, lane) for line in chunk.lines]
            if chunk.at_end:
                break
        return messages[:count]
    finally:
        reader.close()
