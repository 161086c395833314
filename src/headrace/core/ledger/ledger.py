"""The ledger: every obligation of one shared stream, in one place, without a clock or a loop.

An *entry* is one raw event on the books. Who owes an answer to it is fixed when it is published: every *reader* that has joined (a
subscriber with a filter) or is registered, and every *claim* (declared triggers, counted in bulk: something of theirs must be stored).

    reader:  queued ──begin──► open ──end──► acked, or waiting for the confirmation of what was bound, then acked
                                 ├──reject──► rejected
                                 └──dead_letter──► a claim, of a dead letter
             leave: what is open ends, what is queued fails.        fail, or overdue and then fail: all it owes fails.
    claim:   owed ──confirm──► acked (or rejected, spilled, as its kind says)

A *registered* reader never fails. It owes its answers whether it runs or not, and what it cannot take becomes a claim, of a spill:

    away ──catch_up──► collecting ──go_live──► live          spill, from anywhere: all it owes is spilled, and it is away: all that
      ▲                    │                    │            follows is spilled too; it may go on with what it is at
      └──────spill─────────┴────────────────────┘            put_back: it comes back to what it is at before anything else

Only who is live reads its queue, in which is nothing older than what was spilled. Before that it reads its backlog: `begin_kept` puts one
kept raw event on the books, which is answered as any other; the answer is found in `settling`.

The entries themselves, their lanes and their answers are in `LaneAccounts`, who reads and who is away in `SubscriberRegistry`.
Late, unknown and doubled confirmations change nothing. No operation is linear in what is outstanding: `publish` costs what its readers and
claims are, `fail`, `leave`, `spill` and `drop` what the reader still owes; `overdue` and `deadline` look once at each reader.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from headrace.core.ledger.lane_accounts import LaneAccounts
from headrace.core.ledger.obligations import (
    Claims,
    Lane,
    Obligation,
    PendingBacklogEvent,
    PendingConfirmation,
    PendingEvent,
    Published,
    Spill,
    Subscriber,
)
from headrace.core.ledger.subscribers import SubscriberRegistry


@dataclass(slots=True)
class Ledger(LaneAccounts):
    """The books of one shared stream. `queue_limit`: readers with so many entries queued are in `full`. Seqs count up from `next_seq`.

    `drainable` are readers of whose claims the last was just confirmed, or any where one only reads its backlog: the caller takes them out.
    """

    queue_limit: int
    ack_timeout: float
    next_seq: int = 0
    full: set[Subscriber] = field(default_factory=set)
    drainable: list[Subscriber] = field(default_factory=list)
    roster: SubscriberRegistry = field(default_factory=SubscriberRegistry)
    _claims: dict[int, Obligation] = field(default_factory=dict)
    _bindings: dict[int, PendingConfirmation] = field(default_factory=dict)

    def join(self, trigger_id: int) -> Subscriber:
        """Return a new reader, which owes an answer to all that is published from now on."""
        reader = Subscriber(trigger_id)
        self.roster.add(reader)
        return reader

    def register(self, trigger_id: int) -> Subscriber:
        """Return a new registered reader, which is away."""
        reader = Subscriber(trigger_id, registered=True)
        self.roster.add(reader)
        return reader

    def declare(self, trigger_ids: tuple[int, ...]) -> None:
        """Say who the declared triggers are, from now on: they are bystanders of what no claim of theirs is for."""
        self.roster.declare(trigger_ids)

    def publish(
        self, raw: Any, payload: Any, lane: Hashable, now: float, position: int | None = None, claims: Claims = (), size: int = 0
    ) -> Published:
        """Put a raw event on the books: owed by every reader, and by the declared triggers of each of `claims` together.

        The declared triggers that are in none of them do not want it; they count as acked.
        """
        books = self.lanes.get(lane)
        if books is None:
            books = self.lanes[lane] = Lane(lane)
        counts, roster = self.counts, self.roster
        reading, away, order, first_seq = roster.reading, roster.away, counts.read, self.next_seq
        self.now = now
        owed = len(reading) + len(away)
        self.newest = entry = PendingEvent(raw, payload, books, position, now, order, size, owed, len(roster.declared) + owed)
        books.entries.append(entry)
        books.read = position
        self.outstanding += 1
        self.size += size
        counts.read = order + 1
        if self.keeps_custody:
            entry.owed, entry.answers = roster.owed, []
        if claims:
            entry.derived = True
            seq = first_seq
            for who in claims:
                self._claims[seq] = Obligation(entry, who, "fired")
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
        # What is queued is outstanding: below the limit nobody's queue can be full.
        if self.outstanding >= self.queue_limit:
            self.full.update(reader for reader in reading if len(reader.queue) >= self.queue_limit)
        return first_seq, woken, self._spill(entry, tuple(away)) if away else None

    def publish_rejected(self, payload: Any, *, lane: Hashable, now: float) -> int | None:
        """Put a raw event on the books for which all that there are owe one dead letter. Return None if there is none."""
        roster, who = self.roster, self.roster.owed
        self.roster = SubscriberRegistry()
        self.roster.declare(who)  # for this one all are as the declared are: they are told of it together
        seq, _, _ = self.publish(None, payload, lane=lane, now=now, claims=(who,) if who else ())
        self.roster = roster
        self.mark_rejected(seq)
        return seq if who else None

    def begin(self, reader: Subscriber) -> PendingEvent | None:
        """Move the reader to its next entry, which ends the present one. Return None if nothing waits; it is idle then.

        One that is not live gets only what it is to come back to.
        """
        entry = reader.open
        if entry is not None and (reader.binding is not None or reader.settled):
            self.end(reader)
        elif entry is not None:  # as `end` does it: most raw events are of no interest to most readers
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
            reader.idle = reader.live and reader in self.roster.reading
            return None
        reader.open = entry
        reader.begun = self.now
        reader.settled = False
        return entry

    def begin_from_backlog(
        self, reader: Subscriber, number: int, raw: Any, text: str, lane: str, *, position: int | None = None, attempts: int = 0
    ) -> PendingEvent:
        """Give an idle reader a raw event of its backlog."""
        entry = reader.open = PendingBacklogEvent.read(reader, number, raw, text, lane, position=position, now=self.now)
        entry.attempts = attempts
        self._unresolved[entry] = None
        reader.unsettled[number] = None
        reader.begun = self.now
        reader.settled = False
        return entry

    def bind(self, reader: Subscriber) -> int | None:
        """Return the seq of a thing just derived from the entry the reader is at, or None if it is at none, or has rejected it."""
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
        """End what the reader is at: acked, as soon as all that was bound to it is confirmed."""
        entry, binding = reader.open, reader.binding
        reader.open = reader.binding = None
        if entry is None or reader.settled:
            return
        if binding is not None:
            binding.closed = True
            if not binding.owed:
                self._close(binding)
            return
        # The way of nearly every answer, with that in `_close`: `_answered`, written out.
        entry.pending -= 1
        if not entry.pending:
            del self._unresolved[entry]
            self._resolve(entry)

    def confirm(self, seq: int) -> None:
        """Record that what `seq` stands for is durable."""
        binding = self._bindings.pop(seq, None)
        if binding is not None:
            binding.owed -= 1
            if binding.closed and not binding.owed:
                self._close(binding)
        elif (claim := self._claims.pop(seq, None)) is not None:
            self._confirm_claim(seq, claim)

    def mark_rejected(self, seq: int) -> None:
        """Count `seq` as rejected once it is confirmed: its durable item is a dead letter."""
        claim = self._claims.get(seq)
        if claim is not None:
            if claim.kind != "rejected":
                claim.kind = "dead_lettered"
        elif (binding := self._bindings.get(seq)) is not None:
            binding.rejected = True

    def reject(self, reader: Subscriber) -> bool:
        """Answer what the reader is at with a refusal, at once; False: it is at nothing that is open."""
        entry = self._settle_open(reader)
        if entry is None:
            return False
        self._rejected(entry, "rejected", reader)
        return True

    def dead_letter(self, reader: Subscriber, kind: Literal["rejected", "dead_lettered"]) -> int | None:
        """Answer what the reader is at with a dead letter, owed until the seq is confirmed.

        Return None if it is at nothing that is open.
        """
        entry = self._settle_open(reader)
        if entry is None:
            return None
        seq = self.next_seq
        self.next_seq = seq + 1
        self._claims[seq] = reader.claims[seq] = Obligation(entry, reader.who, kind, (reader,))
        return seq

    def requeue(self, reader: Subscriber) -> PendingEvent | None:
        """Make the reader idle, and give it the present entry again first. Return None if it has none that is open.

        A kept raw event leaves the books: it is in the backlog still.
        """
        entry = self._settle_open(reader)
        reader.open = None
        reader.idle = False
        if isinstance(entry, PendingBacklogEvent):
            self._drop_kept(entry)
        elif entry is not None:
            reader.held = entry
        return entry

    def spill(self, readers: Iterable[Subscriber], *, stop: bool) -> list[Spill]:
        """Mark registered readers as away; return the entries that they have and have not begun, in the order of publication.

        With `stop` they are at nothing then. Else they go on with what they are at: how they answer it is settled in their backlog.
        """
        owing: dict[PendingEvent, list[Subscriber]] = {}
        for reader in readers:
            if stop:
                self.requeue(reader)
            for entry in (*self._moved(reader), *reader.take_not_begun()):
                owing.setdefault(entry, []).append(reader)
            self.roster.mark_offline(reader)
            self.full.discard(reader)
            reader.live = reader.idle = False
        return [self._spill(entry, tuple(owing[entry])) for entry in sorted(owing, key=attrgetter("order"))]

    def catch_up(self, reader: Subscriber) -> None:
        """Make a reader that is away collect published entries from now on."""
        self.roster.mark_online(reader)

    def go_live(self, reader: Subscriber) -> None:
        """Make a collecting reader read what it collected: its backlog is empty, and all its spills are confirmed."""
        reader.live = reader in self.roster.reading
        reader.moved = None

    def leave(self, reader: Subscriber) -> None:
        """Remove the reader: its present entry ends, its unread ones fail, and its derived items may still be confirmed."""
        self._remove(reader)
        self.end(reader)
        for entry in reader.take_not_begun():
            self._failed(entry, reader)
        if reader.unconfirmed:
            self.roster.leaving[reader] = None

    def fail(self, reader: Subscriber) -> None:
        """Fail all that the reader owes, and let it go."""
        self._remove(reader)
        for entry in self._all_owed(reader):
            self._failed(entry, reader)

    def drop(self, reader: Subscriber) -> None:
        """Remove a registered reader with all that it owes."""
        self._remove(reader)
        owed = self._all_owed(reader)
        for seq, claim in tuple(reader.claims.items()):
            owed.append(claim.entry)
            claim.readers = tuple(other for other in claim.readers if other is not reader)
            claim.who = tuple(other.trigger_id for other in claim.readers)
            if not claim.readers:
                del self._claims[seq]
        reader.claims.clear()
        self.settling.pop(reader, None)
        for entry in owed:
            if isinstance(entry, PendingBacklogEvent):
                self._drop_kept(entry)
            else:
                entry.acked -= 1
                self._answered(entry, 1)

    def overdue(self, now: float) -> list[Subscriber]:
        """Return the readers, also those that have left, that owe an answer for longer than the ack timeout."""
        return [reader for reader, due in self.roster.due(self.ack_timeout) if due <= now]

    def deadline(self) -> float | None:
        """Return when the next reader is overdue, or None if no reader owes anything."""
        return min((due for _, due in self.roster.due(self.ack_timeout)), default=None)

    def _spill(self, entry: PendingEvent, readers: tuple[Subscriber, ...]) -> Spill:
        seq = self.next_seq
        self.next_seq = seq + 1
        claim = self._claims[seq] = Obligation(entry, tuple([reader.trigger_id for reader in readers]), "spilled", readers)
        for reader in readers:
            reader.spilled += 1
            reader.claims[seq] = claim
        return Spill(seq, entry, readers)

    def _remove(self, reader: Subscriber) -> None:
        self.roster.remove(reader)
        self.full.discard(reader)

    def _all_owed(self, reader: Subscriber) -> list[PendingEvent]:
        """Take from the reader all that it owes, but for its claims."""
        owed = [binding.entry for binding in reader.unconfirmed if binding is not reader.binding]
        entry = self._settle_open(reader)
        reader.open = None
        for binding in tuple(reader.unconfirmed):
            self._forget(binding)
        if entry is not None:
            owed.append(entry)
        return owed + reader.take_not_begun()

    def _settle_open(self, reader: Subscriber) -> PendingEvent | None:
        """Take from the reader what it is at and has not answered, with all that was bound to it."""
        entry = reader.open
        if entry is None or reader.settled:
            return None
        reader.settled = True
        if reader.binding is not None:
            self._forget(reader.binding)
            reader.binding = None
        return entry

    def _moved(self, reader: Subscriber) -> tuple[PendingEvent, ...]:
        """Take from the reader what it is at, and let it go on with what will be kept of it."""
        entry = reader.open
        if entry is None or reader.settled or isinstance(entry, PendingBacklogEvent):
            return ()
        kept = reader.open = reader.moved = PendingBacklogEvent.of(reader, entry, self.now)
        self._unresolved[kept] = None
        if reader.binding is not None:
            reader.binding.entry = kept
        return (entry,)

    def _close(self, binding: PendingConfirmation) -> None:
        """End a binding of which all is confirmed."""
        reader, entry = binding.reader, binding.entry
        del reader.unconfirmed[binding]
        if self.roster.leaving and not reader.unconfirmed:
            self.roster.leaving.pop(reader, None)
        if binding.rejected:
            self._rejected(entry, "dead_lettered", reader)
            return
        if entry.answers is not None:
            entry.answers.append(("fired", reader.who))
        entry.pending -= 1
        if not entry.pending:
            del self._unresolved[entry]
            self._resolve(entry)

    def _forget(self, binding: PendingConfirmation) -> None:
        """Give up on what of a binding is not confirmed."""
        del binding.reader.unconfirmed[binding]
        for seq in (binding.seq, *(binding.more or ())):
            self._bindings.pop(seq, None)

    def _confirm_claim(self, seq: int, claim: Obligation) -> None:
        entry, kind, weight = claim.entry, claim.kind, len(claim.who)
        if entry.answers is not None:
            entry.answers.append((kind, claim.who))
        if kind != "fired":
            entry.acked -= weight
            if kind == "spilled":
                entry.spilled += weight
            else:
                entry.rejected += weight
        for reader in claim.readers:
            del reader.claims[seq]
            if not reader.claims or reader.retries:
                self.drainable.append(reader)
        self._answered(entry, weight)
