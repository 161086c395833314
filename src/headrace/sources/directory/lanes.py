"""The lanes of a folder, as plain data: the next to read, ended and missing ones. No files, no clock, no loop.

    waiting ─take─► reading ─at_end─► settling ─look─► queued (it changed; or its last line has no line end) ─take─► reading …
                       │                  └────look─► ended (quiet, and all of it advanced)
                       └─fail─► waiting again after a pause

Invariants: a lane is one file, whatever its name, and its own name is never reused. A file that replaced another,
or was truncated and written again, is another lane. A lane ends only when its file was read to its end and advanced
that far, has been unchanged for `QUIET` seconds, and no program has it open for writing. The cost depends on the
number of changes, never on the number of files in the folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from headrace.sources.directory.journal import Entry
from headrace.sources.directory.lane import MAX_PAUSE_SECONDS, QUIET, Lane
from headrace.sources.directory.waiting import Candidate, Waiting
from headrace.sources.files.names import text_of
from headrace.sources.files.status import FileKey, Status

MAX_FAILURES: Final = 10_000
MAX_ERRORS: Final = 100
FIRST_PAUSE: Final = 1.0


class Sight(NamedTuple):
    """The result of a look at a name: its file's status, or None if there is no file of that name, or the error.

    `renamed`: the lane of that file, whose own name no longer leads to it.
    """

    file: str
    status: Status | None = None
    error: str | None = None
    renamed: Lane | None = None


class LaneFailure(NamedTuple):
    """The reason why a file cannot be read, the number of consecutive failures, and the time of the next attempt."""

    error: str
    failures: int
    due: float


class Lanes:
    """The open lanes, the waiting files and the unreadable ones."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.waiting = Waiting()
        self.failures: dict[str, LaneFailure] = {}
        self.scans = 0
        self._open: dict[str, Lane] = {}
        self._by_file: dict[str, Lane] = {}
        self._by_key: dict[FileKey, Lane] = {}
        self._lost: dict[str, Lane] = {}
        self._queue: list[tuple[Candidate, str]] = []
        self._due: list[tuple[float, str]] = []
        self._resume = {entry.inode: entry for entry in entries}

    def get(self, name: str) -> Lane | None:
        """Return the open lane of that name."""
        return self._open.get(name)

    def at(self, file: str) -> Lane | None:
        """Return the lane that the file of that name is read as. From any thread."""
        return self._by_file.get(file)

    def of(self, key: FileKey) -> Lane | None:
        """Return the lane of that file, whatever its name. From any thread."""
        return self._by_key.get(key)

    def unfinished(self, key: FileKey) -> Entry | None:
        """Return the entry of a file from before the last stop. From any thread."""
        entry = self._resume.get(key[0])
        return entry if entry is not None and (entry.birth == key[1] or 0 in (entry.birth, key[1])) else None

    def is_known(self, file: str) -> bool:
        """Return whether a scan can omit this file. Any thread may call it."""
        return file in self._by_file or file in self.failures

    @property
    def files(self) -> list[str]:
        """The names of open files."""
        return list(self._by_file)

    def has_lost(self, scan: int) -> bool:
        """Return whether a further scan must look for the file of a lane under other names, after the scan of that number."""
        return any(lane.lost is not None and lane.lost >= scan for lane in self._lost.values())

    def errors(self) -> dict[str, str]:
        """Return the reasons of the first unreadable files, by name as text."""
        return {text_of(file): failure.error for file, failure in islice(self.failures.items(), MAX_ERRORS)}

    def followed(self) -> set[int]:
        """Return the inodes of files that may have a name that does not match."""
        return {lane.status.inode for lane in self._lost.values()} | self._resume.keys()

    def take(self) -> Lane | Candidate | None:
        """Return the next lane or new file to read: the oldest change first, then by name. A lane is `reading` from now on."""
        while True:
            first, queued = self.waiting.first(), self._queue[0][0] if self._queue else None
            if queued is not None and (first is None or queued <= first):
                lane = self._open.get(heappop(self._queue)[1])
                if lane is not None and lane.state == "queued":
                    lane.state = "reading"
                    return lane
            elif first is not None:
                self.waiting.pop()
                if first.file not in self._by_file:
                    return first
            else:
                return None

    def requeue(self, target: Lane | Candidate) -> None:
        """Return a lane or file to the queue: it was not read."""
        if isinstance(target, Lane):
            self._enqueue(target, final=target.final)
        else:
            self.waiting.add(target)

    def open(self, lane: Lane) -> list[Entry]:
        """Add a lane that is `reading`; return the entry that the journal needs before a line of it is handed out."""
        self.failures.pop(lane.file, None)
        if (other := self._by_file.get(lane.file)) is not None:
            self._lose(other)
        self._open[lane.name] = self._by_file[lane.file] = lane
        self._by_key.setdefault(lane.key, lane)
        before = self._resume.pop(lane.key[0], None)
        over = [] if before is None or before.lane == lane.name else [Entry(before.lane, before.file, over=True)]
        return [lane.entry(lane.advanced, lane.committed), *over]

    def at_end(self, lane: Lane, now: float) -> None:
        """Record that the reader has reached the end of the lane's file."""
        self.failures.pop(lane.file, None)
        lane.settle(now)
        self._push_due(lane)

    def miss(self, lane: Lane) -> None:
        """Record that the lane could not be read further. The next look treats it as changed."""
        lane.state, lane.status = "settling", lane.status._replace(modified=0)

    def fail(self, file: str, error: str, now: float) -> None:
        """Record that the file cannot be read, and retry it after a growing pause."""
        known = self.failures.pop(file, None)
        if known is None and len(self.failures) >= MAX_FAILURES:
            return
        count = 1 if known is None else known.failures + 1
        due = now + min(FIRST_PAUSE * 2 ** min(count - 1, 10), MAX_PAUSE_SECONDS)
        self.failures[file] = LaneFailure(error, count, due)
        heappush(self._due, (due, file))

    def close(self, lane: Lane) -> Lane:
        """Remove a lane."""
        self._open.pop(lane.name, None)
        self._lost.pop(lane.name, None)
        if self._by_file.get(lane.file) is lane:
            del self._by_file[lane.file]
            self.failures.pop(lane.file, None)
        if self._by_key.get(lane.key) is lane:
            del self._by_key[lane.key]
        return lane

    def next_due(self) -> float | None:
        """Return the time of the next look if nothing changes before."""
        return self._due[0][0] if self._due else None

    def due(self, now: float, limit: int) -> list[str]:
        """Take up to `limit` names to look at now."""
        names: list[str] = []
        while self._due and self._due[0][0] <= now and len(names) < limit:
            when, file = heappop(self._due)
            lane, failure = self._by_file.get(file), self.failures.get(file)
            if lane is not None and lane.due == when:
                lane.due = None
                names.append(file)
            elif failure is not None and failure.due == when:
                names.append(file)
        return names

    def nudge(self, lane: Lane, now: float) -> None:
        """Look at the lane now: all of it is done."""
        lane.due = now
        self._push_due(lane)

    def again(self, lane: Lane, now: float) -> None:
        """Look at a lane again after a pause."""
        lane.wait(now)
        self._push_due(lane)

    def see(self, sights: Iterable[Sight], now: float) -> list[Lane]:
        """Compare the result of a look with the lanes. Return the lanes that may have ended."""
        ended: list[Lane] = []
        for sight in sights:
            lane = self._by_file.get(sight.file)
            if sight.error is not None:
                self.fail(sight.file, sight.error, now)
            elif lane is not None and sight.status is not None and sight.status.key == lane.key:
                self._look_at(lane, sight.status, now, ended)
            else:
                if lane is not None:
                    self._lose(lane)
                self._add_waiting(sight, now)
        return ended

    def give_up(self, scan: int) -> list[Lane]:
        """Close and return the lanes whose file was not found by the scan of that number, which began after the loss."""
        missing = [lane for lane in self._lost.values() if lane.lost is not None and lane.lost < scan and lane.state == "settling"]
        return [self.close(lane) for lane in missing]

    def remove_missing(self, inodes: set[int]) -> list[Entry]:
        """Remove the entries whose file the first scan has not found, and return the entries for the journal.

        A later file is another lane.
        """
        missing = [self._resume.pop(inode) for inode in self._resume.keys() - inodes]
        return [Entry(entry.lane, entry.file, over=True) for entry in missing]

    def _add_waiting(self, sight: Sight, now: float) -> None:
        lane = sight.renamed
        if sight.status is None:
            self.failures.pop(sight.file, None)
        elif lane is not None and lane.name in self._open:
            self.rename(lane, sight.file, now)
        else:
            failure = self.failures.pop(sight.file, None)
            if failure is not None:
                # It is retried. A second failure is not logged as the first.
                self.failures[sight.file] = failure._replace(due=0.0)
            self.waiting.add(Candidate(sight.status.modified, sight.file))

    def rename(self, lane: Lane, file: str, now: float) -> None:
        """Record the new name of the lane's file."""
        if (other := self._by_file.get(file)) is not None:
            self._lose(other)
        if self._by_file.get(lane.file) is lane:
            del self._by_file[lane.file]
        lane.file, lane.lost = file, None
        self._lost.pop(lane.name, None)
        self._by_file[file] = lane
        if lane.state == "settling":
            self.nudge(lane, now)

    def _lose(self, lane: Lane) -> None:
        """Mark the lane as lost: its name leads to another file or to none. The rest of its own file is read while it is open."""
        self._by_file.pop(lane.file, None)
        self._lost[lane.name] = lane
        lane.lost = self.scans
        if lane.state == "settling" and lane.reader is not None:
            self._enqueue(lane, final=True)

    def _look_at(self, lane: Lane, status: Status, now: float, ended: list[Lane]) -> None:
        changed = (status.size, status.modified) != (lane.status.size, lane.status.modified)
        if changed and lane.state != "reading":
            lane.status, lane.since = status, now
        if lane.state != "settling":
            return
        quiet = now >= lane.since + QUIET
        if changed:
            self._enqueue(lane)
        elif not quiet:
            lane.due = lane.since + QUIET
            self._push_due(lane)
        elif lane.status.size > lane.read:
            self._enqueue(lane, final=True)
        elif lane.is_done:
            ended.append(lane)

    def _enqueue(self, lane: Lane, *, final: bool = False) -> None:
        """Mark the lane as readable again. `final`: the text after the last line end is a line too."""
        lane.state, lane.final = "queued", final
        heappush(self._queue, (Candidate(lane.status.modified, lane.file), lane.name))

    def _push_due(self, lane: Lane) -> None:
        if lane.due is not None:
            heappush(self._due, (lane.due, lane.file))
