"""The ordering of a scope by whole batches: the rules of `core.ordering.causal_order`, in columns instead of one event at a time.

Invariant: one step offers a batch and advances the time, and releases, marks and holds exactly the events that the core
would after `offer` and `expire`. Only the order within one step differs. The core's order is that of arrival, tree by
tree. Here it is (eff, depth, occurred, id), where `eff` is the latest `occurred` of an event and those above it. In
both, a leader precedes its followers, and siblings and members of a cycle are ordered by (occurred, id). The order here
does not depend on the arrival of the events, so a history can be cut into ranges of it.

A cycle is cut at each of its members, and a lost leader at each of its followers; all of these become roots with a
mark. No recursion.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.kernel.arrivals import Arrivals
from headrace.pipeline.kernel.contraction import contract
from headrace.pipeline.kernel.forest import NO_ROW, Flags, Resolved, Rows, in_order, resolve
from headrace.pipeline.kernel.given_up_leaders import GivenUpLeaders
from headrace.pipeline.kernel.key_index import KeyIndex
from headrace.pipeline.kernel.segments import Changes, Entries, Segments
from headrace.pipeline.kernel.state import Columns, KernelState
from headrace.pipeline.kernel.waiting_events import WaitingEvents
from headrace.wire.pipelines.packed_events import MARKS

LOST_CODE, LATE_CODE, CYCLE_CODE = 1, 2, 3
MarkCodes: TypeAlias = npt.NDArray[np.int8]

SUBSET_RATIO: Final = 8
"""Waiting events per arrival from which a step only visits the trees that the batch affects; measured."""

PREFIX: Final = "order/"
"""Prefix of the keys of a kernel's durable state."""
_TOTALS_KEY: Final = f"{PREFIX}totals"
_GIVEN_UP: Final = f"{PREFIX}given_up/"
_KEY_PREFIXES: Final = (f"{PREFIX}w/", f"{PREFIX}d/", f"{_GIVEN_UP}w/", f"{_GIVEN_UP}d/")
_VERSION: Final = 1
_TOTALS: Final = struct.Struct("<Bqqqqq")
"""Version, position, head, lost, late, cycles."""


class KernelResult(NamedTuple):
    """Events to handle now, in this order: their seqs, the codes of their marks, and their waiting times (µs)."""

    seqs: Rows
    marks: MarkCodes
    waited: Rows

    def mark_column(self) -> pa.Array:
        """Return the marks as text, null if there is none."""
        return mark_column(self.marks)


def mark_column(codes: MarkCodes) -> pa.Array:
    """Return the marks of these codes, null if there is none."""
    return pa.array(MARKS, pa.string()).take(pa.array(codes))


