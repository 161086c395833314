"""The files of a folder that wait to be read, the oldest change first, then by name: plain data, bounded.

A folder may have more files than this list can contain. The files that changed last are then omitted, and a later
scan finds them: `needs_scan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, merge
from itertools import islice
from typing import Final, NamedTuple

MAX_WAITING: Final = 50_000
RUN: Final = 2_048


class Candidate(NamedTuple):
    """A file to read: the time of its last change, in nanoseconds since 1970, and its name."""

    modified: int
    file: str


class Selection:
    """Sort any number of candidates in small steps, and retain the first `limit` of them."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        self._runs: list[list[Candidate]] = []
        self._run: list[Candidate] = []
        self._count = 0
        self.cut: Candidate | None = None

    def add(self, candidate: Candidate) -> None:
        """Add a file, unless it comes after `cut`."""
        if self.cut is not None and candidate > self.cut:
            return
        self._run.append(candidate)
        if len(self._run) == RUN:
            self._run.sort()
            self._runs.append(self._run)
            self._count += RUN
            self._run = []

    def steps(self) -> Iterator[None]:
        """Sort the added files. Each step is short, so that no other thread waits long. Call it when `is_full`, and at the end."""
        self._run.sort()
        self._runs.append(self._run)
        self._count += len(self._run)
        retained: list[Candidate] = []
        ordered = merge(*self._runs)
        while part := list(islice(ordered, min(RUN, self._limit - len(retained)))):
            retained += part
            yield
        if self._count > len(retained):
            self.cut = retained[-1]
        self._runs, self._run, self._count = [retained], [], len(retained)

    def first(self, count: int) -> list[Candidate]:
        """Return the first files of those added so far. Call it while no step runs."""
        return list(islice(merge(*self._runs, sorted(self._run)), count))

    @property
    def is_full(self) -> bool:
        """Return whether to drop the files after the first `limit`."""
        return self._count >= 2 * self._limit

    @property
    def selected(self) -> list[Candidate]:
        """Return the first `limit` added files, in order, once `steps` has run."""
        return self._runs[0] if self._runs else []


class Waiting:
    """The candidates. A name may be returned twice."""

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        self._sorted: list[Candidate] = []
        self._next = 0
        self._late: list[Candidate] = []
        self._names: set[str] = set()
        self._cut: Candidate | None = None

    @property
    def needs_scan(self) -> bool:
        """Return whether files were omitted, and there is room for them now."""
        return self._cut is not None and len(self) <= self._limit // 4

    def __len__(self) -> int:
        return len(self._sorted) - self._next + len(self._late)

    def begin_scan(self) -> None:
        """Omit nothing from now on: a running scan may already have passed it."""
        self._cut = None

    def end_scan(self, selection: Selection) -> None:
        """Take the result of the scan. Files added since its start remain."""
        self._sorted, self._next = selection.selected, 0
        if selection.cut is not None:
            self._cut = selection.cut if self._cut is None else min(self._cut, selection.cut)

    def add(self, candidate: Candidate) -> None:
        """Add a new or changed file."""
        if candidate.file in self._names or (self._cut is not None and candidate > self._cut):
            return
        if len(self._late) >= self._limit:
            self._cut = min(self._cut or candidate, candidate)
            return
        self._names.add(candidate.file)
        heappush(self._late, candidate)

    def first(self) -> Candidate | None:
        """Return the first file without removing it."""
        late = self._late[0] if self._late else None
        if self._next == len(self._sorted):
            return late
        candidate = self._sorted[self._next]
        return candidate if late is None or candidate <= late else late

    def pop(self) -> Candidate | None:
        """Remove and return the first file."""
        candidate = self.first()
        if candidate is None:
            return None
        if self._late and candidate is self._late[0]:
            heappop(self._late)
            self._names.discard(candidate.file)
        else:
            self._next += 1
            if self._next == len(self._sorted):
                self._sorted, self._next = [], 0
        return candidate
