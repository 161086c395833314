"""The files of a folder that wait to be read, the one that changed longest ago first, then by name: plain data, bounded.

A folder may have more files than are kept here. Those that changed last are then left out, and a later scan finds them: `wants_scan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, merge
from itertools import islice
from typing import Final, NamedTuple

MAX_WAITING: Final = 50_000
RUN: Final = 2_048


class Candidate(NamedTuple):
    """A file to read: when it was changed last, in nanoseconds since 1970, and its name."""

    modified: int
    file: str


class Selection:
    """Sorts any number of candidates in small steps, and keeps the first `most` of them."""

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._runs: list[list[Candidate]] = []
        self._run: list[Candidate] = []
        self._count = 0
        self.cut: Candidate | None = None

    def add(self, candidate: Candidate) -> None:
        """Add one; those that come after `cut` are left out."""
        if self.cut is not None and candidate > self.cut:
            return
        self._run.append(candidate)
        if len(self._run) == RUN:
            self._run.sort()
            self._runs.append(self._run)
            self._count += RUN
            self._run = []

    def steps(self) -> Iterator[None]:
        """Sort what was added; a step is short, so that no other thread is kept waiting. Call it whenever `is_full`, and at the end."""
        self._run.sort()
        self._runs.append(self._run)
        self._count += len(self._run)
        kept: list[Candidate] = []
        ordered = merge(*self._runs)
        while part := list(islice(ordered, min(RUN, self._most - len(kept)))):
            kept += part
            yield
        if self._count > len(kept):
            self.cut = kept[-1]
        self._runs, self._run, self._count = [kept], [], len(kept)

    def first(self, count: int) -> list[Candidate]:
        """Return the first so many of what was added until now, while no step is under way."""
        return list(islice(merge(*self._runs, sorted(self._run)), count))

    @property
    def is_full(self) -> bool:
        """Whether it is time to drop what comes after the first `most`."""
        return self._count >= 2 * self._most

    @property
    def kept(self) -> list[Candidate]:
        """The first `most` of what was added, in order, once `steps` has run."""
        return self._runs[0] if self._runs else []


class Waiting:
    """The candidates; a name may come out twice."""

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._sorted: list[Candidate] = []
        self._next = 0
        self._late: list[Candidate] = []
        self._names: set[str] = set()
        self._cut: Candidate | None = None

    @property
    def wants_scan(self) -> bool:
        """Whether files were left out, and there is room for them now."""
        return self._cut is not None and len(self) <= self._most // 4

    def __len__(self) -> int:
        return len(self._sorted) - self._next + len(self._late)

    def begin_scan(self) -> None:
        """Leave nothing out from now on: a scan that has begun may have passed it already."""
        self._cut = None

    def end_scan(self, selection: Selection) -> None:
        """Take what the scan has found; what came since it began stays."""
        self._sorted, self._next = selection.kept, 0
        if selection.cut is not None:
            self._cut = selection.cut if self._cut is None else min(self._cut, selection.cut)

    def add(self, candidate: Candidate) -> None:
        """Add a file that has just come, or changed."""
        if candidate.file in self._names or (self._cut is not None and candidate > self._cut):
            return
        if len(self._late) >= self._most:
            self._cut = min(self._cut or candidate, candidate)
            return
        self._names.add(candidate.file)
        heappush(self._late, candidate)

    def first(self) -> Candidate | None:
        """Return the first one, which stays."""
        late = self._late[0] if self._late else None
        if self._next == len(self._sorted):
            return late
        found = self._sorted[self._next]
        return found if late is None or found <= late else late

    def pop(self) -> Candidate | None:
        """Take the first one."""
        found = self.first()
        if found is None:
            return None
        if self._late and found is self._late[0]:
            heappop(self._late)
            self._names.discard(found.file)
        else:
            self._next += 1
            if self._next == len(self._sorted):
                self._sorted, self._next = [], 0
        return found
