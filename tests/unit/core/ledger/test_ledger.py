from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Literal

import pytest

from headrace.core.ledger.ledger import Ledger
from headrace.core.ledger.obligations import Batch, Subscriber
from headrace.core.ledger.outcome import AdvanceOutcome
from support.pipelines.ledger_model import Model, Row

ACKED = AdvanceOutcome(1, 0)


def ledger(queue_limit: int = 100, ack_timeout: float = 10.0) -> Ledger:
    return Ledger(queue_limit, ack_timeout)


def confirm(books: Ledger, seqs: Iterable[int]) -> None:
    for seq in seqs:
        books.confirm(seq)


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
    confirm(books, [first, 999, first])
    assert advance(books) == []
    confirm(books, [second])
    assert advance(books) == [("p", ACKED)]
    confirm(books, [first, second])
    assert books.counts.filtered == 0


def test_a_confirmation_may_come_before_the_reader_goes_on() -> None:
    books = ledger()
    reader = books.join(1)
    books.publish("raw", "p", lane=None, now=0)
    books.begin(reader)
    seq = books.bind(reader)
    assert seq is not None
    confirm(books, [seq])
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
    confirm(books, [bound])
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
    confirm(books, [first])
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
    books.declare(tuple(range(100)))
    published = books.publish("raw", "p", lane=None, now=0, claims=(tuple(range(7)), (7, 8, 9)))
    assert published[0] == 0
    assert books.overdue(1000) == []
    books.mark_rejected(1)
    books.mark_rejected(1000)
    confirm(books, [0])
    assert books.take_ready() is None
    confirm(books, [1])
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
    confirm(books, [seq])
    assert advance(books) == [("p", AdvanceOutcome(0, 0, 1))]


def test_a_lane_advances_in_order_one_batch_at_a_time_and_others_do_not_wait() -> None:
    books = ledger()
    books.declare((1,))
    seqs = [books.publish("raw", n, lane=n % 2, now=0, position=n, claims=((1,),))[0] for n in range(6)]
    confirm(books, seqs[2:])
    assert books.take_ready() is None
    confirm(books, [seqs[1]])
    odd = books.take_ready()
    assert odd is not None
    assert [item.broker_payload for item in odd.items] == [1, 3, 5]
    confirm(books, [seqs[0]])
    even = books.take_ready()
    assert even is not None
    assert [item.broker_payload for item in even.items] == [0, 2, 4]

    late = books.publish("raw", 7, lane=1, now=0, position=7, claims=((1,),))
    confirm(books, [late[0]])
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
    books.declare((1,))
    first = books.publish("raw", 0, lane=0, now=0, claims=((1,),))[0]
    second = books.publish("raw", 1, lane=0, now=0, claims=((1,),))[0]
    confirm(books, [first])
    assert advance(books) == [(0, ACKED)]
    confirm(books, [second])
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
    assert books.publish("raw", 0, lane=0, now=0)[1] == [idle]
    assert books.publish("raw", 1, lane=0, now=0)[1] == []
    assert books.roster.reading
    books.fail(idle)
    books.leave(busy)
    assert not books.roster.reading


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
    assert books.roster.before(oldest) == [slow]
    books.begin(slow)
    assert books.roster.before(oldest) == [slow]
    books.reject(slow)
    assert books.roster.before(oldest) == []
    assert books.oldest_unresolved() is oldest
    assert books.deadline() == 15


def test_what_a_reader_is_at_is_spilled_in_its_order_and_its_answer_settled_when_its_number_is_known() -> None:
    books = ledger()
    reader = books.register(1)
    books.catch_up(reader)
    books.go_live(reader)
    for payload in "abc":
        books.publish(payload, payload, lane=None, now=0)
    books.begin(reader)
    seq = books.bind(reader)
    spills = books.spill([reader], stop=False)
    assert [spill.entry.raw for spill in spills] == ["a", "b", "c"]
    confirm(books, [spill.seq for spill in spills])
    assert [outcome for _, outcome in advance(books)] == [AdvanceOutcome(0, 0, 0, 1)] * 3
    assert books.drainable == [reader]
    books.found(reader, 7)
    assert books.begin(reader) is None
    assert reader.answers == []
    assert seq is not None
    confirm(books, [seq])
    assert reader.answers == [(7, "fired")]
    assert list(books.settling) == [reader]


