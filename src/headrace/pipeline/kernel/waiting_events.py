"""The events that wait, in memory: found by key, by leader and by tree in time for what is found.

Each event has a slot, in order of arrival. A slot keeps its number until `compact` drops those that were removed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.pipeline.kernel.forest import NOBODY, Flags, Rows
from headrace.pipeline.kernel.growing import MIN_CAPACITY, Column, GrowingColumns, GrowingTexts
from headrace.pipeline.kernel.key_index import Keys
from headrace.pipeline.kernel.key_runs import KeyRuns
from headrace.pipeline.kernel.state import Columns, no_columns

MAX_GENERATIONS: Final = 64
"""After so many generations downwards, or pointers upwards, one pass over all that waits is quicker."""
SCAN_RATIO: Final = 64
"""A generation that has more than one in so many of all that waits is not looked up key by key."""

_AT_ONCE: Final = 131_072
"""Rows whose leaders are looked up at a time, which bounds the memory for it."""


class WaitingEvents:
    """Events that wait, each in a tree. The root of a tree follows an event that does not wait; the others follow one another."""

    def __init__(self) -> None:
        kinds: dict[str, Any] = {"seq": np.int64, "occurred": np.int64, "since": np.int64, "late": np.bool_, "live": np.bool_}
        kinds |= {"key": (np.uint64, (2,)), "leader": (np.uint64, (2,))}
        # Some slot further up in the tree: the slot itself for a root.
        kinds |= {"up": np.int64}
        self._columns = GrowingColumns(kinds)
        self._ids = GrowingTexts()
        self._live = 0
        self._by_key = KeyRuns()
        self._by_leader = KeyRuns()
        self._indexed = 0  # the first slot that is in no index yet
        self._roots_known = True

    def __len__(self) -> int:
        """How many events wait."""
        return self._live

    def __getitem__(self, name: str) -> Column:
        """Return a column, by slot."""
        return self._columns[name]

    def slots(self) -> Rows:
        """Return the slots of all that waits, in order of arrival."""
        return np.flatnonzero(self["live"])

    def slots_of(self, seqs: Rows) -> Rows:
        """Return the slot of each of these events; NOBODY for one that does not wait."""
        at = np.searchsorted(self["seq"], seqs)
        here: Flags = at < len(self._columns)
        here[here] = (self["seq"][at[here]] == seqs[here]) & self["live"][at[here]]
        return np.where(here, at, NOBODY)

    def take(self, slots: Rows) -> Columns:
        """Return these events; all of them without a copy."""
        if not len(slots):
            return no_columns()
        rows: Rows | slice = slice(None) if len(slots) == len(self._columns) else slots
        at = self._columns
        columns = (at[name][rows] for name in ("seq", "key", "leader", "occurred", "since", "late"))
        seq, key, leader, occurred, since, late = columns
        return Columns(seq, key, leader, occurred, since, late, self._ids.take(rows))

    def append(self, rows: Columns, *, roots_follow: bool = False) -> Rows:
        """Add events after all others, and return their slots. With `roots_follow`, the caller calls `set_roots` for them next."""
        start = len(self._columns)
        slots = np.arange(start, start + len(rows))
        self._columns.append(
            seq=rows.seq,
            key=rows.key,
            leader=rows.leader,
            occurred=rows.occurred,
            since=rows.since,
            late=rows.late,
            live=np.ones(len(rows), dtype=np.bool_),
            up=slots,
        )
        self._ids.append(rows.id)
        self._live += len(rows)
        self._roots_known = self._roots_known and roots_follow
        return slots

    def remove(self, slots: Rows) -> None:
        """Remove events: whole trees."""
        self["live"][slots] = False
        self._live -= len(slots)

    def compact(self) -> None:
        """Drop removed events where they are more than those that wait; the slots of these change."""
        count = len(self._columns)
        if count <= 2 * self._live + MIN_CAPACITY:
            return
        slots = self.slots()
        new = np.full(count, NOBODY, dtype=np.int64)
        new[slots] = np.arange(len(slots))
        self._columns.keep(slots)
        self._ids.keep(slots)
        self["up"][:] = new[self["up"]]
        self._indexed = int(np.searchsorted(slots, self._indexed))
        self._by_key.renumber(new)
        self._by_leader.renumber(new)

    def update_indexes(self) -> None:
        """Make ready for `find`, `followers`, `roots` and `trees`: quick where no events were added without `set_roots`."""
        fresh = np.arange(self._indexed, len(self._columns))
        self._by_key.add(self["key"][fresh], fresh)
        self._by_leader.add(self["leader"][fresh], fresh)
        self._indexed = len(self._columns)
        if self._roots_known:
            return
        slots = self.slots()
        for start in range(0, len(slots), _AT_ONCE):
            some = slots[start : start + _AT_ONCE]
            above = self.find(self["leader"][some])
            self["up"][some] = np.where(above == NOBODY, some, above)
        self._flatten()
        self._roots_known = True

    def set_roots(self, slots: Rows, roots: Rows) -> None:
        """Say that events that were roots, or were just added, are in the trees of these roots, or are roots themselves."""
        self["up"][slots] = roots

    def find(self, keys: Keys) -> Rows:
        """Return the slot of the event that has each key, or NOBODY."""
        found = np.full(len(keys), NOBODY, dtype=np.int64)
        places, slots = self._matches(self._by_key, "key", keys)
        found[places] = slots
        return found

    def followers(self, keys: Keys) -> tuple[Rows, Rows]:
        """Return pairs of a place in `keys`, which are distinct, and the slot of an event that follows that key."""
        return self._matches(self._by_leader, "leader", keys)

    def due(self, before: int) -> Rows:
        """Return the roots that have waited since `before` (µs), or longer."""
        slots = np.flatnonzero(self["live"] & (self["since"] <= before))
        roots: Rows = slots[self["up"][slots] == slots]
        return roots

    def roots(self, slots: Rows) -> Rows:
        """Return the root of each of these."""
        up = self["up"]
        at = up[slots]
        for _ in range(MAX_GENERATIONS):
            further = up[at]
            if (further == at).all():
                up[slots] = at
                return at
            at = further
        self._flatten()
        return up[slots]

    def trees(self, roots: Rows) -> Rows:
        """Return the slots of these roots, which are distinct, and of all in their trees, in order of arrival."""
        found, generation = [roots], roots
        for _ in range(MAX_GENERATIONS):
            if not len(generation):
                return np.sort(np.concatenate(found))
            if len(generation) * SCAN_RATIO > len(self):
                break
            _, generation = self.followers(self["key"][generation])
            found.append(generation)
        self._flatten()
        wanted = np.zeros(len(self._columns), dtype=np.bool_)
        wanted[roots] = True
        return np.flatnonzero(wanted[self["up"]] & self["live"])

    def _matches(self, runs: KeyRuns, name: str, keys: Keys) -> tuple[Rows, Rows]:
        places, slots = runs.candidates(keys)
        same = self["live"][slots] & (self[name][slots] == keys[places]).all(axis=1)
        return places[same], slots[same]

    def _flatten(self) -> None:
        """Point all events to their roots."""
        up = self["up"]
        while True:
            further = up[up]
            if (further == up).all():
                return
            up[:] = further
