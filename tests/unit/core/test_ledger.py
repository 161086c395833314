from __future__ import annotations

import random

import pytest

from headrace.core.ledger import Batch, Ledger
from headrace.core.obligation import Reader
from headrace.core.outcome import AdvanceOutcome
from ledger_model import Model, Row

ACKED = AdvanceOutcome(1, 0)


def ledger(queue_limit: int = 100, ack_timeout: float = 10.0) -> Ledger:
    return Ledger(queue_limit, ack_timeout)


def advance(books: Ledger) -> list[tuple[object, AdvanceOutcome]]:
    """Take all that is ready, and settle it."""
    done: list[tuple[object, AdvanceOutcome]] = []
    while (batch := books.take_ready()) is not None:
        done.extend(batch.items)
        books.advanced(batch)
    return done


def test_without_subscribers_an_entry_is_ready_at_once_and_not_clean() -> None:
    books = ledger()
    books.publish("raw", "p", lane=None, now=0)
    [(payload, outcome)] = advance(books)
    assert (payload, outcome) == ("p", AdvanceOutcome(0, 0))
    assert not outcome.is_clean
    assert not books.lanes
    assert books.outstanding == 0


def test_a_reader_acks_by_going_on() -> None:
    books = ledger()
    reader = books.join(1)
    books.publish("raw", "p", lane=None, now=0)
    entry = books.begin(reader)
    assert entry is not None
    assert entry.raw == "raw"
    assert books.take_ready() is None
    assert books.begin(reader) is None
    assert advance(books) == [("p", ACKED)]
    assert books.counts.filtered == 1


def test_what_was_derived_must_be_confirmed() -> None:
    books = ledger()
    reader = books.join(1)
    books.publish("raw", "p", lane=None, now=0)
    books.begin(reader)
    first, second = books.bind(reader), books.bind(reader)
    assert first is not None
    assert second is not None
    books.end(reader)
    books.confirm([first, 999, first])
    assert advance(books) == []
    books.confirm([second])
    assert advance(books) == [("p", ACKED)]
    books.confirm([first, second])
    assert books.counts.filtered == 0


def test_a_confirmation_may_come_before_the_reader_goes_on() -> None:
    books = ledger()
    reader = books.join(1)
    books.publish("raw", "p", lane=None, now=0)
    books.begin(reader)
    seq = books.bind(reader)
    assert seq is not None
    books.confirm([seq])
    assert books.take_ready() is None
    books.end(reader)
    assert advance(books) == [("p", ACKED)]


def test_a_reject_counts_at_once_and_only_once() -> None:
    books = ledger()
    reader = books.join(1)
    assert not books.reject(reader)
    books.publish("raw", "p", lane=None, now=0)
    books.begin(reader)
    bound = books.bind(reader)
    assert books.reject(reader)
    assert advance(books) == [("p", AdvanceOutcome(0, 0, 1))]
    assert not books.reject(reader)
    assert books.bind(reader) is None
    assert bound is not None
    books.confirm([bound])
    books.end(reader)
    assert books.counts.rejected == 1


def test_one_that_leaves_acks_what_it_is_at_and_fails_what_it_never_read() -> None:
    books = ledger()
    reader = books.join(1)
    for payload in "abc":
        books.publish("raw", payload, lane=None, now=0)
    books.begin(reader)
    books.begin(reader)
    books.leave(reader)
    assert [outcome for _, outcome in advance(books)] == [ACKED, ACKED, AdvanceOutcome(0, 1)]
    assert books.begin(reader) is None
    assert not reader.idle


def test_one_that_left_is_still_confirmed_or_overdue() -> None:
    books = ledger(ack_timeout=10)
    left, late = books.join(1), books.join(2)
    books.publish("raw", "a", lane="a", now=0)
    seqs = {}
    for reader in (left, late):
        books.begin(reader)
        seqs[reader] = books.bind(reader)
        books.leave(reader)
    first = seqs[left]
    assert first is not None
    books.confirm([first])
    assert books.overdue(9.9) == []
    assert books.overdue(10) == [late]
    books.fail(late)
    assert books.overdue(10) == []
    assert advance(books) == [("a", AdvanceOutcome(1, 1))]
    assert books.deadline() is None


def test_failing_a_reader_fails_all_that_it_owes() -> None:
    books = ledger()
    reader, other = books.join(1), books.join(2)
    for payload in "abcd":
        books.publish("raw", payload, lane=None, now=0)
    books.begin(reader)
    books.bind(reader)
    books.begin(reader)
    books.begin(reader)
    assert books.reject(reader)
    books.fail(reader)
    while books.begin(other) is not None:
        pass
    assert [outcome for _, outcome in advance(books)] == [
        AdvanceOutcome(1, 1),
        AdvanceOutcome(2, 0),
        AdvanceOutcome(1, 0, 1),
        AdvanceOutcome(1, 1),
    ]
    assert books.counts.failed == 2