class Interleaving:
    """One random life of a ledger, step by step beside the model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.books = Ledger(5, 20.0, keeps_custody=True)
        self.model = Model(20.0)
        self.now = 0.0
        self.readers: list[Subscriber] = []
        self.seqs: list[int] = []
        self.published = self.kept = 0
        self.settled: list[tuple[int, int, str]] = []
        self.in_flight: list[tuple[Batch, list[Row]]] = []

    def step(self) -> None:
        self.now += self.random.choice((0.0, 0.5, 1.0))
        self.books.now = self.now
        steps = (self.publish, self.publish, self.begin, self.begin, self.begin, self.bind, self.end, self.confirm, self.confirm)
        rare = (self.join, self.register, self.declare, self.reject, self.dead_letter, self.mark, self.leave, self.drop, self.requeue)
        drains = (
            self.spill,
            self.catch_up,
            self.go_live,
            self.found,
            self.recheck_backlog,
            self.begin_from_backlog,
            self.begin_from_backlog,
            self.begin_from_backlog,
        )
        late = (self.fail_overdue, self.fail_one, self.take, self.settle, self.settle, self.settle_kept)
        self.random.choice((*steps, *steps, *rare, *drains, *late))()
        self.check()

    def reader(self, *, registered: bool | None = None) -> Subscriber | None:
        """Some reader, also one that is gone."""
        fitting = [one for one in self.readers if registered is None or (one.registered == registered)]
        return self.random.choice(fitting) if fitting else None

    def here(self) -> Subscriber | None:
        """Some registered reader that is not gone."""
        fitting = [one for one in self.model.mode if one.registered]
        return self.random.choice(fitting) if fitting else None

    def join(self) -> None:
        if len(self.model.mode) < 5:
            reader = self.books.join(100 + len(self.readers))
            self.readers.append(reader)
            self.model.mode[reader] = "live"

    def register(self) -> None:
        if len(self.model.mode) < 5:
            reader = self.books.register(100 + len(self.readers))
            self.readers.append(reader)
            self.model.mode[reader] = "away"

    def declare(self) -> None:
        self.model.declared = tuple(range(self.random.randrange(6)))
        self.books.declare(self.model.declared)

    def publish(self) -> None:
        lane, number = self.random.choice("abc"), self.published
        wanted = [one for one in self.model.declared if self.random.random() < 0.5]
        middle = self.random.randint(0, len(wanted))
        claims = [tuple(ids) for ids in (wanted[:middle], wanted[middle:]) if ids]
        self.published += 1
        first_seq, _, spill = self.books.publish(number, number, lane=lane, now=self.now, position=number, claims=claims)
        away = [reader for reader, mode in self.model.mode.items() if mode == "away"]
        assert set(() if spill is None else spill.readers) == set(away)
        named = list(enumerate(claims, first_seq))
        self.seqs.extend(seq for seq, _ in named)
        if spill is not None:
            self.seqs.append(spill.seq)
        self.model.publish(number, lane, self.now, named, None if spill is None else spill.seq)

    def begin(self) -> None:
        if (reader := self.reader()) is not None:
            entry = self.books.begin(reader)
            assert (None if entry is None else entry.raw) == self.model.begin(reader, self.now)

    def begin_from_backlog(self) -> None:
        reader = self.here()
        if reader is not None and self.model.mode[reader] != "live":
            entry = self.books.begin(reader)
            assert (None if entry is None else entry.raw) == self.model.begin(reader, self.now)
            if entry is None:
                self.kept += 1
                self.books.begin_from_backlog(reader, self.kept, f"kept {self.kept}", "text", "kept")
                self.model.begin_from_backlog(reader, self.kept, self.now)

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
        confirm(self.books, [*seqs, 10**9])
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

    def dead_letter(self) -> None:
        if (reader := self.here()) is not None:
            kind: Literal["rejected", "dead_lettered"] = self.random.choice(("rejected", "dead_lettered"))
            seq = self.books.dead_letter(reader, kind)
            assert (seq is None) == (self.model.at(reader) is None)
            if seq is not None:
                self.seqs.append(seq)
                self.model.dead_letter(reader, seq, kind)

    def requeue(self) -> None:
        if (reader := self.here()) is not None:
            entry = self.books.requeue(reader)
            assert (None if entry is None else entry.raw) == self.model.requeue(reader)

    def spill(self) -> None:
        here = [reader for reader in self.model.mode if reader.registered]
        readers = self.random.sample(here, min(len(here), self.random.randint(1, 2)))
        stop = self.random.random() < 0.5
        spills = self.books.spill(readers, stop=stop)
        assert [(entry.raw, list(who)) for _, entry, who in spills] == self.model.spill(readers, self.now, stop=stop)
        for seq, entry, who in spills:
            self.seqs.append(seq)
            self.model.spilled(entry.raw, who, seq)

    def catch_up(self) -> None:
        if (reader := self.here()) is not None:
            self.books.catch_up(reader)
            if self.model.mode[reader] == "away":
                self.model.mode[reader] = "collecting"

    def go_live(self) -> None:
        if (reader := self.here()) is not None:
            self.books.go_live(reader)
            self.model.moved.pop(reader, None)
            if self.model.mode[reader] == "collecting":
                self.model.mode[reader] = "live"

    def found(self) -> None:
        if (reader := self.here()) is not None:
            self.kept += 1
            self.books.found(reader, self.kept)
            self.model.found(reader, self.kept)

    def recheck_backlog(self) -> None:
        if (reader := self.here()) is not None:
            reader.recheck_backlog()
            if self.model.mode[reader] == "live":
                self.model.mode[reader] = "collecting"

    def leave(self) -> None:
        if (reader := self.reader(registered=False)) is not None:
            self.books.leave(reader)
            self.model.leave(reader)

    def drop(self) -> None:
        if self.random.random() < 0.5 and (reader := self.here()) is not None:
            self.settle_kept()
            self.books.drop(reader)
            self.model.drop(reader)

    def fail_one(self) -> None:
        if self.random.random() < 0.3 and (reader := self.reader(registered=False)) is not None:
            self.books.fail(reader)
            self.model.fail(reader)

    def fail_overdue(self) -> None:
        overdue = self.books.overdue(self.now)
        assert set(overdue) == self.model.overdue(self.now)
        for reader in overdue:
            if not reader.registered:
                self.books.fail(reader)
                self.model.fail(reader)

    def take(self) -> None:
        while (batch := self.books.take_ready()) is not None:
            rows = self.model.ready()[str(batch.lane.key)]
            assert [tuple(item) for item in batch.items] == [(row.number, row.outcome) for row in rows]
            for entry, row in zip(batch.entries, rows, strict=True):
                assert entry.owed == row.owed
                assert sorted((kind, one) for kind, who in entry.answers or () for one in who) == row.answers
            for row in rows:
                row.taken = True
            self.in_flight.append((batch, rows))

    def settle(self) -> None:
        if self.in_flight:
            batch, rows = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            self.books.advanced(batch)
            for row in rows:
                row.taken, row.advanced = False, True

    def settle_kept(self) -> None:
        while self.books.settling:
            reader, _ = self.books.settling.popitem()
            numbers = [number for number, _ in reader.answers]
            self.settled += [(reader.trigger_id, number, answer) for number, answer in reader.answers]
            reader.answers.clear()
            assert set(numbers) <= reader.unsettled.keys()
            self.books.settled(reader, numbers)

    def check(self) -> None:
        books, model = self.books, self.model
        rows = [row for row in model.rows if not row.is_kept]
        assert {lane.key for lane in books.ready} == set(model.ready())
        assert len(books.ready) == len(model.ready())
        assert books.deadline() == model.deadline()
        assert books.outstanding == sum(not row.advanced for row in rows)
        assert set(books.lanes) == {row.lane for row in rows if not row.advanced}
        oldest = books.oldest_unresolved()
        assert (None if oldest is None else oldest.raw) == next((row.number for row in model.rows if not row.resolved), None)
        for reader in self.readers:
            queued = sum(duty.state == "queued" for _, duty in model.duties(reader))
            assert len(reader.queue) == queued
            assert (reader in books.full) <= (queued >= books.queue_limit)
            unconfirmed = {
                seq for _, duty in model.duties(reader) if duty.kind in ("spilled", "dead_lettered", "rejected") for seq in duty.seqs
            }
            assert reader.claims.keys() <= unconfirmed

    def finish(self) -> None:
        """Whatever happened, when all leave and all is confirmed, everything advances, and the books are empty."""
        for reader in [one for one in self.model.mode if one.registered]:
            for seq, entry, who in self.books.spill([reader], stop=True):
                self.model.spill([reader], self.now, stop=True)
                self.model.spilled(entry.raw, who, seq)
                self.seqs.append(seq)
            self.model.requeue(reader)
        for reader in self.readers:
            if not reader.registered:
                self.books.leave(reader)
                self.model.leave(reader)
        confirm(self.books, self.seqs)
        for seq in self.seqs:
            self.model.confirm(seq)
        self.settle_kept()
        assert sorted(self.settled) == sorted(self.model.settled)
        for reader in [one for one in self.model.mode if one.registered]:
            self.books.drop(reader)
            self.model.drop(reader)
        while self.in_flight or self.books.ready:
            self.take()
            self.settle()
        rows = [row for row in self.model.rows if not row.is_kept]
        assert all(row.advanced for row in rows)
        counts = self.books.counts
        assert counts.advanced == counts.read == counts.resolved == len(rows)
        assert counts.rejected == sum(row.outcome.rejected > 0 for row in rows)
        assert counts.failed == sum(row.outcome.failed > 0 for row in rows)
        assert counts.spilled == sum(row.outcome.spilled > 0 for row in rows)
        told = [row.outcome.rejected or row.outcome.failed or row.outcome.spilled for row in rows]
        assert counts.filtered == sum(not (row.derived or some) for row, some in zip(rows, told, strict=True))
        assert not self.books.lanes
        assert self.books.deadline() is None
        empty = ("_claims", "_bindings", "_unresolved", "ready", "full", "settling")
        assert [name for name in empty if getattr(self.books, name)] == []
        roster = self.books.roster
        assert not any((roster.reading, roster.away, roster.leaving))


@pytest.mark.parametrize("first", range(0, 400, 40))
def test_any_interleaving_does_what_the_model_does(first: int) -> None:
    for seed in range(first, first + 40):
        life = Interleaving(seed)
        try:
            for _ in range(140):
                life.step()
            life.finish()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
