"""The ledger: all obligations of one shared stream, without a clock or an event loop.

An *entry* is one raw event. Who owes an answer to it is fixed at its publication: every *reader* (a subscriber with a filter) that has
joined or is registered, and every group of declared triggers that one *obligation* stands for: something of theirs must be stored.

    reader:      queued ──begin──► open ──end──► acked, or waits for the confirmation of its bound items, then acked
                                     ├──reject──► rejected
                                     └──dead_letter──► an obligation to store a dead letter
                 leave: the open entry ends, the queued entries fail.    fail, also after the ack timeout: all that it owes fails.
    obligation:  owed ──confirm──► acked (or rejected, spilled, by its kind)

A *registered* reader never fails. It owes its answers whether it runs or not. An entry that it cannot take becomes an obligation to spill:

    offline ──catch_up──► catching up ──go_live──► live     spill, from any state: all that it owes is spilled, and it is offline: all
       ▲                       │                     │       later entries are spilled too. It may still finish the open entry.
       └────────spill──────────┴─────────────────────┘       requeue: it gets the open entry again before any other.

Only a live reader reads its queue, which has no entry older than its spilled ones. Before, it reads its backlog: `begin_from_backlog` adds
one raw event of the backlog as an entry, which is answered like any other. Its answer goes to `settling`.

Entries, lanes and answers are in `LaneAccounts`, the readers and their states in `SubscriberRegistry`.
Late, unknown and repeated confirmations change nothing. No operation is linear in the outstanding entries: `publish` is linear in its
readers and obligations; `fail`, `leave`, `spill` and `drop` in what the reader still owes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from headrace.core.ledger.lane_accounts import LaneAccounts
from headrace.core.ledger.obligations import (
    Lane,
    Obligation,
    PendingBacklogEvent,
    PendingConfirmation,
    PendingEvent,
    Published,
    Spill,
    Subscriber,
    TriggerGroups,
)
from headrace.core.ledger.subscribers import SubscriberRegistry


@dataclass(slots=True)
class Ledger(LaneAccounts):
    """The obligations of one shared stream. Readers with `queue_limit` or more queued entries are in `full`. `next_seq` is the next seq.

    `to_wake` are readers that may go on, since an obligation of theirs was confirmed: the last one, or any one while retries make a reader
    read only its backlog. The caller removes them. The names of new lanes end with `lane_suffix`.
    """

    queue_limit: int
    ack_timeout: float
    next_seq: int = 0
    full: set[Subscriber] = field(default_factory=set)
    to_wake: list[Subscriber] = field(default_factory=list)
    lane_suffix: str = ""
    subscribers: SubscriberRegistry = field(default_factory=SubscriberRegistry)
    _obligations: dict[int, Obligation] = field(default_factory=dict)
    _bindings: dict[int, PendingConfirmation] = field(default_factory=dict)

    def join(self, trigger_id: int) -> Subscriber:
        """Add and return a new reader, which owes an answer to all later entries."""
        reader = Subscriber(trigger_id)
        self.subscribers.add(reader)
        return reader

    def register(self, trigger_id: int) -> Subscriber:
        """Add and return a new registered reader, which is offline."""
        reader = Subscriber(trigger_id, registered=True)
        self.subscribers.add(reader)
        return reader

    def publish(
        self, raw: Any, payload: Any, lane: Hashable, now: float, position: int | None = None, groups: TriggerGroups = (), size: int = 0
    ) -> Published:
        """Add a raw event as an entry, owed by every reader and by each of the `groups` of declared triggers.

        Declared triggers without a group filtered it: they count as acked.
        """
        state = self.lanes.get(lane)
        if state is None:
            state = self.lanes[lane] = Lane(lane, self.lane_suffix)
        counters, subscribers = self.counters, self.subscribers
        reading, offline, order, first_seq = subscribers.reading, subscribers.offline, counters.read, self.next_seq
        self.now = now
        owed = len(reading) + len(offline)
        self.newest = entry = PendingEvent(raw, payload, state, position, now, order, size, owed, len(subscribers.declared) + owed)
        state.entries.append(entry)
        state.read = position
        self.outstanding += 1
        self.size += size
        counters.read = order + 1
        if self.keeps_custody:
            entry.owed, entry.answers = subscribers.owed, []
        if groups:
            entry.derived = True
            seq = first_seq
            for who in groups:
                self._obligations[seq] = Obligation(entry, who, "fired")
                owed += len(who)
                seq += 1
            self.next_seq, entry.pending = seq, owed
        if not owed:
            self._resolve(entry)
            return first_seq, (), None
        self._unresolved[entry] = None
        woken = []
        for reader in reading:
            reader.queue.append(entry)
            if reader.idle:
                reader.idle = False
                woken.append(reader)
        # Queued entries are outstanding: below the limit no queue can be full.
        if self.outstanding >= self.queue_limit:
            self.full.update(reader for reader in reading if len(reader.queue) >= self.queue_limit)
        return first_seq, woken, self._spill(entry, tuple(offline)) if offline else None

    def publish_rejected(self, payload: Any, *, lane: Hashable, now: float, position: int | None = None) -> int | None:
        """Add a raw event for which all triggers owe one dead letter. Return its seq, or None if there is no trigger."""
        subscribers, who = self.subscribers, self.subscribers.owed
        self.subscribers = SubscriberRegistry()
        self.subscribers.declare(who)  # for this entry all triggers are as declared ones: they owe one obligation
        seq, _, _ = self.publish(None, payload, lane=lane, now=now, position=position, groups=(who,) if who else ())
        self.subscribers = subscribers
        self.mark_rejected(seq)
        return seq if who else None

    def begin(self, reader: Subscriber) -> PendingEvent | None:
        """End the reader's open entry, then open and return its next one, or None if it has none. It is idle then.

        A reader that is not live gets only an entry that was requeued.
        """
        entry = reader.open
        if entry is not None and (reader.binding is not None or reader.settled):
            self.end(reader)
        elif entry is not None:  # `end` inlined: most readers filter most raw events
            reader.open = None
            entry.pending = pending = entry.pending - 1
            if not pending:
                del self._unresolved[entry]
                self._resolve(entry)
        if reader.held is not None:
            entry, reader.held = reader.held, None
        elif reader.live and (queue := reader.queue):
            if self.full and reader in self.full:
                self.full.remove(reader)
                self.changed = True
            entry = queue.popleft()
        else:
            reader.idle = reader.live and reader in self.subscribers.reading
            return None
        reader.open = entry
        reader.begun = self.now
        reader.settled = False
        return entry

    def begin_from_backlog(
        self, reader: Subscriber, number: int, raw: Any, text: str, lane: str, *, position: int | None = None, attempts: int = 0
    ) -> PendingBacklogEvent:
        """Open a raw event of its backlog for an idle reader."""
        entry = reader.open = PendingBacklogEvent.read(reader, number, raw, text, lane, position=position, now=self.now)
        entry.attempts = attempts
        self._unresolved[entry] = None
        reader.unsettled[number] = None
        reader.begun = self.now
        reader.settled = False
        return entry

    def bind(self, reader: Subscriber) -> int | None:
        """Return the seq of a new item derived from the reader's open entry, or None if it has none, or has rejected it."""
        entry = reader.open
        if entry is None or reader.settled:
            return None
        seq = self.next_seq
        self.next_seq = seq + 1
        binding = reader.binding
        if binding is None:
            binding = reader.binding = PendingConfirmation(reader, entry, seq)
            reader.unconfirmed[binding] = None
            entry.derived = True
        else:
            binding.add(seq)
        self._bindings[seq] = binding
        return seq

    def end(self, reader: Subscriber) -> None:
        """End the open entry of the reader. It is acked as soon as all its bound items are confirmed."""
        entry, binding = reader.open, reader.binding
        reader.open = reader.binding = None
        if entry is None or reader.settled:
            return
        if binding is not None:
            binding.closed = True
            if not binding.owed:
                self._close(binding)
            return
        # `_answered` inlined: nearly every answer comes here or to `_close`.
        entry.pending -= 1
        if not entry.pending:
            del self._unresolved[entry]
            self._resolve(entry)

    def confirm(self, seq: int) -> None:
        """Record that the item with this seq is durable."""
        binding = self._bindings.pop(seq, None)
        if binding is not None:
            binding.owed -= 1
            if binding.closed and not binding.owed:
                self._close(binding)
        elif (obligation := self._obligations.pop(seq, None)) is not None:
            self._confirm_obligation(seq, obligation)

    def mark_rejected(self, seq: int) -> None:
        """Count `seq` as rejected once it is confirmed: its durable item is a dead letter."""
        obligation = self._obligations.get(seq)
        if obligation is not None:
            if obligation.kind != "rejected":
                obligation.kind = "dead_lettered"
        elif (binding := self._bindings.get(seq)) is not None:
            binding.rejected = True

    def reject(self, reader: Subscriber) -> bool:
        """Reject the open entry of the reader, and return whether it has one."""
        entry = self._settle_open(reader)
        if entry is None:
            return False
        self._rejected(entry, "rejected", reader)
        return True

    def dead_letter(self, reader: Subscriber, kind: Literal["rejected", "dead_lettered"]) -> int | None:
        """Answer the open entry with a dead letter. Return the seq that must be confirmed, or None if no entry is open."""
        entry = self._settle_open(reader)
        if entry is None:
            return None
        seq = self.next_seq
        self.next_seq = seq + 1
        self._obligations[seq] = reader.obligations[seq] = Obligation(entry, reader.who, kind, (reader,))
        return seq

    def requeue(self, reader: Subscriber) -> PendingEvent | None:
        """Close the open entry unanswered, and return it, or None if there is none. The reader gets it again before any other.

        A raw event from the backlog is dropped, since it is still in the backlog.
        """
        entry = self._settle_open(reader)
        reader.open = None
        reader.idle = False
        if isinstance(entry, PendingBacklogEvent):
            self._drop_backlog_event(entry)
        elif entry is not None:
            reader.held = entry
        return entry

    def spill(self, readers: Iterable[Subscriber], *, stop: bool) -> list[Spill]:
        """Mark registered readers as offline, and return the spills of what they owe, in the order of publication.

        With `stop` they have no open entry then. Else they may finish it, and the answer is settled in their backlog.
        """
        owing: dict[PendingEvent, list[Subscriber]] = {}
        for reader in readers:
            if stop:
                self.requeue(reader)
            for entry in (*self._moved(reader), *reader.take_not_begun()):
                owing.setdefault(entry, []).append(reader)
            self.subscribers.mark_offline(reader)
            self.full.discard(reader)
            reader.live = reader.idle = False
        return [self._spill(entry, tuple(owing[entry])) for entry in sorted(owing, key=attrgetter("order"))]

    def catch_up(self, reader: Subscriber) -> None:
        """Make an offline reader queue all later entries."""
        self.subscribers.mark_online(reader)

    def go_live(self, reader: Subscriber) -> None:
        """Make a reader read its queue. The caller ensures that its backlog is empty, and all its spills are confirmed."""
        reader.live = reader in self.subscribers.reading
        reader.moved = None

    def leave(self, reader: Subscriber) -> None:
        """Remove the reader: its open entry ends, its queued ones fail, and its bound items may still be confirmed."""
        self._remove(reader)
        self.end(reader)
        for entry in reader.take_not_begun():
            self._failed(entry, reader)
        if reader.unconfirmed:
            self.subscribers.leaving[reader] = None

    def fail(self, reader: Subscriber) -> None:
        """Remove the reader and fail all that it owes."""
        self._remove(reader)
        for entry in self._all_owed(reader):
            self._failed(entry, reader)

    def drop(self, reader: Subscriber) -> None:
        """Remove a registered reader with all that it owes."""
        self._remove(reader)
        owed = self._all_owed(reader)
        for seq, obligation in tuple(reader.obligations.items()):
            owed.append(obligation.entry)
            obligation.readers = tuple(other for other in obligation.readers if other is not reader)
            obligation.who = tuple(other.trigger_id for other in obligation.readers)
            if not obligation.readers:
                del self._obligations[seq]
        reader.obligations.clear()
        self.settling.pop(reader, None)
        for entry in owed:
            if isinstance(entry, PendingBacklogEvent):
                self._drop_backlog_event(entry)
            else:
                entry.acked -= 1
                self._answered(entry, 1)

    def _spill(self, entry: PendingEvent, readers: tuple[Subscriber, ...]) -> Spill:
        seq = self.next_seq
        self.next_seq = seq + 1
        obligation = self._obligations[seq] = Obligation(entry, tuple([reader.trigger_id for reader in readers]), "spilled", readers)
        for reader in readers:
            reader.spilled += 1
            reader.obligations[seq] = obligation
        return Spill(seq, entry, readers)

    def _remove(self, reader: Subscriber) -> None:
        self.subscribers.remove(reader)
        self.full.discard(reader)

    def _all_owed(self, reader: Subscriber) -> list[PendingEvent]:
        """Remove and return all entries that the reader owes, except those of its obligations."""
        owed = [binding.entry for binding in reader.unconfirmed if binding is not reader.binding]
        entry = self._settle_open(reader)
        reader.open = None
        for binding in tuple(reader.unconfirmed):
            self._abandon(binding)
        if entry is not None:
            owed.append(entry)
        return owed + reader.take_not_begun()

    def _settle_open(self, reader: Subscriber) -> PendingEvent | None:
        """Mark the open entry of the reader as answered, without its bound items. Return it, or None if there is none."""
        entry = reader.open
        if entry is None or reader.settled:
            return None
        reader.settled = True
        if reader.binding is not None:
            self._abandon(reader.binding)
            reader.binding = None
        return entry

    def _moved(self, reader: Subscriber) -> tuple[PendingEvent, ...]:
        """Return the open entry of the reader, and open its copy from the backlog in its place."""
        entry = reader.open
        if entry is None or reader.settled or isinstance(entry, PendingBacklogEvent):
            return ()
        event = reader.open = reader.moved = PendingBacklogEvent.of(reader, entry, self.now)
        self._unresolved[event] = None
        if reader.binding is not None:
            reader.binding.entry = event
        return (entry,)

    def _close(self, binding: PendingConfirmation) -> None:
        """Answer the entry of a binding whose items are all confirmed."""
        reader, entry = binding.reader, binding.entry
        del reader.unconfirmed[binding]
        if self.subscribers.leaving and not reader.unconfirmed:
            self.subscribers.leaving.pop(reader, None)
        if binding.rejected:
            self._rejected(entry, "dead_lettered", reader)
            return
        if entry.answers is not None:
            entry.answers.append(("fired", reader.who))
        entry.pending -= 1
        if not entry.pending:
            del self._unresolved[entry]
            self._resolve(entry)

    def _abandon(self, binding: PendingConfirmation) -> None:
        """Drop the unconfirmed items of a binding."""
        del binding.reader.unconfirmed[binding]
        for seq in (binding.seq, *(binding.more or ())):
            self._bindings.pop(seq, None)

    def _confirm_obligation(self, seq: int, obligation: Obligation) -> None:
        entry, kind, weight = obligation.entry, obligation.kind, len(obligation.who)
        if entry.answers is not None:
            entry.answers.append((kind, obligation.who))
        if kind != "fired":
            entry.acked -= weight
            if kind == "spilled":
                entry.spilled += weight
            else:
                entry.rejected += weight
        for reader in obligation.readers:
            del reader.obligations[seq]
            if not reader.obligations or reader.retries:
                self.to_wake.append(reader)
        self._answered(entry, weight)
