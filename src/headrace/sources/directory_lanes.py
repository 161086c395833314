"""The lanes of a folder, as plain data: what is to be read next, what has ended, what is gone. No files, no clock, no loop.

    queued ─take─► reading ─at_end─► settling ─look─► queued again (it grew; or its last line has no line end)
                      │                     └─look─► ended (quiet, and all of it advanced)
                      └─fail─► stuck ─look─► queued again (it changed)

Law: a lane's name never comes twice; a file that comes again under a name that was used gets a lane `name~2`, `name~3`, …
A lane ends only when its file has kept its size for `QUIET` seconds, was read to that size, and was advanced that far.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Literal, NamedTuple

from headrace.sources.directory_journal import Entry, Identity

QUIET: Final = 1.0
State = Literal["queued", "reading", "settling", "stuck"]


class Found(NamedTuple):
    """A file as it was found in the folder."""

    file: str
    identity: Identity


@dataclass(slots=True, eq=False)
class Lane:
    """One file on its way. Offsets in bytes: `read` up to here, `owed` is the end of the last line handed out, `advanced` what is done.

    `held`: a line failed, and what is done ends before it. `last` and `committed` say where the last line handed out, and the last one
    that is done, start.
    """

    name: str
    found: Found
    read: int
    owed: int
    advanced: int
    since: float
    state: State = "queued"
    final: bool = False
    held: bool = False
    last: int | None = None
    committed: int | None = None

    @property
    def size(self) -> int:
        """The size of the file, when it was last looked at."""
        return self.found.identity.size

    @property
    def end(self) -> int | None:
        """Where the lane's last line starts, once the file has been read to its end; until then its size, which is behind that."""
        return self.last if self.state == "settling" else self.size

    def settled(self, now: float) -> bool:
        """Tell whether the file has been read to its end, and has kept its size since then, long enough."""
        return self.state == "settling" and now >= self.since + QUIET


@dataclass(slots=True)
class Look:
    """What a look at the folder came to: lanes that have `ended`, lanes whose file is `gone`, and when (at the latest) to look again."""

    ended: list[Lane] = field(default_factory=list)
    gone: list[Lane] = field(default_factory=list)
    again: float | None = None


class Lanes:
    """All lanes that are open, and the names of all that ever were."""

    def __init__(self, entries: Iterable[Entry] = (), used: Iterable[str] = ()) -> None:
        self._names = set(used)
        self._resume: dict[str, Entry] = {}
        self._open: dict[str, Lane] = {}
        self._by_file: dict[str, Lane] = {}
        self._queue: list[tuple[int, str, str]] = []
        for entry in entries:
            self._names.add(entry.lane)
            if not entry.moved:
                self._resume[entry.file] = entry

    def get(self, name: str) -> Lane | None:
        """Return the open lane of that name."""
        return self._open.get(name)

    def take(self) -> Lane | None:
        """Return the lane to read next (the file changed longest ago, then by name), or None; it is `reading` until told otherwise."""
        while self._queue:
            lane = self._open.get(heappop(self._queue)[-1])
            if lane is not None and lane.state == "queued":
                lane.state = "reading"
                return lane
        return None

    def at_end(self, lane: Lane, read: int, now: float) -> None:
        """The reader has come to the end of the file; its last whole line ends at `read`."""
        lane.read, lane.state, lane.since = read, "settling", now

    def fail(self, lane: Lane) -> None:
        """The file could not be read: leave it alone until it changes."""
        lane.state = "stuck"

    def look(self, found: Iterable[Found], now: float) -> Look:
        """Compare the folder with the lanes."""
        look = Look()
        here = sorted(found, key=lambda one: (one.identity.modified_ns, one.file))
        for file in self._by_file.keys() - {one.file for one in here}:
            look.gone.append(self._close(self._by_file[file]))
        for one in here:
            self._look_at(one, now, look)
        return look

    def forget_missing(self) -> list[Entry]:
        """Forget, and return, the unfinished entries whose file the first look did not find: what comes under that name is another file."""
        missing = [entry for entry in self._resume.values() if entry.ended is None]
        self._resume.clear()
        return missing

    def _look_at(self, one: Found, now: float, look: Look) -> None:
        lane = self._by_file.get(one.file)
        if lane is not None and (one.identity.inode != lane.found.identity.inode or one.identity.size < lane.read):
            look.gone.append(self._close(lane))
            lane = None
        if lane is None:
            self._begin(one, now, look)
            return
        if one.identity != lane.found.identity:
            lane.found, lane.since = one, now
            if lane.state in ("settling", "stuck") and lane.size > lane.read:
                self._enqueue(lane)
        if lane.settled(now) and lane.size > lane.read:
            self._enqueue(lane, final=True)
        elif lane.settled(now) and lane.advanced >= lane.owed:
            look.ended.append(self._close(lane))
        elif lane.state == "settling" and now < lane.since + QUIET:
            due = lane.since + QUIET
            look.again = due if look.again is None else min(look.again, due)

    def _begin(self, one: Found, now: float, look: Look) -> None:
        """Open a lane for a file that is new here, or known from before the last stop."""
        entry = self._resume.pop(one.file, None)
        if entry is not None and entry.ended == one.identity:
            look.ended.append(_resumed(entry, one, now))
            return
        if entry is not None and entry.ended is None and entry.at <= one.identity.size:
            lane = _resumed(entry, one, now)
        else:
            lane = Lane(self._new_name(one.file), one, 0, 0, 0, now)
        self._open[lane.name] = self._by_file[one.file] = lane
        self._enqueue(lane)

    def _enqueue(self, lane: Lane, *, final: bool = False) -> None:
        lane.state, lane.final = "queued", final
        heappush(self._queue, (lane.found.identity.modified_ns, lane.found.file, lane.name))

    def _close(self, lane: Lane) -> Lane:
        del self._open[lane.name]
        del self._by_file[lane.found.file]
        return lane

    def _new_name(self, file: str) -> str:
        name, number = file, 1
        while name in self._names:
            number += 1
            name = f"{file}~{number}"
        self._names.add(name)
        return name


def _resumed(entry: Entry, found: Found, now: float) -> Lane:
    return Lane(entry.lane, found, entry.at, entry.at, entry.at, now, last=entry.last, committed=entry.last)
