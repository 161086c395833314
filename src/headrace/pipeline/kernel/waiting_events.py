"""Waiting events in memory, found by key, by leader and by tree in time proportional to the result.

Each event has a slot, in order of arrival. Slots keep their numbers until `compact` drops removed ones.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from headrace.pipeline.kernel.appendable_columns import MIN_CAPACITY, AppendableColumns, AppendableTexts, Column
from headrace.pipeline.kernel.forest import NO_ROW, Flags, Rows
from headrace.pipeline.kernel.key_index import Keys
from headrace.pipeline.kernel.key_runs import KeyRuns
from headrace.pipeline.kernel.state import Columns, no_columns

MAX_GENERATIONS: Final = 64
"""Generations downwards, or pointers upwards, beyond which one pass over all waiting events is faster."""
SCAN_RATIO: Final = 64
"""A generation with more than this fraction of all waiting events is not looked up by key."""

_LOOKUP_ROWS: Final = 131_072
"""Rows whose leaders are looked up in one step, which bounds the memory for it."""


class WaitingEvents:
    """Waiting events, each in a tree. The root's leader does not wait; all others follow an event of the tree."""

    def __init__(self) -> None:
        kinds: dict[str, Any] = {"seq": np.int64, "occurred": np.int64, "since": np.int64, "late": np.bool_, "live": np.bool_}
        kinds |= {"key": (np.uint64, (2,)), "leader": (np.uint64, (2,))}
        # A slot further up in the tree, or the slot itself for a root.
        kinds |= {"up": np.int64}
        self._columns = AppendableColumns(kinds)
        self._ids = AppendableTexts()
        self._live = 0
        self._by_key = KeyRuns()
        self._by_leader = KeyRuns()
        self._indexed = 0  # the first slot without index entries
        self._roots_known = True

    def __len__(self) -> int:
        """Return the number of waiting events."""
        return self._live

    def __getitem__(self, name: str) -> Column:
        """Return a column, by slot."""
        return self._columns[name]

    def slots(self) -> Rows:
        """Return the slots of all waiting events, in order of arrival."""
        return np.flatnonzero(self["live"])

    def slots_of(self, seqs: Rows) -> Rows:
        """Return the slot of each of these events, or NO_ROW if it does not wait."""
        at = np.searchsorted(self["seq"], seqs)
        here: Flags = at < len(self._columns)
        here[here] = (self["seq"][at[here]] == seqs[here]) & self["live"][at[here]]
        return np.where(here, at, NO_ROW)

    def take(self, slots: Rows) -> Columns:
        """Return these events. Returning all of them does not copy."""
        if not len(slots):
            return no_columns()
        rows: Rows | slice = slice(None) if len(slots) == len(self._columns) else slots
        at = self._columns
        columns = (at[name][rows] for name in ("seq", "key", "leader", "occurred", "since", "late"))
        seq, key, leader, occurred, since, late = columns
        return Columns(seq, key, leader, occurred, since, late, self._ids.take(rows))

    def append(self, rows: Columns, *, roots_follow: bool = False) -> Rows:
        """Append events and return their slots. With `roots_follow`, the caller must call `set_roots` for them next."""
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
        """Remove events in whole trees."""
        self["live"][slots] = False
        self._live -= len(slots)

    def compact(self) -> None:
        """Drop removed events if they outnumber the waiting ones. This changes slots."""
        count = len(self._columns)
        if count <= 2 * self._live + MIN_CAPACITY:
            return
        slots = self.slots()
        new = np.full(count, NO_ROW, dtype=np.int64)
        new[slots] = np.arange(len(slots))
        self._columns.keep(slots)
        self._ids.keep(slots)
        self["up"][:] = new[self["up"]]
        self._indexed = int(np.searchsorted(slots, self._indexed))
        self._by_key.renumber(new)
        self._by_leader.renumber(new)

    def update_indexes(self) -> None:
        """Prepare `find`, `followers`, `roots` and `trees`. Fast if all events were added with `set_roots`."""
        fresh = np.arange(self._indexed, len(self._columns))
        self._by_key.add(self["key"][fresh], fresh)
        self._by_leader.add(self["leader"][fresh], fresh)
        self._indexed = len(self._columns)
        if self._roots_known:
            return
        slots = self.slots()
        for start in range(0, len(slots), _LOOKUP_ROWS):
            some = slots[start : start + _LOOKUP_ROWS]
            above = self.find(self["leader"][some])
            self["up"][some] = np.where(above == NO_ROW, some, above)
        self._flatten()
        self._roots_known = True

    def set_roots(self, slots: Rows, roots: Rows) -> None:
        """Assign roots to events that were roots or have just been added."""
        self["up"][slots] = roots

    def find(self, keys: Keys) -> Rows:
        """Return the slot of each key's event, or NO_ROW."""
        result = np.full(len(keys), NO_ROW, dtype=np.int64)
        indexes, slots = self._matches(self._by_key, "key", keys)
        result[indexes] = slots
        return result

    def followers(self, keys: Keys) -> tuple[Rows, Rows]:
        """Return pairs of an index in `keys`, which are distinct, and the slot of an event that follows that key."""
        return self._matches(self._by_leader, "leader", keys)

    def due(self, before: int) -> Rows:
        """Return the roots that have waited since `before` (µs) or longer."""
        slots = np.flatnonzero(self["live"] & (self["since"] <= before))
        roots: Rows = slots[self["up"][slots] == slots]
        return roots

    def roots(self, slots: Rows) -> Rows:
        """Return the root of each slot."""
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
        """Return the slots of all events in the trees of these roots, which are distinct, in order of arrival."""
        parts, generation = [roots], roots
        for _ in range(MAX_GENERATIONS):
            if not len(generation):
                return np.sort(np.concatenate(parts))
            if len(generation) * SCAN_RATIO > len(self):
                break
            _, generation = self.followers(self["key"][generation])
            parts.append(generation)
        self._flatten()
        is_root = np.zeros(len(self._columns), dtype=np.bool_)
        is_root[roots] = True
        return np.flatnonzero(is_root[self["up"]] & self["live"])

    def _matches(self, runs: KeyRuns, name: str, keys: Keys) -> tuple[Rows, Rows]:
        indexes, slots = runs.candidates(keys)
        same = self["live"][slots] & (self[name][slots] == keys[indexes]).all(axis=1)
        return indexes[same], slots[same]

    def _flatten(self) -> None:
        """Point all events to their roots."""
        up = self["up"]
        while True:
            further = up[up]
            if (further == up).all():
                return
            up[:] = further
