"""The ordering of a scope by whole batches: the law of `core.ordering.causal_order`, in columns instead of one event at a time.

One step offers a batch and lets time pass, and releases, marks and keeps exactly what the core would after `offer` and `expire`. Only
the order within one step is another: the core's is that of arrival, tree by tree; here it is (eff, depth, occurred, id), where `eff` is
the latest `occurred` over an event and those above it. In both a leader comes before its followers, and siblings, and the members of
a cycle, by (occurred, id). This one does not depend on how the events came, and a history can be cut into ranges of it.

A cycle is cut at each of its members and a lost leader at each of its followers; both become roots with a mark. Nothing recurs.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.ordering.causal_order import CYCLE, LATE, LOST
from headrace.pipeline.kernel.arrivals import Arrivals
from headrace.pipeline.kernel.contraction import contract
from headrace.pipeline.kernel.forest import NOBODY, Climbed, Flags, Rows, climb, in_order
from headrace.pipeline.kernel.given_up_leaders import GivenUpLeaders
from headrace.pipeline.kernel.key_index import KeyIndex
from headrace.pipeline.kernel.segments import Changes, Entries, Segments
from headrace.pipeline.kernel.state import Columns, KernelState
from headrace.pipeline.kernel.waiting_events import WaitingEvents

MARKS: Final = (None, LOST, LATE, CYCLE)
"""What a mark's code stands for."""
LOST_CODE, LATE_CODE, CYCLE_CODE = 1, 2, 3
MarkCodes: TypeAlias = npt.NDArray[np.int8]

SUBSET_RATIO: Final = 8
"""Waiting events for each arrival, from which on a step runs over the trees that the batch affects alone; measured."""

PREFIX: Final = "order/"
"""How the keys of a kernel's durable state begin."""
_TOTALS_KEY: Final = f"{PREFIX}totals"
_GIVEN_UP: Final = f"{PREFIX}given_up/"
_PLACES: Final = (f"{PREFIX}w/", f"{PREFIX}d/", f"{_GIVEN_UP}w/", f"{_GIVEN_UP}d/")
_VERSION: Final = 1
_TOTALS: Final = struct.Struct("<Bqqqqq")
"""Version, position, head, lost, late, cycles."""


class Step(NamedTuple):
    """Events to handle now, in this order: their seqs, the codes of their marks, and how long each waited (µs)."""

    seqs: Rows
    marks: MarkCodes
    waited: Rows

    def mark_column(self) -> pa.Array:
        """Return the marks as texts, null for none."""
        return mark_column(self.marks)


def mark_column(codes: MarkCodes) -> pa.Array:
    """Return the marks that `codes` stand for, null for none."""
    return pa.array(MARKS, pa.string()).take(pa.array(codes))