def test_failing_a_reader_fails_what_it_is_at() -> None:
    books = ledger()
    reader = books.join(1)
    books.publish("raw", "a", lane=None, now=0)
    books.begin(reader)
    books.fail(reader)
    assert advance(books) == [("a", AdvanceOutcome(0, 1))]


def test_claims_are_counted_in_bulk_and_never_overdue() -> None:
    books = ledger(ack_timeout=1)
    published = books.publish("raw", "p", lane=None, now=0, bystanders=90, claims=(7, 3))
    assert published.first_seq == 0
    assert books.overdue(1000) == []
    books.mark_rejected(1)
    books.mark_rejected(1000)
    books.confirm([0])
    assert books.take_ready() is None
    books.confirm([1])
    assert advance(books) == [("p", AdvanceOutcome(97, 0, 3))]


def test_a_bound_seq_can_be_marked_rejected() -> None:
    books = ledger()
    reader = books.join(1)
    books.publish("raw", "p", lane=None, now=0)
    books.begin(reader)
    seq = books.bind(reader)
    assert seq is not None
    books.mark_rejected(seq)
    books.end(reader)
    books.confirm([seq])
    assert advance(books) == [("p", AdvanceOutcome(0, 0, 1))]


def test_a_lane_advances_in_order_one_batch_at_a_time_and_others_do_not_wait() -> None:
    books = ledger()
    seqs = [books.publish("raw", n, lane=n % 2, now=0, position=n, claims=(1,)).first_seq for n in range(6)]
    books.confirm(seqs[2:])
    assert books.take_ready() is None
    books.confirm([seqs[1]])
    odd = books.take_ready()
    assert odd is not None
    assert [item.broker_payload for item in odd.items] == [1, 3, 5]
    books.confirm([seqs[0]])
    even = books.take_ready()
    assert even is not None
    assert [item.broker_payload for item in even.items] == [0, 2, 4]

    late = books.publish("raw", 7, lane=1, now=0, position=7, claims=(1,))
    books.confirm([late.first_seq])
    assert books.take_ready() is None, "lane 1 is in flight"
    assert books.lanes[1].outstanding == 4
    books.advanced(odd)
    assert books.lanes[1].advanced == 5
    books.advanced(even)
    assert list(books.lanes) == [1]
    assert advance(books) == [(7, ACKED)]
    assert not books.lanes
    assert books.counts.advanced == books.counts.read == 7


def test_an_advanced_lane_waits_for_what_is_not_resolved() -> None:
    books = ledger()
    first = books.publish("raw", 0, lane=0, now=0, claims=(1,)).first_seq
    second = books.publish("raw", 1, lane=0, now=0, claims=(1,)).first_seq
    books.confirm([first])
    assert advance(books) == [(0, ACKED)]
    books.confirm([second])
    assert advance(books) == [(1, ACKED)]


def test_a_full_queue_is_known_until_its_reader_reads() -> None:
    books = ledger(queue_limit=2)
    reader = books.join(1)
    books.publish("raw", 0, lane=0, now=0)
    assert not books.full
    books.publish("raw", 1, lane=0, now=0)
    assert books.full == {reader}
    books.begin(reader)
    assert not books.full


def test_only_idle_readers_are_woken() -> None:
    books = ledger()
    idle, busy = books.join(1), books.join(2)
    assert books.begin(idle) is None
    assert books.publish("raw", 0, lane=0, now=0).woken == [idle]
    assert books.publish("raw", 1, lane=0, now=0).woken == []
    assert books.has_readers
    books.fail(idle)
    books.leave(busy)
    assert not books.has_readers


def test_who_holds_the_oldest() -> None:
    books = ledger()
    slow, fast = books.join(1), books.join(2)
    assert books.oldest_unresolved() is None
    books.publish("raw", 0, lane=0, now=5)
    oldest = books.oldest_unresolved()
    assert oldest is not None
    books.begin(fast)
    books.bind(fast)
    books.begin(fast)
    assert books.readers_before(oldest) == [slow]
    books.begin(slow)
    assert books.readers_before(oldest) == [slow]
    books.reject(slow)
    assert books.readers_before(oldest) == []
    assert books.oldest_unresolved() is oldest
    assert books.deadline() == 15


