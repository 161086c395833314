"""The ordering of a scope by whole batches: the law of `core.ordering`, in columns instead of one event at a time.

One step offers a batch and lets time pass, and releases, marks and keeps exactly what the core would after `offer` and `expire`. Only
the order within one step is another: the core's is that of arrival, tree by tree; here it is (eff, depth, occurred, id), where `eff` is
the latest `occurred` over an event and those above it. In both a leader comes before its followers, and siblings, and the members of
a cycle, by (occurred, id). This one does not depend on how the events came, and a history can be cut into ranges of it.

A cycle is cut at each of its members and a lost leader at each of its followers; both become roots with a mark. Nothing recurs.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.ordering import CYCLE, LATE, LOST
from headrace.pipeline.forest import NOBODY, Climbed, Flags, Rows, climb, in_order
from headrace.pipeline.given_up import GivenUp
from headrace.pipeline.kernel_state import Columns, KernelState, no_columns
from headrace.pipeline.key_index import KeyIndex, keys_of
from headrace.pipeline.segments import Changes, Entries, Segments

MARKS: Final = (None, LOST, LATE, CYCLE)
"""What a mark's code stands for."""
LOST_CODE, LATE_CODE, CYCLE_CODE = 1, 2, 3
MarkCodes: TypeAlias = npt.NDArray[np.int8]

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
        self._waiting = state.waiting
        self._given_up = GivenUp(_GIVEN_UP, state.given_up)
        self._segments = Segments(PREFIX)
        self._segments.append(state.waiting.seq)
        self._stored_totals: bytes | None = None

    @classmethod
    def of_snapshot(cls, snapshot: bytes, lookback: int) -> Kernel:
        """Return the ordering that `snapshot` was taken of, by a kernel or by the pure core; the lookback may be another."""
        return cls(lookback, KernelState.unpack(snapshot))

    def snapshot(self) -> bytes:
        """Return the whole state, as the pure core would write it."""
        return KernelState(self._totals, self._waiting, self._given_up.keys).pack()

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
        made._given_up = GivenUp.restore(_GIVEN_UP, entries)
        parts = [no_columns()]

        def unpack(value: bytes, _: int) -> Rows:
            parts.append(Columns.unpack(value))
            return parts[-1].seq

        made._segments = Segments.restore(PREFIX, entries, unpack)
        made._waiting = Columns.concat(parts).take(np.flatnonzero(made._segments.live()))
        return made

    def changes(self) -> Changes:
        """Return what is to be stored since the last call: values by key, None to delete one."""
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
        return self._waiting

    @property
    def lowest(self) -> int | None:
        """The lowest seq that waits; None where none does."""
        return int(self._waiting.seq[0]) if len(self._waiting) else None

    def waits(self, seqs: Rows) -> Flags:
        """Return which of these seqs wait."""
        waiting = self._waiting.seq
        at = np.searchsorted(waiting, seqs)
        found: Flags = at < len(waiting)
        found[found] = waiting[at[found]] == seqs[found]
        return found

    def oldest(self, count: int) -> tuple[Rows, Rows]:
        """Return the seqs of the `count` events that wait longest, and since when they wait."""
        return self._waiting.seq[:count], self._waiting.since[:count]

    def step(self, events: pa.Table, now: int) -> Step:
        """Take a batch (seq, key, leader_key, leader_seq, occurred, id of LOG_SCHEMA), let it be `now`, and return what is ready.

        An event that was seen before (its seq, or a key that waits) changes nothing.
        """
        arrived, leads, known = self._arrived(events, now)
        rows, index, fresh = _distinct(self._waiting, arrived)
        if len(fresh):
            self.head = max(self.head, int(arrived.seq[fresh].max()))
            self._mark_late(rows, len(self._waiting))
        old = len(self._waiting)
        follows = np.concatenate([np.ones(old, dtype=np.bool_), leads[fresh]])
        known = np.concatenate([np.zeros(old, dtype=np.bool_), known[fresh]])
        above, missing = _above(rows, index, follows, known)
        blocked = missing & ~known
        climbed = climb(above, rows.occurred)
        due = blocked & (rows.since + self.lookback <= now)
        free = (~blocked | due)[climbed.root]
        self._count(rows, climbed, due, int(free.sum()))
        marks = _marks(rows.late, due, climbed.on_cycle)
        out = _released(rows, climbed, np.flatnonzero(free), marks, now)
        self._segments.remove(rows.seq[:old][free[:old]])
        self._segments.append(rows.seq[old:][~free[old:]])
        self._waiting = rows.take(np.flatnonzero(~free)) if free.any() else rows
        return out

    @property
    def _totals(self) -> tuple[int, int, int, int, int]:
        return self.position, self.head, self.lost, self.late, self.cycles

    def _packed(self, seqs: Rows) -> bytes:
        return self._waiting.take(np.searchsorted(self._waiting.seq, seqs)).pack()

    def _arrived(self, events: pa.Table, now: int) -> tuple[Columns, Flags, Flags]:
        """Return the events after the head in order of seq, which of them follow another, and whose leader the log had before them."""
        seq = _numbers(events.column("seq"))
        if (fresh := seq > self.head).all() and (seq[1:] > seq[:-1]).all():
            rows = None
        else:
            rows = np.flatnonzero(fresh)
            rows = rows[np.argsort(seq[rows], kind="stable")]
            events, seq = events.take(pa.array(rows)), seq[rows]
        key, _ = keys_of(events.column("key"))
        leader, has = keys_of(events.column("leader_key"))
        leads = has & (key != leader).any(axis=1)
        ids = events.column("id").combine_chunks()
        columns = Columns(
            seq,
            key,
            leader,
            _numbers(events.column("occurred").cast(pa.int64())),
            np.full(len(seq), now, dtype=np.int64),
            np.zeros(len(seq), dtype=np.bool_),
            ids,
        )
        return columns, leads, _numbers(events.column("leader_seq")) >= 0

    def _mark_late(self, rows: Columns, old: int) -> None:
        """Mark the events that came after they were given up as lost, and forget that they were."""
        late = self._given_up.remove(rows.key[old:])
        if late.any():
            rows.late[old:] = late
            self.late += int(late.sum())

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


def _distinct(waiting: Columns, arrived: Columns) -> tuple[Columns, KeyIndex, Rows]:
    """Return what waits and then what arrived, each key once; an index of that, and which rows of `arrived` were taken."""
    rows = waiting.followed_by(arrived)
    index = KeyIndex(rows.key)
    first = index.first()
    if first.all():
        return rows, index, np.arange(len(arrived))
    kept = np.flatnonzero(first)
    rows = rows.take(kept)
    return rows, KeyIndex(rows.key), kept[len(waiting) :] - len(waiting)


def _above(rows: Columns, index: KeyIndex, follows: Flags, known: Flags) -> tuple[Rows, Flags]:
    """Return the row that each row follows (itself: none), and which follow one that is not here.

    An event whose leader the log had before it (`known`) does not wait for a copy of that leader that came later.
    """
    above = np.arange(len(rows))
    followers = np.flatnonzero(follows)
    found = index.find(rows.leader[followers])
    here = found != NOBODY
    here &= ~(known[followers] & (rows.seq[found] > rows.seq[followers]))
    above[followers[here]] = found[here]
    missing = np.zeros(len(rows), dtype=np.bool_)
    missing[followers[~here]] = True
    return above, missing


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


def _numbers(column: pa.ChunkedArray) -> Any:
    return column.to_numpy()
