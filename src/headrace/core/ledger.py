"""The ledger: every obligation of one shared stream, in one place, without a clock or a loop.

An *entry* is one raw event on the books. Who owes an answer to it is fixed when it is published: every *reader* that has joined (a
subscriber with a filter), and every *claim* (declared triggers, counted in bulk, whose events or dead letter must be stored).

    reader:  queued ──begin──► open ──end──► acked, or waiting for the confirmation of what was bound, then acked
                                 └──reject──► rejected
             leave: what is open ends, what is queued fails.        fail, or overdue and then fail: all it owes fails.
    claim:   owed ──confirm──► acked (or rejected, where it was marked so)

An entry is resolved when nobody owes anything. A lane is a queue of entries; `take_ready` gives out the resolved beginning of a lane, and
nothing more of this lane until `advanced` takes the batch off the books. A lane without entries is forgotten.

Late, unknown and doubled confirmations change nothing. No operation is linear in what is outstanding: `publish` costs what its readers and
claims are, `fail` and `leave` what the reader still owes; `overdue` and `deadline` look once at each reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.core.obligation import Binding, Claim, Counts, Entry, Lane, Reader
from headrace.core.outcome import AdvanceItem, AdvanceOutcome

_outcome = lru_cache(4096)(AdvanceOutcome)


class Published(NamedTuple):
    """What `publish` did: claim `i` has the seq `first_seq + i`, and these readers, until now idle, have something to read."""

    first_seq: int
    woken: Sequence[Reader]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The resolved beginning of one lane, to be advanced in one call."""

    lane: Lane
    items: list[AdvanceItem]
    position: int | None