class Interleaving:
    """One random life of a ledger, step by step beside the model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.books = ledger(ack_timeout=20.0)
        self.model = Model(20.0)
        self.now = 0.0
        self.readers: list[Reader] = []
        self.seqs: list[int] = []
        self.in_flight: list[tuple[Batch, list[Row]]] = []

    def step(self) -> None:
        self.now += self.random.choice((0.0, 0.5, 1.0))
        steps = (self.join, self.publish, self.publish, self.begin, self.begin, self.bind, self.end, self.confirm, self.confirm)
        rare = (self.reject, self.mark, self.leave, self.fail_overdue, self.fail_one)
        self.random.choice((*steps, *steps, *rare, self.take, self.settle, self.settle))()
        self.check()

    def reader(self) -> Reader | None:
        return self.random.choice(self.readers) if self.readers else None

    def join(self) -> None:
        if len(self.model.live) < 4:
            reader = self.books.join(len(self.readers))
            self.readers.append(reader)
            self.model.live.append(reader)

    def publish(self) -> None:
        lane, bystanders = self.random.choice("abc"), self.random.randrange(3)
        weights = [self.random.randint(1, 3) for _ in range(self.random.choice((0, 0, 1, 2)))]
        published = self.books.publish(
            len(self.model.rows), len(self.model.rows), lane=lane, now=self.now, bystanders=bystanders, claims=weights
        )
        claims = list(enumerate(weights, published.first_seq))
        self.seqs.extend(seq for seq, _ in claims)
        self.model.publish(lane, self.now, claims, bystanders)

    def begin(self) -> None:
        if (reader := self.reader()) is not None:
            entry = self.books.begin(reader)
            assert (None if entry is None else entry.raw) == self.model.begin(reader)

    def bind(self) -> None:
        if (reader := self.reader()) is not None:
            seq = self.books.bind(reader)
            assert (seq is None) == (self.model.at(reader) is None)
            if seq is not None:
                self.seqs.append(seq)
                self.model.bind(reader, seq)

    def end(self) -> None:
        if (reader := self.reader()) is not None:
            self.books.end(reader)
            self.model.end(reader)

    def confirm(self) -> None:
        seqs = self.random.sample(self.seqs, min(len(self.seqs), self.random.randint(1, 6)))
        self.books.confirm([*seqs, 10**9])
        for seq in seqs:
            self.model.confirm(seq)

    def mark(self) -> None:
        if self.seqs:
            seq = self.random.choice(self.seqs)
            self.books.mark_rejected(seq)
            self.model.mark(seq)

    def reject(self) -> None:
        if (reader := self.reader()) is not None:
            assert self.books.reject(reader) == self.model.reject(reader)

    def leave(self) -> None:
        if (reader := self.reader()) is not None:
            self.books.leave(reader)
            self.model.leave(reader)

    def fail_one(self) -> None:
        if self.random.random() < 0.3 and (reader := self.reader()) is not None:
            self.books.fail(reader)
            self.model.fail(reader)

    def fail_overdue(self) -> None:
        overdue = self.books.overdue(self.now)
        assert set(overdue) == self.model.overdue(self.now)
        for reader in overdue:
            self.books.fail(reader)
            self.model.fail(reader)

    def take(self) -> None:
        while (batch := self.books.take_ready()) is not None:
            rows = self.model.ready()[str(batch.lane.key)]
            assert [tuple(item) for item in batch.items] == [(row.number, row.outcome) for row in rows]
            for row in rows:
                row.taken = True
            self.in_flight.append((batch, rows))

    def settle(self) -> None:
        if self.in_flight:
            batch, rows = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            self.books.advanced(batch)
            for row in rows:
                row.taken, row.advanced = False, True

    def check(self) -> None:
        books, model = self.books, self.model
        assert {lane.key for lane in books.ready} == set(model.ready())
        assert len(books.ready) == len(model.ready())
        assert books.deadline() == model.deadline()
        assert books.outstanding == sum(not row.advanced for row in model.rows)
        assert set(books.lanes) == {row.lane for row in model.rows if not row.advanced}
        oldest = books.oldest_unresolved()
        assert (None if oldest is None else oldest.raw) == next((row.number for row in model.rows if not row.resolved), None)

    def finish(self) -> None:
        """Whatever happened, when all leave and all is confirmed, everything advances, and the books are empty."""
        for reader in self.readers:
            self.books.leave(reader)
            self.model.leave(reader)
        self.books.confirm(self.seqs)
        for seq in self.seqs:
            self.model.confirm(seq)
        while self.in_flight or self.books.ready:
            self.take()
            self.settle()
        rows = self.model.rows
        assert all(row.advanced for row in rows)
        counts = self.books.counts
        assert counts.advanced == counts.read == len(rows)
        assert counts.rejected == sum(row.outcome.rejected > 0 for row in rows)
        assert counts.failed == sum(row.outcome.failed > 0 for row in rows)
        assert counts.filtered == sum(not (row.derived or row.outcome.rejected or row.outcome.failed) for row in rows)
        assert not self.books.lanes
        assert self.books.deadline() is None
        assert not any(
            getattr(self.books, name) for name in ("_readers", "_leaving", "_claims", "_bindings", "_unresolved", "ready", "full")
        )


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_any_interleaving_does_what_the_model_does(first: int) -> None:
    for seed in range(first, first + 40):
        life = Interleaving(seed)
        try:
            for _ in range(120):
                life.step()
            life.finish()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
