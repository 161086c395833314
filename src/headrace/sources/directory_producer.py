"""Reading a folder as a shared stream.

Two tasks stand behind `open_stream`: one is told by the kernel that something changed, the other then looks at the folder,
hands new and grown files to the reading, and moves finished ones away. Nothing polls; as the kernel does not report changes that
another machine makes in a shared folder, a look is taken every `SAFETY` seconds all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import structlog
from watchfiles import Change, awatch

from headrace.core.outcome import AdvanceItem
from headrace.errors import MalformedEvent, StreamEnded, UpstreamError
from headrace.sources.directory_folder import Folder
from headrace.sources.directory_journal import Entry
from headrace.sources.directory_lanes import Lane, Lanes
from headrace.sources.directory_lines import LONGEST_LINE, Chunk, LineReader
from headrace.triggers.producer import SharedStreamProducer
from headrace.triggers.raw import RawEvent

SAFETY: Final = 30.0
GATHER_MS: Final = 100
STEP_MS: Final = 20

log = structlog.get_logger(__name__)


class Place(NamedTuple):
    """Where a line is: its lane, where it starts, where the next one starts."""

    lane: str
    start: int
    end: int


class LongLine(RawEvent):
    """A line that is too long to be a message; only its beginning is kept."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """Raise `MalformedEvent`."""
        raise MalformedEvent(f"The line is longer than {LONGEST_LINE} bytes.")


class DirectoryProducer(SharedStreamProducer):
    """The producer of a `Directory`: yields `RawEvent`s; `advance` makes durable how far a file is done."""

    def __init__(self, path: Path, pattern: str) -> None:
        self._path = path
        self._pattern = pattern
        self._opening: asyncio.Task[Folder] | None = None
        self._folder: Folder | None = None
        self._lanes = Lanes()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._work = asyncio.Event()
        self._unwritten: list[Entry] = []
        self._writing = asyncio.Lock()

    async def open_stream(self) -> AsyncIterator[tuple[RawEvent, Place]]:
        """Take the folder and yield its lines for ever; raises `UpstreamError` when it cannot be read, or not by this process now."""
        self._opening = asyncio.create_task(asyncio.to_thread(Folder, self._path, self._pattern))
        # Shielded, so that a folder that is taken while we are cancelled is known to `aclose`, and given back.
        folder = self._folder = await asyncio.shield(self._opening)
        used = await asyncio.to_thread(folder.names_used)
        self._lanes = Lanes(folder.journal.entries.values(), used)
        # The watching is on from the first step of its task, which comes before the first look: no file falls in between.
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._look_after(folder))]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._work.set())
        while True:
            lane = await self._next_lane()
            with LineReader(self._path / lane.found.file, lane.read) as reader:
                at_end = False
                while not at_end:
                    lines, read, at_end = await self._chunk(lane, reader)
                    for line in lines:
                        lane.owed, lane.last = line.end, line.start
                        kind = LongLine if line.too_long else RawEvent
                        yield kind(line.data, lane.name, line.start), Place(lane.name, line.start, line.end)
            if lane.state == "reading":
                self._lanes.at_end(lane, read, asyncio.get_running_loop().time())
            self._changed.set()

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Record durably that the lane is done to the end of the last line of `batch`; what was recorded before is not recorded again.

        A line that a subscriber failed on is not passed: the lane is held before it, and comes again from there at the next opening.
        """
        lane = self._lanes.get(batch[0].broker_payload.lane)
        if lane is None or lane.held:
            return
        done = list(takewhile(lambda item: not item.outcome.failed, batch))
        if done and (furthest := max(item.broker_payload for item in done)).end > lane.advanced:
            await self._record([Entry(lane.name, lane.found.file, furthest.end, last=furthest.start)])
            if furthest.end > lane.advanced:
                lane.advanced, lane.committed = furthest.end, furthest.start
        if len(done) < len(batch):
            lane.held = True
            log.warning("line failed, to be read again", folder=str(self._path), place=batch[len(done)].broker_payload)
        elif lane.state == "settling" and lane.advanced >= lane.owed:
            self._changed.set()

    def get_advance_lane(self, broker_payload: Place) -> Hashable:
        """Return the file's lane."""
        return broker_payload.lane

    def get_position(self, broker_payload: Place) -> int:
        """Return the byte offset at which the line starts."""
        return broker_payload.start

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return where the lane's last line starts (the file's size, as long as its end has not been read); None once it is done."""
        found = self._lanes.get(str(lane))
        return None if found is None else found.end

    def get_committed(self, lane: Hashable) -> int | None:
        """Return where the last line that the journal has as done starts; None before the first, and once the file is done."""
        found = self._lanes.get(str(lane))
        return None if found is None else found.committed

    async def aclose(self) -> None:
        """Stop watching and let the next process have the folder."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        opening, self._opening, self._folder = self._opening, None, None
        if opening is not None:
            with suppress(UpstreamError):
                folder = await opening
                await asyncio.to_thread(folder.close)

    async def _next_lane(self) -> Lane:
        while True:
            for task in self._tasks:
                if task.done():
                    task.result()
                    raise StreamEnded(f"The watching of {self._path} ended.")
            self._work.clear()
            lane = self._lanes.take()
            if lane is not None:
                return lane
            await self._work.wait()

    async def _chunk(self, lane: Lane, reader: LineReader) -> Chunk:
        """Return the next lines of the file, read in a thread. A file that cannot be read is left alone until it changes."""
        try:
            if await asyncio.to_thread(reader.inode) == lane.found.identity.inode:
                return await asyncio.to_thread(reader.read, final=lane.final)
        except OSError as error:
            log.warning("file cannot be read", folder=str(self._path), lane=lane.name, error=str(error))
        self._lanes.fail(lane)
        return Chunk([], lane.read, at_end=True)

    async def _watch(self) -> None:
        changes = awatch(
            self._path,
            watch_filter=self._is_of_interest,
            debounce=GATHER_MS,
            step=STEP_MS,
            rust_timeout=int(SAFETY * 1000),
            yield_on_timeout=True,
            recursive=False,
        )
        try:
            async for _ in changes:
                self._changed.set()
        except OSError as error:
            raise UpstreamError(
                f"The folder {self._path} cannot be watched: {error}.", hint="Is the machine's limit of file watches (inotify) reached?"
            ) from error

    def _is_of_interest(self, change: Change, path: str) -> bool:
        del change
        return self._folder is not None and (self._folder.wants(Path(path).name) or Path(path) == self._path)

    async def _look_after(self, folder: Folder) -> None:
        """Look at the folder whenever something may have changed, and act on what the look came to."""
        loop = asyncio.get_running_loop()
        first = True
        while True:
            self._changed.clear()
            found = await asyncio.to_thread(folder.found)
            look = self._lanes.look(found, loop.time())
            self._work.set()
            gone = [Entry(lane.name, lane.found.file, lane.advanced, last=lane.committed) for lane in look.gone]
            if first:
                gone += self._lanes.forget_missing()
                first = False
            if gone:
                log.warning("files are gone before they were done", folder=str(self._path), lanes=[entry.lane for entry in gone])
                async with self._writing:
                    await asyncio.to_thread(folder.forget, gone)
            if look.ended:
                async with self._writing:
                    await asyncio.to_thread(folder.end, look.ended)
                log.debug("files done", lanes=[lane.name for lane in look.ended])
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look.again):
                    await self._changed.wait()

    async def _record(self, entries: Iterable[Entry]) -> None:
        """Make the entries durable, together with those of other lanes that came while the disk was busy."""
        mine = list(entries)
        self._unwritten += mine
        async with self._writing:
            if mine[-1] not in self._unwritten:
                return
            if self._folder is None:
                raise StreamEnded(f"The reading of {self._path} has ended.")
            taken, self._unwritten = self._unwritten, []
            written = False
            try:
                await asyncio.to_thread(self._folder.journal.append, taken)
                written = True
            except OSError as error:
                raise UpstreamError(f"The progress of {self._path} cannot be recorded: {error}.", hint="Is the disk full?") from error
            finally:
                if not written:
                    self._unwritten = taken + self._unwritten