class Kernel:
    """The ordering of one scope, a batch at a time. `lookback` and `now` are µs of the scope time, which never decreases.

    `position` is the number of released events, `head` the last seq taken; `lost`, `late` and `cycles` are counters.
    """

    def __init__(self, lookback: int, state: KernelState | None = None) -> None:
        state = KernelState.empty() if state is None else state
        self.lookback = lookback
        self.position, self.head, self.lost, self.late, self.cycles = state.totals
        self._waiting = WaitingEvents()
        self._given_up = GivenUpLeaders(_GIVEN_UP, state.given_up)
        self._segments = Segments(PREFIX)
        self._append(state.waiting, np.arange(len(state.waiting)))
        self._stored_totals: bytes | None = None

    @classmethod
    def of_snapshot(cls, snapshot: bytes, lookback: int) -> Kernel:
        """Return the ordering of a snapshot, taken by a kernel or by the pure core. The lookback may differ."""
        return cls(lookback, KernelState.unpack(snapshot))

    def snapshot(self) -> bytes:
        """Return the whole state, in the form of the pure core."""
        return KernelState(self._totals, self.waiting, self._given_up.keys).pack()

    @classmethod
    def restore(cls, entries: Entries, lookback: int) -> Kernel:
        """Return the ordering from the `changes` that were stored. Keys without PREFIX are ignored.

        The lookback may differ. Without entries, it is the ordering of a new scope.

        Raises:
            ValueError: The entries are not a complete state of this version.
        """
        entries = {key: value for key, value in entries.items() if key.startswith(PREFIX)}
        restored = cls(lookback)
        if not entries:
            return restored
        _check(entries)
        restored._stored_totals = entries[_TOTALS_KEY]
        _, restored.position, restored.head, restored.lost, restored.late, restored.cycles = _TOTALS.unpack(restored._stored_totals)
        restored._given_up = GivenUpLeaders.restore(_GIVEN_UP, entries)

        def unpack(value: bytes, _: int) -> Rows:
            rows = Columns.unpack(value)
            restored._waiting.append(rows)
            return rows.seq

        restored._segments = Segments.restore(PREFIX, entries, unpack)
        restored._waiting.remove(np.flatnonzero(~restored._segments.live()))
        restored._waiting.compact()
        return restored

    def changes(self) -> Changes:
        """Return the changes since the last call: values by key, or None to delete a key."""
        out = {**self._segments.changes(self._packed), **self._given_up.changes()}
        totals = _TOTALS.pack(_VERSION, *self._totals)
        if totals != self._stored_totals:
            out[_TOTALS_KEY] = self._stored_totals = totals
        return out

    def __len__(self) -> int:
        """Return the number of waiting events."""
        return len(self._waiting)

    @property
    def waiting(self) -> Columns:
        """All waiting events, in order of arrival. Copying them takes time for each."""
        return self._waiting.take(self._waiting.slots())

    @property
    def lowest(self) -> int | None:
        """The lowest waiting seq, or None."""
        return int(self._waiting["seq"][self._waiting["live"].argmax()]) if len(self) else None

    def waits(self, seqs: Rows) -> Flags:
        """Return which of these seqs wait."""
        return np.asarray(self._waiting.slots_of(seqs) != NO_ROW)

    def oldest(self, count: int) -> tuple[Rows, Rows]:
        """Return the seqs of the `count` longest-waiting events, and the times when they began to wait."""
        slots = self._waiting.slots()[:count]
        return self._waiting["seq"][slots], self._waiting["since"][slots]

    def step(self, events: pa.Table, now: int) -> KernelResult:
        """Take a batch (seq, key, leader_key, leader_seq, occurred, id of LOG_SCHEMA) at scope time `now`; return the released events.

        An event that was seen before (by its seq, or by a waiting key) changes nothing.
        """
        arrivals = Arrivals.of_log(events, self.head, now)
        subset = len(arrivals.rows) * SUBSET_RATIO <= len(self._waiting)
        step = self._step_subset(arrivals, now) if subset else self._step_full(arrivals, now)
        self._waiting.compact()
        return step

    def _step_full(self, arrivals: Arrivals, now: int) -> KernelResult:
        """Process all waiting events."""
        slots = self._waiting.slots()
        old = len(slots)
        offered = arrivals.after(self._waiting.take(slots))
        index = KeyIndex(offered.rows.key)
        if not (first := index.first()).all():
            offered = offered.take(np.flatnonzero(first))
            index = KeyIndex(offered.rows.key)
        self._accept(offered.rows, old)
        step, free = self._release(offered, index, now)
        self._remove(slots[free[:old]])
        self._append(offered.rows, old + np.flatnonzero(~free[old:]))
        return step

    def _step_subset(self, arrivals: Arrivals, now: int) -> KernelResult:
        """Process only the waiting trees that the arrivals or the time release: same result, much faster for small batches."""
        waiting = self._waiting
        waiting.update_indexes()
        first = KeyIndex(arrivals.rows.key).first()
        arrivals = arrivals.take(np.flatnonzero(first & (waiting.find(arrivals.rows.key) == NO_ROW)))
        self._accept(arrivals.rows, 0)
        forest, count = contract(waiting, arrivals, self.lookback, now), len(arrivals.rows)
        free, bound = forest.free[:count], np.flatnonzero(~forest.free)
        slots = waiting.trees(forest.slots[forest.free[count:]])
        offered = arrivals.take(np.flatnonzero(free)).after(waiting.take(slots))
        step, _ = self._release(offered, KeyIndex(offered.rows.key), now)
        self._remove(slots)
        nodes = np.concatenate([np.full(count, NO_ROW, dtype=np.int64), forest.slots])
        nodes[:count][~free] = self._append(arrivals.rows, np.flatnonzero(~free), roots_follow=True)
        waiting.set_roots(nodes[bound], nodes[forest.root[bound]])
        return step

    def _accept(self, rows: Columns, old: int) -> None:
        """Count the rows after the first `old` as taken, and mark the late ones. None of them is a copy."""
        if old == len(rows):
            return
        self.head = max(self.head, int(rows.seq[old:].max()))
        late = self._given_up.remove(rows.key[old:])
        if late.any():
            rows.late[old:] = late
            self.late += int(late.sum())

    def _release(self, offered: Arrivals, index: KeyIndex, now: int) -> tuple[KernelResult, Flags]:
        """Return the events that need not wait, in order, and their flags. `offered` has whole trees."""
        rows = offered.rows
        above, missing = offered.above(index)
        blocked = missing & ~offered.known
        resolved = resolve(above, rows.occurred)
        due = blocked & (rows.since + self.lookback <= now)
        free = (~blocked | due)[resolved.root]
        self._count(rows, resolved, due, int(free.sum()))
        marks = _marks(rows.late, due, resolved.on_cycle)
        return _released(rows, resolved, np.flatnonzero(free), marks, now), free

    def _remove(self, slots: Rows) -> None:
        if len(slots):
            self._segments.remove(self._waiting["seq"][slots])
            self._waiting.remove(slots)

    def _append(self, rows: Columns, which: Rows, *, roots_follow: bool = False) -> Rows:
        """Add these rows to the waiting events; return their slots."""
        if not len(which):
            return which
        left = rows.take(which)
        self._segments.append(left.seq)
        return self._waiting.append(left, roots_follow=roots_follow)

    @property
    def _totals(self) -> tuple[int, int, int, int, int]:
        return self.position, self.head, self.lost, self.late, self.cycles

    def _packed(self, seqs: Rows) -> bytes:
        return self._waiting.take(self._waiting.slots_of(seqs)).pack()

    def _count(self, rows: Columns, resolved: Resolved, due: Flags, released: int) -> None:
        self.position += released
        self.cycles += resolved.cycles
        lost = np.flatnonzero(due)
        if not len(lost):
            return
        self.lost += len(lost)
        self._given_up.add(rows.leader[lost[np.argsort(rows.seq[lost])]])


