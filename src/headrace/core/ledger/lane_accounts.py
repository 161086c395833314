"""The books: entries in lanes, how they are answered, and which lanes may be advanced.

An entry is resolved when no reader owes anything: its `pending` has come down to zero. Who owes what is the ledger's. A lane is a queue of
entries; `take_ready` gives out the resolved beginning of a lane, and nothing more of this lane until `advanced` takes the batch off the
books. A lane without entries is forgotten. A kept entry is in no lane: its answer is found in `settling`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from headrace.core.ledger.obligations import Batch, Lane, PendingBacklogEvent, PendingEvent, StreamCounters, Subscriber
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome, Answer, Kind

_outcome = lru_cache(4096)(AdvanceOutcome)
_acked = lru_cache(4096)(partial(AdvanceOutcome, failed=0))  # most have this; a key of one number is found faster than one of four
_item: Final = partial(tuple.__new__, AdvanceItem)
"""`AdvanceItem` of a pair, without the detour that every named tuple takes in Python."""
_ANSWERS: Final[dict[Kind, Answer]] = {"fired": "fired", "rejected": "rejected", "dead_lettered": "dead_lettered"}


@dataclass(slots=True, kw_only=True)
class LaneAccounts:
    """The entries of one shared stream, `outstanding` of them, which hold `size` bytes; `newest` was published last.

    `keeps_custody`: entries remember who answered how. `now` is the time of the last change, where the caller sets it. `settling` are
    readers with answers to their backlog: the caller takes them out. `changed` is set when a lane becomes ready, an answer is to be
    settled, or a full queue has room again; the caller resets it.
    """

    counts: StreamCounters = field(default_factory=StreamCounters)
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
        """Return the oldest entry that someone owes an answer to."""
        return next(iter(self._unresolved), None)

    def take_ready(self) -> Batch | None:
        """Return the resolved beginning of a lane, which is then busy until `advanced`, or None if no lane has one."""
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
        """Take an advanced batch off the books; its lane may go on, and is forgotten where nothing of it is left."""
        lane = batch.lane
        lane.busy = False
        lane.in_flight = 0
        lane.advanced = batch.position
        self.outstanding -= len(batch.items)
        self.size -= batch.size
        self.counts.advanced += len(batch.items)
        if not lane.entries:
            del self.lanes[lane.key]
        elif not lane.entries[0].pending:
            self.ready.append(lane)

    def found(self, reader: Subscriber, number: int) -> None:
        """Say which number in the backlog has what the reader was at when that was spilled: it is not read again."""
        entry, reader.moved = reader.moved, None
        if entry is not None:
            entry.number = number
            reader.unsettled[number] = None
            if entry.answer is not None:
                self._settle(entry, entry.answer)

    def settled(self, reader: Subscriber, numbers: Iterable[int]) -> None:
        """Record that these are gone from the reader's backlog."""
        for number in numbers:
            reader.unsettled.pop(number, None)

    def _drop_kept(self, entry: PendingBacklogEvent) -> None:
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
        counts = self.counts
        counts.resolved += 1
        counts.ack_seconds += self.now - entry.published
        if entry.rejected or entry.failed or entry.spilled:
            counts.rejected += entry.rejected > 0
            counts.failed += entry.failed > 0
            counts.spilled += entry.spilled > 0
        elif not entry.derived:
            counts.filtered += 1
        lane = entry.lane
        if lane.entries[0] is entry and not lane.busy:
            # Whoever finds a change wakes the pump, which then takes all that is ready: one more needs no second call.
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
        """Put the answer to a kept raw event where the caller finds it, once its number is known."""
        if entry.number is not None:
            entry.reader.answers.append((entry.number, answer))
            self.settling[entry.reader] = None
            self.changed = True