class Kernel:
    """The ordering of one scope, a batch at a time. `lookback` and `now` are µs on the scope's clock, which never goes back.

    `position` is how many events were released so far, `head` the last seq taken; `lost`, `late` and `cycles` are counts.
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
        """Return the ordering that `snapshot` was taken of, by a kernel or by the pure core; the lookback may be another."""
        return cls(lookback, KernelState.unpack(snapshot))

    def snapshot(self) -> bytes:
        """Return the whole state, as the pure core would write it."""
        return KernelState(self._totals, self.waiting, self._given_up.keys).pack()

    @classmethod
    def restore(cls, entries: Entries, lookback: int) -> Kernel:
        """Return the ordering whose `changes` the entries are; keys that do not begin with PREFIX are passed over.

        The lookback may be another. Without entries it is the ordering of a scope that has seen nothing.

        Raises:
            ValueError: The entries are not a whole state of this version.
        """
        entries = {key: value for key, value in entries.items() if key.startswith(PREFIX)}
        made = cls(lookback)
        if not entries:
            return made
        _check(entries)
        made._stored_totals = entries[_TOTALS_KEY]
        _, made.position, made.head, made.lost, made.late, made.cycles = _TOTALS.unpack(made._stored_totals)
        made._given_up = GivenUpLeaders.restore(_GIVEN_UP, entries)

        def unpack(value: bytes, _: int) -> Rows:
            rows = Columns.unpack(value)
            made._waiting.append(rows)
            return rows.seq

        made._segments = Segments.restore(PREFIX, entries, unpack)
        made._waiting.remove(np.flatnonzero(~made._segments.live()))
        made._waiting.compact()
        return made

    def changes(self) -> Changes:
        """Return the changes since the last call: values by key, None to delete one."""
        out = {**self._segments.changes(self._packed), **self._given_up.changes()}
        totals = _TOTALS.pack(_VERSION, *self._totals)
        if totals != self._stored_totals:
            out[_TOTALS_KEY] = self._stored_totals = totals
        return out

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    @property
    def waiting(self) -> Columns:
        """All that waits, in order of arrival: a copy of it takes time for all of it."""
        return self._waiting.take(self._waiting.slots())

    @property
    def lowest(self) -> int | None:
        """The lowest seq that waits; None where none does."""
        return int(self._waiting["seq"][self._waiting["live"].argmax()]) if len(self) else None

    def waits(self, seqs: Rows) -> Flags:
        """Return which of these seqs wait."""
        return np.asarray(self._waiting.slots_of(seqs) != NOBODY)

    def oldest(self, count: int) -> tuple[Rows, Rows]:
        """Return the seqs of the `count` events that wait longest, and since when they wait."""
        slots = self._waiting.slots()[:count]
        return self._waiting["seq"][slots], self._waiting["since"][slots]

    def step(self, events: pa.Table, now: int) -> Step:
        """Take a batch (seq, key, leader_key, leader_seq, occurred, id of LOG_SCHEMA), let it be `now`, and return what is ready.

        An event that was seen before (its seq, or a key that waits) changes nothing.
        """
        arrivals = Arrivals.of_log(events, self.head, now)
        subset = len(arrivals.rows) * SUBSET_RATIO <= len(self._waiting)
        step = self._step_subset(arrivals, now) if subset else self._step_full(arrivals, now)
        self._waiting.compact()
        return step

    def _step_full(self, arrivals: Arrivals, now: int) -> Step:
        """Run over all waiting events."""
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

    def _step_subset(self, arrivals: Arrivals, now: int) -> Step:
        """Run over the waiting trees that the arrivals or the time release: the same result, much quicker for few arrivals."""
        waiting = self._waiting
        waiting.update_indexes()
        first = KeyIndex(arrivals.rows.key).first()
        arrivals = arrivals.take(np.flatnonzero(first & (waiting.find(arrivals.rows.key) == NOBODY)))
        self._accept(arrivals.rows, 0)
        forest, count = contract(waiting, arrivals, self.lookback, now), len(arrivals.rows)
        free, bound = forest.free[:count], np.flatnonzero(~forest.free)
        slots = waiting.trees(forest.slots[forest.free[count:]])
        offered = arrivals.take(np.flatnonzero(free)).after(waiting.take(slots))
        step, _ = self._release(offered, KeyIndex(offered.rows.key), now)
        self._remove(slots)
        nodes = np.concatenate([np.full(count, NOBODY, dtype=np.int64), forest.slots])
        nodes[:count][~free] = self._append(arrivals.rows, np.flatnonzero(~free), roots_follow=True)
        waiting.set_roots(nodes[bound], nodes[forest.root[bound]])
        return step

    def _accept(self, rows: Columns, old: int) -> None:
        """Count the rows after the first `old`, none of which is a copy, as taken; mark the late ones."""
        if old == len(rows):
            return
        self.head = max(self.head, int(rows.seq[old:].max()))
        late = self._given_up.remove(rows.key[old:])
        if late.any():
            rows.late[old:] = late
            self.late += int(late.sum())

    def _release(self, offered: Arrivals, index: KeyIndex, now: int) -> tuple[Step, Flags]:
        """Return those that need not wait, in order, and which they are. `offered` has whole trees."""
        rows = offered.rows
        above, missing = offered.above(index)
        blocked = missing & ~offered.known
        climbed = climb(above, rows.occurred)
        due = blocked & (rows.since + self.lookback <= now)
        free = (~blocked | due)[climbed.root]
        self._count(rows, climbed, due, int(free.sum()))
        marks = _marks(rows.late, due, climbed.on_cycle)
        return _released(rows, climbed, np.flatnonzero(free), marks, now), free

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

    def _count(self, rows: Columns, climbed: Climbed, due: Flags, released: int) -> None:
        self.position += released
        self.cycles += climbed.cycles
        lost = np.flatnonzero(due)
        if not len(lost):
            return
        self.lost += len(lost)
        self._given_up.add(rows.leader[lost[np.argsort(rows.seq[lost])]])


def _check(entries: Entries) -> None:
    """Raise ValueError unless all entries have keys and totals of this version."""
    for key in entries:
        if key != _TOTALS_KEY and not key.startswith(_PLACES):
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


def _released(rows: Columns, climbed: Climbed, free: Rows, marks: MarkCodes, now: int) -> Step:
    """Return the free rows in order."""
    ids = rows.id if len(free) == len(rows) else rows.id.take(pa.array(free))
    order = free[in_order(climbed.eff[free], climbed.depth[free], rows.occurred[free], ids, rows.seq[free])]
    return Step(rows.seq[order], marks[order], now - rows.since[order])