@dataclass(slots=True)
class Ledger:
    """The books of one shared stream. `queue_limit`: readers with so many entries queued are in `full`. Seqs count up from `next_seq`."""

    queue_limit: int
    ack_timeout: float
    next_seq: int = 0
    counts: Counts = field(default_factory=Counts)
    outstanding: int = 0
    ready: deque[Lane] = field(default_factory=deque)
    full: set[Reader] = field(default_factory=set)
    lanes: dict[Hashable, Lane] = field(default_factory=dict)
    _readers: dict[Reader, None] = field(default_factory=dict)
    _leaving: dict[Reader, None] = field(default_factory=dict)
    _claims: dict[int, Claim] = field(default_factory=dict)
    _bindings: dict[int, Binding] = field(default_factory=dict)
    _unresolved: dict[Entry, None] = field(default_factory=dict)

    @property
    def has_readers(self) -> bool:
        """Whether the next raw event has a reader."""
        return bool(self._readers)

    def join(self, trigger_id: int) -> Reader:
        """Return a new reader, which owes an answer to all that is published from now on."""
        reader = Reader(trigger_id)
        self._readers[reader] = None
        return reader

    def publish(
        self,
        raw: Any,
        payload: Any,
        *,
        lane: Hashable,
        now: float,
        position: int | None = None,
        bystanders: int = 0,
        claims: Sequence[int] = (),
    ) -> Published:
        """Put a raw event on the books: owed by every reader, and by one claim for each weight in `claims`.

        `bystanders` are the declared triggers that do not want it; they count as acked.
        """
        books = self.lanes.get(lane)
        if books is None:
            books = self.lanes[lane] = Lane(lane)
        entry = Entry(raw, payload, books, position, now)
        books.entries.append(entry)
        books.read = position
        self.outstanding += 1
        self.counts.read += 1
        entry.acked = bystanders
        entry.pending = len(self._readers) + sum(claims)
        first_seq = self.next_seq
        if claims:
            entry.derived = True
            for seq, weight in enumerate(claims, first_seq):
                self._claims[seq] = Claim(entry, weight)
            self.next_seq += len(claims)
        if entry.pending:
            self._unresolved[entry] = None
        else:
            self._resolve(entry)
        return Published(first_seq, self._deliver(entry) if self._readers else ())

    def _deliver(self, entry: Entry) -> list[Reader]:
        woken = []
        limit = self.queue_limit
        for reader in self._readers:
            queue = reader.queue
            queue.append(entry)
            if reader.idle:
                reader.idle = False
                woken.append(reader)
            if len(queue) >= limit:
                self.full.add(reader)
        return woken

    def begin(self, reader: Reader) -> Entry | None:
        """Let the reader go on to its next entry, which ends the one it is at; None: nothing waits, and it is idle."""
        if reader.open is not None:
            self.end(reader)
        if not reader.queue:
            reader.idle = reader in self._readers
            return None
        if self.full:
            self.full.discard(reader)
        reader.open = entry = reader.queue.popleft()
        reader.settled = False
        return entry

    def bind(self, reader: Reader) -> int | None:
        """Return the seq of a thing just derived from the entry the reader is at; None: it is at none, or has rejected it."""
        entry = reader.open
        if entry is None or reader.settled:
            return None
        binding = reader.binding
        if binding is None:
            binding = reader.binding = Binding(reader, entry)
            reader.unconfirmed[binding] = None
        seq = self.next_seq
        self.next_seq = seq + 1
        binding.seqs.add(seq)
        self._bindings[seq] = binding
        entry.derived = True
        return seq

    def end(self, reader: Reader) -> None:
        """End what the reader is at: acked, as soon as all that was bound to it is confirmed."""
        entry, binding = reader.open, reader.binding
        reader.open = reader.binding = None
        if entry is None or reader.settled:
            return
        if binding is None:
            self._acked(entry)
            return
        binding.closed = True
        if not binding.seqs:
            self._close(binding)

    def confirm(self, seqs: Iterable[int]) -> None:
        """Record that these are durable."""
        for seq in seqs:
            claim = self._claims.pop(seq, None)
            if claim is not None:
                self._confirm_claim(claim)
                continue
            binding = self._bindings.pop(seq, None)
            if binding is not None:
                binding.seqs.discard(seq)
                if binding.closed and not binding.seqs:
                    self._close(binding)

    def mark_rejected(self, seq: int) -> None:
        """Let what `seq` stands for, once it is confirmed, count as rejected."""
        owed = self._claims.get(seq) or self._bindings.get(seq)
        if owed is not None:
            owed.rejected = True

    def reject(self, reader: Reader) -> bool:
        """Answer what the reader is at with a refusal, at once; False: it is at nothing that is open."""
        entry = reader.open
        if entry is None or reader.settled:
            return False
        reader.settled = True
        if reader.binding is not None:
            self._forget(reader.binding)
            reader.binding = None
        self._rejected(entry)
        return True

    def leave(self, reader: Reader) -> None:
        """Let the reader go: what it is at ends, what it never read fails, what it derived may still be confirmed."""
        self._remove(reader)
        self.end(reader)
        self._fail_queue(reader)
        if reader.unconfirmed:
            self._leaving[reader] = None

    def fail(self, reader: Reader) -> None:
        """Fail all that the reader owes, and let it go."""
        self._remove(reader)
        self._leaving.pop(reader, None)
        failed = [binding.entry for binding in reader.unconfirmed]
        if reader.open is not None and not reader.settled and reader.binding is None:
            failed.append(reader.open)
        for binding in tuple(reader.unconfirmed):
            self._forget(binding)
        reader.open = reader.binding = None
        for entry in failed:
            self._failed(entry)
        self._fail_queue(reader)

    def overdue(self, now: float) -> list[Reader]:
        """Return the readers, also those that have left, that owe an answer for longer than the ack timeout."""
        return [reader for reader, oldest in self._oldest() if oldest.published + self.ack_timeout <= now]

    def deadline(self) -> float | None:
        """Return when the next reader is overdue; None: no reader owes anything."""
        return min((oldest.published + self.ack_timeout for _, oldest in self._oldest()), default=None)

    def oldest_unresolved(self) -> Entry | None:
        """Return the oldest entry that someone owes an answer to."""
        return next(iter(self._unresolved), None)

    def readers_before(self, entry: Entry) -> list[Reader]:
        """Return the readers that are at `entry` or have not come to it; linear in what waits for them."""
        return [reader for reader in self._readers if reader.has_not_ended(entry)]

    def take_ready(self) -> Batch | None:
        """Return the resolved beginning of a lane, which is then busy until `advanced`; None: no lane has one."""
        if not self.ready:
            return None
        lane = self.ready.popleft()
        entries = lane.entries
        items: list[AdvanceItem] = []
        position = None
        while entries and not entries[0].pending:
            entry = entries.popleft()
            position = entry.position
            items.append(AdvanceItem(entry.payload, _outcome(entry.acked, entry.failed, entry.rejected)))
        lane.busy = True
        lane.in_flight = len(items)
        return Batch(lane, items, position)

    def advanced(self, batch: Batch) -> None:
        """Take an advanced batch off the books; its lane may go on, and is forgotten where nothing of it is left."""
        lane = batch.lane
        lane.busy = False
        lane.in_flight = 0
        lane.advanced = batch.position
        self.outstanding -= len(batch.items)
        self.counts.advanced += len(batch.items)
        if not lane.entries:
            del self.lanes[lane.key]
        elif not lane.entries[0].pending:
            self.ready.append(lane)

    def _oldest(self) -> Iterator[tuple[Reader, Entry]]:
        for readers in (self._readers, self._leaving):
            for reader in readers:
                oldest = reader.oldest()
                if oldest is not None:
                    yield reader, oldest

    def _remove(self, reader: Reader) -> None:
        self._readers.pop(reader, None)
        self.full.discard(reader)

    def _fail_queue(self, reader: Reader) -> None:
        while reader.queue:
            self._failed(reader.queue.popleft())

    def _close(self, binding: Binding) -> None:
        """End a binding of which all is confirmed."""
        reader = binding.reader
        del reader.unconfirmed[binding]
        if self._leaving and not reader.unconfirmed:
            self._leaving.pop(reader, None)
        if binding.rejected:
            self._rejected(binding.entry)
        else:
            self._acked(binding.entry)

    def _forget(self, binding: Binding) -> None:
        """Give up on what of a binding is not confirmed."""
        del binding.reader.unconfirmed[binding]
        for seq in binding.seqs:
            del self._bindings[seq]

    def _confirm_claim(self, claim: Claim) -> None:
        entry = claim.entry
        if claim.rejected:
            entry.rejected += claim.weight
        else:
            entry.acked += claim.weight
        self._answered(entry, claim.weight)

    def _acked(self, entry: Entry) -> None:
        # The way of nearly every answer: `_answered`, written out.
        entry.acked += 1
        entry.pending -= 1
        if not entry.pending:
            del self._unresolved[entry]
            self._resolve(entry)

    def _rejected(self, entry: Entry) -> None:
        entry.rejected += 1
        self._answered(entry, 1)

    def _failed(self, entry: Entry) -> None:
        entry.failed += 1
        self._answered(entry, 1)

    def _answered(self, entry: Entry, weight: int) -> None:
        entry.pending -= weight
        if not entry.pending:
            del self._unresolved[entry]
            self._resolve(entry)

    def _resolve(self, entry: Entry) -> None:
        counts = self.counts
        counts.filtered += not (entry.derived or entry.rejected or entry.failed)
        counts.rejected += entry.rejected > 0
        counts.failed += entry.failed > 0
        lane = entry.lane
        if lane.entries[0] is entry and not lane.busy:
            self.ready.append(lane)
