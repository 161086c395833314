"""Accounts of the lanes: entries, their answers, and the lanes that can be advanced.

An entry is resolved when its `pending` answers are zero. The ledger decides who owes them. A lane is a queue of entries: `take_ready`
returns the resolved beginning of a lane, and nothing more of this lane until `advanced` removes that batch. A lane without entries is
deleted. An entry from a backlog is in no lane: its answer goes to `settling`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from headrace.core.ledger.counters import StreamCounters
from headrace.core.ledger.obligations import Batch, Lane, PendingBacklogEvent, PendingEvent, Subscriber
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome, Answer, Kind

_outcome = lru_cache(4096)(AdvanceOutcome)
_acked = lru_cache(4096)(partial(AdvanceOutcome, failed=0))  # the common case; a key of one number is found faster than one of four
_item: Final = partial(tuple.__new__, AdvanceItem)
"""`AdvanceItem` of a pair, without the detour that every named tuple takes in Python."""
_ANSWERS: Final[dict[Kind, Answer]] = {"fired": "fired", "rejected": "rejected", "dead_lettered": "dead_lettered"}


@dataclass(slots=True, kw_only=True)
class LaneAccounts:
    """The entries of one shared stream: `outstanding` entries of `size` bytes; `newest` was published last.

    With `keeps_custody`, entries record who answered how. `now` is the time of the last change, if the caller sets it. `settling` are
    readers with answers to their backlog; the caller removes them. `changed` is set when a lane becomes ready, an answer can be settled,
    or a full queue has capacity again; the caller resets it.
    """

    counters: StreamCounters = field(default_factory=StreamCounters)
    keeps_custody: bool = False
    now: float = 0.0
    outstanding: int = 0
    size: int = 0
    newest: PendingEvent | None = None
    changed: bool = False
    ready: deque[Lane] = field(default_factory=deque)
    lanes: dict[Hashable, Lane] = field(default_factory=dict)
    settling: dict[Subscriber, None] = field(default_factory=dict)
    _unresolved: dict[PendingEvent, None] = field(default_factory=dict)

    def oldest_unresolved(self) -> PendingEvent | None:
        """Return the oldest unresolved entry, or None if there is none."""
        return next(iter(self._unresolved), None)

    def take_ready(self) -> Batch | None:
        """Return the resolved beginning of a lane, which is then busy until `advanced`, or None if no lane is ready."""
        if not self.ready:
            return None
        lane = self.ready.popleft()
        entries = lane.entries
        items: list[AdvanceItem] = []
        taken: list[PendingEvent] = []
        position = None
        size = 0
        keeps_custody = self.keeps_custody
        while entries and not entries[0].pending:
            entry = entries.popleft()
            position = entry.position
            size += entry.size
            if entry.failed or entry.rejected or entry.spilled:
                outcome = _outcome(entry.acked, entry.failed, entry.rejected, entry.spilled)
            else:
                outcome = _acked(entry.acked)
            items.append(_item((entry.payload, outcome)))
            if keeps_custody:
                taken.append(entry)
        lane.busy = True
        lane.in_flight = len(items)
        return Batch(lane, items, position, taken, size)

    def advanced(self, batch: Batch) -> None:
        """Remove an advanced batch. Its lane is deleted if it has no other entry, else it may become ready again."""
        lane = batch.lane
        lane.busy = False
        lane.in_flight = 0
        lane.advanced = batch.position
        self.outstanding -= len(batch.items)
        self.size -= batch.size
        self.counters.advanced += len(batch.items)
        if not lane.entries:
            del self.lanes[lane.key]
        elif not lane.entries[0].pending:
            self.ready.append(lane)

    def set_backlog_number(self, reader: Subscriber, number: int) -> None:
        """Set the backlog number of the entry that was open when it was spilled. It is not read again."""
        entry, reader.moved = reader.moved, None
        if entry is not None:
            entry.number = number
            reader.unsettled[number] = None
            if entry.answer is not None:
                self._settle(entry, entry.answer)

    def settled(self, reader: Subscriber, numbers: Iterable[int]) -> None:
        """Record that these numbers are deleted from the reader's backlog."""
        for number in numbers:
            reader.unsettled.pop(number, None)

    def _drop_backlog_event(self, entry: PendingBacklogEvent) -> None:
        reader = entry.reader
        del self._unresolved[entry]
        if reader.moved is entry:
            reader.moved = None
        if entry.number is not None:
            reader.unsettled.pop(entry.number, None)

    def _rejected(self, entry: PendingEvent, kind: Kind, reader: Subscriber) -> None:
        if entry.answers is not None:
            entry.answers.append((kind, reader.who))
        entry.acked -= 1
        entry.rejected += 1
        self._answered(entry, 1)

    def _failed(self, entry: PendingEvent, reader: Subscriber) -> None:
        if entry.answers is not None:
            entry.answers.append(("failed", reader.who))
        entry.acked -= 1
        entry.failed += 1
        self._answered(entry, 1)

    def _answered(self, entry: PendingEvent, weight: int) -> None:
        entry.pending -= weight
        if not entry.pending:
            del self._unresolved[entry]
            self._resolve(entry)

    def _resolve(self, entry: PendingEvent) -> None:
        if entry.order < 0 and isinstance(entry, PendingBacklogEvent):
            self._answer(entry)
            return
        counters = self.counters
        counters.resolved += 1
        counters.ack_seconds += self.now - entry.published
        if entry.rejected or entry.failed or entry.spilled:
            counters.rejected += entry.rejected > 0
            counters.failed += entry.failed > 0
            counters.spilled += entry.spilled > 0
        elif not entry.derived:
            counters.filtered += 1
        lane = entry.lane
        if lane.entries[0] is entry and not lane.busy:
            # `changed` wakes the advancer, which then takes all ready lanes: one more needs no second call.
            if not self.ready:
                self.changed = True
            self.ready.append(lane)

    def _answer(self, entry: PendingBacklogEvent) -> None:
        answer: Answer = "filtered"
        for kind, _ in entry.answers or ():
            answer = _ANSWERS[kind]
        entry.answer = answer
        self._settle(entry, answer)

    def _settle(self, entry: PendingBacklogEvent, answer: Answer) -> None:
        """Add the answer to an entry from the backlog to `settling`, if its number is known."""
        if entry.number is not None:
            entry.reader.answers.append((entry.number, answer))
            self.settling[entry.reader] = None
            self.changed = True
