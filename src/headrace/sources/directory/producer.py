"""Read a folder as a shared stream.

Two threads do the blocking work: one looks and reads, one writes the journal and moves finished files. Each does one
thing after the other, even if a waiting task is cancelled. Nothing polls: the kernel reports changed names. It does not
report every change: another machine may change a shared folder, or a burst may overflow the kernel's queue. So the
whole folder is scanned every `SAFETY` seconds, or less often if a scan takes long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamEnded, UpstreamError
from headrace.sources.directory.files import BATCH_FILES, PASSING, Files, Scan, Visit, unusable_folder
from headrace.sources.directory.folder import Finished, Folder, Moved
from headrace.sources.directory.journal import Entry
from headrace.sources.directory.lane import Lane
from headrace.sources.directory.lanes import Lanes, Sight
from headrace.sources.directory.lines import Chunk
from headrace.sources.directory.threads import Threads
from headrace.sources.directory.waiting import Candidate
from headrace.sources.directory.watch import Watch, matcher
from headrace.sources.files.line_splitter import LONG_LINE, Line
from headrace.sources.files.names import text_of
from headrace.sources.group_commit import GroupCommit
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.upstream import SharedStreamProducer

SAFETY: Final = 30.0
SCAN_SHARE: Final = 20
URGENT_SCAN_SHARE: Final = 3
"""Minimum pause before a scan, as a multiple of the duration of the last one. An urgent scan does not wait."""
EARLY_AFTER: Final = 5.0
EARLY_FILES: Final = 1000
LOOK_FILES: Final = 500
FINISH_FILES: Final = 200
FAILED_SCAN_PAUSE: Final = 2.0
MAX_OPEN_FILES: Final = 128
"""Maximum number of files that stay open at their end for further lines."""

log = structlog.get_logger(__name__)


class LinePosition(NamedTuple):
    """The position of a line: its lane, its start, and the start of the next one."""

    lane: str
    start: int
    end: int


class DirectoryProducer(SharedStreamProducer):
    """The producer of a `Directory`: yields `RawEvent`s; `advance` makes durable how far a file is done."""

    def __init__(self, path: Path, pattern: str, keep_done: int | None = None) -> None:
        self._path = path
        self._is_selected = matcher(pattern)
        self._lanes = Lanes()
        self._threads = Threads(path, keep_done)
        self._files = Files(path, self._lanes)
        self._idle: dict[Lane, None] = {}
        self._watch = Watch(path, lambda name: self._is_selected(name) or self._lanes.at(name) is not None)
        self._tasks: list[asyncio.Task[None]] = []
        self._work = asyncio.Event()
        self._scanned = 0
        self._scan_from = self._scan_by = 0.0
        self._journal: GroupCommit[Entry, None] = GroupCommit(self._write)

    async def open_stream(self) -> AsyncIterator[tuple[RawEvent, LinePosition]]:
        """Open the folder and yield its lines without end. Raises `UpstreamError` if this process cannot read it now."""
        folder = await self._threads.open()
        if self.log is not None:
            await self.log.check(folder.journal.mark)
        self._lanes = Lanes(folder.journal.entries.values())
        self._files = self._threads.files = Files(self._path, self._lanes)
        # The watch is active from the first step of its task, which precedes the first scan. So no file is missed
        # in between.
        self._tasks = [asyncio.create_task(self._watch.run()), asyncio.create_task(self._look_after(folder))]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._work.set())
        while True:
            for lane, first in await self._next_batch():
                chunk: Chunk | None = first
                while chunk is not None:
                    for line in chunk.lines:
                        lane.owed, lane.last = line.end, line.start
                        yield raw_event(line, lane.name), LinePosition(lane.name, line.start, line.end)
                    chunk = await self._next_chunk(lane, chunk)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Record durably that the lane is done to the end of the last line of `batch`. An end that is already
        recorded is not recorded again.

        Invariant: a line that a subscriber failed on is not passed. The lane is held before it, and the next
        opening redelivers from there.
        """
        lane = self._lanes.get(batch[0].broker_payload.lane)
        if lane is None or lane.held:
            return
        done = list(takewhile(lambda item: not item.outcome.failed, batch))
        if done and (furthest := max(item.broker_payload for item in done)).end > lane.advanced:
            await self._journal.submit(lane.entry(furthest.end, furthest.start))
            if furthest.end > lane.advanced:
                lane.advanced, lane.committed = furthest.end, furthest.start
        if len(done) < len(batch):
            lane.held = True
            log.warning("line failed, to be read again", folder=str(self._path), place=batch[len(done)].broker_payload)
        elif lane.state == "settling" and lane.is_done and lane.due is None:
            self._lanes.nudge(lane, self._now())
            self._watch.wake()

    def get_advance_lane(self, broker_payload: LinePosition) -> Hashable:
        """Return the file's lane."""
        return broker_payload.lane

    def get_position(self, broker_payload: LinePosition) -> int:
        """Return the byte offset at which the line starts."""
        return broker_payload.start

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the start of the lane's last line, or the file's size until its end has been read. None once it is done."""
        open_lane = self._lanes.get(str(lane))
        return None if open_lane is None else open_lane.end

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the start of the last line that the journal has as done. None before the first, and once the file is done."""
        open_lane = self._lanes.get(str(lane))
        return None if open_lane is None else open_lane.committed

    def get_errors(self) -> Mapping[str, str]:
        """Return the reasons of unreadable files, by name."""
        return self._lanes.errors()

    async def aclose(self) -> None:
        """Stop the watch and release the folder for the next process, after the running calls of its threads."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._threads.close()
        await self._journal.aclose()

    async def _next_batch(self) -> list[tuple[Lane, Chunk]]:
        """Wait for files to read; return them with the first chunks to hand out, once the journal has them."""
        while True:
            for task in self._tasks:
                if task.done():
                    task.result()
                    raise StreamEnded(f"The watching of {self._path} ended.")
            self._work.clear()
            targets = self._targets()
            if not targets:
                await self._work.wait()
                continue
            visits = await self._threads.read(partial(self._files.visit, targets))
            for target in targets[len(visits) :]:
                self._lanes.requeue(target)
            entries: list[Entry] = []
            batch = [one for visit in visits if (one := self._admit(visit, entries)) is not None]
            await self._record(entries)
            if batch:
                return batch

    def _targets(self) -> list[Lane | Candidate]:
        targets: dict[str, Lane | Candidate] = {}
        while len(targets) < BATCH_FILES and (target := self._lanes.take()) is not None:
            targets.setdefault(target.file, target)
        if self._lanes.waiting.needs_scan:
            self._watch.scan()
        return list(targets.values())

    def _admit(self, visit: Visit, entries: list[Entry]) -> tuple[Lane, Chunk] | None:
        """Make a lane of a visit, and add its entry for the journal."""
        lane, now = visit.lane, self._now()
        if visit.chunk is None:
            entries += self._missed(visit, now)
            return None
        if lane is None and visit.reader is not None:
            other = self._lanes.at(visit.file)
            if other is not None and other.key == visit.reader.key:
                self._threads.leave([visit.reader])
                return None
            if visit.entry is None:
                lane = Lane.new(visit.file, visit.reader, now)
            else:
                lane = Lane.resumed(visit.entry, visit.file, visit.reader, now)
            lane.took(visit.chunk)
            entries += self._lanes.open(lane)
        elif lane is not None:
            self._idle.pop(lane, None)
            lane.took(visit.chunk)
        return None if lane is None else (lane, visit.chunk)

    def _missed(self, visit: Visit, now: float) -> list[Entry]:
        """Handle an unreadable file; return the entries for the journal."""
        lane, sight = visit.lane, visit.sight or Sight(visit.file)
        if visit.rewritten and lane is not None:
            return [self._rewritten(lane)]
        if lane is not None:
            self._lanes.miss(lane)
        self._lanes.see([sight], now)
        self._watch.wake()
        if sight.error is not None:
            self._warn(sight.file, sight.error)
        return []

    def _rewritten(self, lane: Lane) -> Entry:
        """Close a lane whose file has other contents now, and read the file as another lane."""
        log.warning("file was emptied and written again", folder=str(self._path), lane=lane.name)
        self._drop([lane])
        if lane.lost is None:
            self._lanes.requeue(Candidate(lane.status.modified, lane.file))
        return lane.over()

    async def _next_chunk(self, lane: Lane, chunk: Chunk) -> Chunk | None:
        """Return the next lines of the file, or None if there are none yet."""
        reader = lane.reader
        if reader is None or self._lanes.get(lane.name) is not lane:
            return None
        if chunk.at_end:
            self._at_end(lane)
            return None
        result = await self._threads.read(lambda: self._files.read(reader, final=lane.final))
        if isinstance(result, Chunk):
            lane.took(result)
            return result
        if result is None:
            await self._record([self._rewritten(lane)])
        else:
            self._lanes.miss(lane)
            self._lanes.fail(lane.file, result, self._now())
            self._watch.wake()
            self._warn(lane.file, result)
        return None

    def _at_end(self, lane: Lane) -> None:
        self._lanes.at_end(lane, self._now())
        self._idle[lane] = None
        if len(self._idle) > MAX_OPEN_FILES:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            if oldest.lost is None and oldest.reader is not None:
                self._threads.leave([oldest.reader])
                oldest.reader = None
        self._watch.wake()

    async def _look_after(self, folder: Folder) -> None:
        """Look at names that may have changed, and act on the results."""
        while True:
            self._watch.begin()
            now = self._now()
            if now >= (self._scan_from if self._watch.needs_scan else self._scan_by):
                await self._scan(now)
            names = self._watch.take(LOOK_FILES)
            names += self._lanes.due(now, LOOK_FILES)
            await self._look(folder, names)
            await self._give_up()
            scan = self._scan_from if self._watch.needs_scan else self._scan_by
            due = self._lanes.next_due()
            await self._watch.wait(scan if due is None else min(due, scan))

    async def _scan(self, begun: float) -> None:
        """Look at the whole folder, in slices. Raises `UpstreamError` if the folder was removed."""
        self._watch.needs_scan = False
        self._lanes.scans += 1
        number = self._lanes.scans
        self._lanes.waiting.begin_scan()
        scan = Scan(str(self._path), self._lanes, self._is_selected)
        try:
            while await self._threads.read(scan.proceed):
                if self._now() - begun > EARLY_AFTER and not self._lanes.waiting:
                    await self._begin_early(scan)
        except OSError as error:
            if error.errno not in PASSING:
                raise unusable_folder(self._path, error) from error
            log.warning("folder not readable", folder=str(self._path), error=str(error))
            self._scan_from = self._scan_by = begun + FAILED_SCAN_PAUSE
            return
        self._lanes.waiting.end_scan(scan.selection)
        self._work.set()
        if number == 1:
            missing = self._lanes.remove_missing(scan.inodes)
            self._warn_of([entry.lane for entry in missing])
            await self._record(missing)
        names = self._lanes.files + scan.sights
        for start in range(0, len(names), LOOK_FILES):
            await self._look(None, names[start : start + LOOK_FILES])
        self._scanned = number
        now = self._now()
        self._scan_from = now + URGENT_SCAN_SHARE * (now - begun)
        self._scan_by = now + max(SAFETY, SCAN_SHARE * (now - begun))

    async def _begin_early(self, scan: Scan) -> None:
        """Start reading the first files that a long scan has found."""
        for candidate in await self._threads.read(lambda: scan.selection.first(EARLY_FILES)):
            self._lanes.waiting.add(candidate)
        self._work.set()

    async def _look(self, folder: Folder | None, names: Sequence[str]) -> None:
        """Look at these names; move finished files if there is a `folder` for them."""
        if not names:
            return
        sights = await self._threads.read(lambda: self._files.look(names))
        now = self._now()
        ended = self._lanes.see(sights, now)
        self._work.set()
        for lane in ended if folder is None else ():
            self._lanes.nudge(lane, now)
        if ended and folder is not None:
            for start in range(0, len(ended), FINISH_FILES):
                await self._finish(folder, ended[start : start + FINISH_FILES])

    async def _finish(self, folder: Folder, lanes: Sequence[Lane]) -> None:
        """Move the files of lanes that have ended."""
        files = [Finished(lane.name, lane.file, lane.status, lane.over(), self._is_selected(lane.file)) for lane in lanes]
        moved = await self._threads.keep(lambda: folder.finish(files))
        for lane, how in zip(lanes, moved, strict=True):
            if self._lanes.get(lane.name) is lane:
                self._settle(lane, how)

    def _settle(self, lane: Lane, how: Moved) -> None:
        """Handle the outcome of a file's move."""
        now = self._now()
        if how.outcome == "done":
            self._drop([lane])
            log.debug("file done", folder=str(self._path), lane=lane.name)
            return
        if how.file != lane.file:
            self._lanes.rename(lane, how.file, now)
        if how.outcome == "failed":
            self._lanes.fail(lane.file, how.error, now)
            self._warn(lane.file, how.error)
        else:
            self._lanes.again(lane, now)

    async def _give_up(self) -> None:
        """Close the lanes whose file is no longer in the folder."""
        missing = self._lanes.give_up(self._scanned)
        if not missing:
            if self._lanes.has_lost(self._scanned):
                self._watch.scan()
            return
        self._warn_of([lane.name for lane in missing if not lane.is_done or lane.status.size > lane.read])
        self._drop(missing)
        await self._record([lane.over() for lane in missing])

    def _warn(self, file: str, error: str) -> None:
        """Log the error of a file, the first time."""
        failure = self._lanes.failures.get(file)
        if failure is not None and failure.failures == 1:
            log.warning("file not usable", folder=str(self._path), file=text_of(file), error=error)

    def _warn_of(self, lanes: Sequence[str]) -> None:
        if lanes:
            log.warning("files missing before they were done", folder=str(self._path), lanes=lanes)

    def _drop(self, lanes: Sequence[Lane]) -> None:
        """Remove lanes, and close their files."""
        for lane in lanes:
            self._lanes.close(lane)
            self._idle.pop(lane, None)
        self._threads.leave([lane.reader for lane in lanes if lane.reader is not None])

    async def _record(self, entries: Sequence[Entry]) -> None:
        if entries:
            await asyncio.gather(*map(self._journal.submit, entries))

    async def _write(self, entries: list[Entry]) -> list[None]:
        folder = self._threads.folder
        if folder is None:
            raise StreamEnded(f"The reading of {self._path} has ended.")
        mark = None if self.log is None else self.log.mark
        try:
            await self._threads.keep(lambda: folder.journal.append(entries, mark=mark))
        except OSError as error:
            raise UpstreamError(f"The progress of {self._path} cannot be recorded: {error}.", hint="Is the disk full?") from error
        return [None] * len(entries)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def raw_event(line: Line, lane: str) -> RawEvent:
    """Return the raw event of a line."""
    return Message(line.data, lane, line.start, malformed=LONG_LINE) if line.too_long else RawEvent(line.data, lane, line.start)