def _check(entries: Entries) -> None:
    """Raise ValueError unless all entries have keys and totals of this version."""
    for key in entries:
        if key != _TOTALS_KEY and not key.startswith(_KEY_PREFIXES):
            raise ValueError(f"{key} is not known to this version of headrace.")
    totals = entries.get(_TOTALS_KEY)
    if totals is None:
        raise ValueError(f"There is no {_TOTALS_KEY} beside the other keys.")
    if len(totals) != _TOTALS.size or totals[0] != _VERSION:
        raise ValueError(f"{_TOTALS_KEY} is of another version.")


def _marks(late: Flags, due: Flags, on_cycle: Flags) -> MarkCodes:
    marks = np.where(late, np.int8(LATE_CODE), np.int8(0))
    marks[due] = LOST_CODE
    marks[on_cycle] = CYCLE_CODE
    return marks


def _released(rows: Columns, resolved: Resolved, free: Rows, marks: MarkCodes, now: int) -> KernelResult:
    """Return the free rows in order."""
    ids = rows.id if len(free) == len(rows) else rows.id.take(pa.array(free))
    order = free[in_order(resolved.eff[free], resolved.depth[free], rows.occurred[free], ids, rows.seq[free])]
    return KernelResult(rows.seq[order], marks[order], now - rows.since[order])
