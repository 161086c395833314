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


def new_ledger(queue_limit: int = 100, ack_timeout: float = 10.0) -> Ledger:
    return Ledger(queue_limit, ack_timeout)


def confirm(ledger: Ledger, seqs: Iterable[int]) -> None:
    for seq in seqs:
        ledger.confirm(seq)


def advance(ledger: Ledger) -> list[tuple[object, AdvanceOutcome]]:
    """Take all that is ready, and settle it."""
    done: list[tuple[object, AdvanceOutcome]] = []
    while (batch := ledger.take_ready()) is not None:
        done.extend(batch.items)
        ledger.advanced(batch)
    return done


def test_an_entry_without_subscribers_is_ready_and_not_clean() -> None:
    ledger = new_ledger()
    ledger.publish("raw", "p", lane=None, now=0)
    [(payload, outcome)] = advance(ledger)
    assert (payload, outcome) == ("p", AdvanceOutcome(0, 0))
    assert not outcome.is_clean
    assert not ledger.lanes
    assert ledger.outstanding == 0


def test_a_subscriber_acks_an_entry_when_it_requests_the_next() -> None:
    ledger = new_ledger()
    reader = ledger.join(1)
    ledger.publish("raw", "p", lane=None, now=0)
    entry = ledger.begin(reader)
    assert entry is not None
    assert entry.raw == "raw"
    assert ledger.take_ready() is None
    assert ledger.begin(reader) is None
    assert advance(ledger) == [("p", ACKED)]
    assert ledger.counters.filtered == 1


def test_an_entry_waits_for_the_confirmation_of_all_its_trigger_events() -> None:
    ledger = new_ledger()
    reader = ledger.join(1)
    ledger.publish("raw", "p", lane=None, now=0)
    ledger.begin(reader)
    first, second = ledger.bind(reader), ledger.bind(reader)
    assert first is not None
    assert second is not None
    ledger.end(reader)
    confirm(ledger, [first, 999, first])
    assert advance(ledger) == []
    confirm(ledger, [second])
    assert advance(ledger) == [("p", ACKED)]
    confirm(ledger, [first, second])
    assert ledger.counters.filtered == 0


def test_a_confirmation_may_precede_the_end_of_an_entry() -> None:
    ledger = new_ledger()
    reader = ledger.join(1)
    ledger.publish("raw", "p", lane=None, now=0)
    ledger.begin(reader)
    seq = ledger.bind(reader)
    assert seq is not None
    confirm(ledger, [seq])
    assert ledger.take_ready() is None
    ledger.end(reader)
    assert advance(ledger) == [("p", ACKED)]


def test_a_rejection_resolves_an_entry_and_counts_once() -> None:
    ledger = new_ledger()
    reader = ledger.join(1)
    assert not ledger.reject(reader)
    ledger.publish("raw", "p", lane=None, now=0)
    ledger.begin(reader)
    bound = ledger.bind(reader)
    assert ledger.reject(reader)
    assert advance(ledger) == [("p", AdvanceOutcome(0, 0, 1))]
    assert not ledger.reject(reader)
    assert ledger.bind(reader) is None
    assert bound is not None
    confirm(ledger, [bound])
    ledger.end(reader)
    assert ledger.counters.rejected == 1


def test_a_leaving_subscriber_acks_its_open_entry_and_fails_unread_entries() -> None:
    ledger = new_ledger()
    reader = ledger.join(1)
    for payload in "abc":
        ledger.publish("raw", payload, lane=None, now=0)
    ledger.begin(reader)
    ledger.begin(reader)
    ledger.leave(reader)
    assert [outcome for _, outcome in advance(ledger)] == [ACKED, ACKED, AdvanceOutcome(0, 1)]
    assert ledger.begin(reader) is None
    assert not reader.idle


def test_entries_of_a_departed_subscriber_are_confirmed_or_overdue() -> None:
    ledger = new_ledger(ack_timeout=10)
    left, late = ledger.join(1), ledger.join(2)
    ledger.publish("raw", "a", lane="a", now=0)
    seqs = {}
    for reader in (left, late):
        ledger.begin(reader)
        seqs[reader] = ledger.bind(reader)
        ledger.leave(reader)
    first = seqs[left]
    assert first is not None
    confirm(ledger, [first])
    assert ledger.subscribers.overdue(9.9, ledger.ack_timeout) == []
    assert ledger.subscribers.overdue(10, ledger.ack_timeout) == [late]
    ledger.fail(late)
    assert ledger.subscribers.overdue(10, ledger.ack_timeout) == []
    assert advance(ledger) == [("a", AdvanceOutcome(1, 1))]
    assert ledger.subscribers.deadline(ledger.ack_timeout) is None


def test_a_failed_subscriber_fails_all_entries_that_it_owes() -> None:
    ledger = new_ledger()
    reader, other = ledger.join(1), ledger.join(2)
    for payload in "abcd":
        ledger.publish("raw", payload, lane=None, now=0)
    ledger.begin(reader)
    ledger.bind(reader)
    ledger.begin(reader)
    ledger.begin(reader)
    assert ledger.reject(reader)
    ledger.fail(reader)
    while ledger.begin(other) is not None:
        pass
    assert [outcome for _, outcome in advance(ledger)] == [
        AdvanceOutcome(1, 1),
        AdvanceOutcome(2, 0),
        AdvanceOutcome(1, 0, 1),
        AdvanceOutcome(1, 1),
    ]
    assert ledger.counters.failed == 2


def test_a_failed_subscriber_fails_its_open_entry() -> None:
    ledger = new_ledger()
    reader = ledger.join(1)
    ledger.publish("raw", "a", lane=None, now=0)
    ledger.begin(reader)
    ledger.fail(reader)
    assert advance(ledger) == [("a", AdvanceOutcome(0, 1))]


def test_obligations_of_watches_are_counted_in_bulk_and_never_overdue() -> None:
    ledger = new_ledger(ack_timeout=1)
    ledger.subscribers.declare(tuple(range(100)))
    published = ledger.publish("raw", "p", lane=None, now=0, groups=(tuple(range(7)), (7, 8, 9)))
    assert published[0] == 0
    assert ledger.subscribers.overdue(1000, ledger.ack_timeout) == []
    ledger.mark_rejected(1)
    ledger.mark_rejected(1000)
    confirm(ledger, [0])
    assert ledger.take_ready() is None
    confirm(ledger, [1])
    assert advance(ledger) == [("p", AdvanceOutcome(97, 0, 3))]


def test_a_bound_seq_can_be_marked_rejected() -> None:
    ledger = new_ledger()
    reader = ledger.join(1)
    ledger.publish("raw", "p", lane=None, now=0)
    ledger.begin(reader)
    seq = ledger.bind(reader)
    assert seq is not None
    ledger.mark_rejected(seq)
    ledger.end(reader)
    confirm(ledger, [seq])
    assert advance(ledger) == [("p", AdvanceOutcome(0, 0, 1))]


def test_a_lane_advances_in_order_one_batch_at_a_time_without_delaying_other_lanes() -> None:
    ledger = new_ledger()
    ledger.subscribers.declare((1,))
    seqs = [ledger.publish("raw", n, lane=n % 2, now=0, position=n, groups=((1,),))[0] for n in range(6)]
    confirm(ledger, seqs[2:])
    assert ledger.take_ready() is None
    confirm(ledger, [seqs[1]])
    odd = ledger.take_ready()
    assert odd is not None
    assert [item.broker_payload for item in odd.items] == [1, 3, 5]
    confirm(ledger, [seqs[0]])
    even = ledger.take_ready()
    assert even is not None
    assert [item.broker_payload for item in even.items] == [0, 2, 4]

    late = ledger.publish("raw", 7, lane=1, now=0, position=7, groups=((1,),))
    confirm(ledger, [late[0]])
    assert ledger.take_ready() is None, "lane 1 is in flight"
    assert ledger.lanes[1].outstanding == 4
    ledger.advanced(odd)
    assert ledger.lanes[1].advanced == 5
    ledger.advanced(even)
    assert list(ledger.lanes) == [1]
    assert advance(ledger) == [(7, ACKED)]
    assert not ledger.lanes
    assert ledger.counters.advanced == ledger.counters.read == 7


def test_an_advanced_lane_waits_for_its_unresolved_entries() -> None:
    ledger = new_ledger()
    ledger.subscribers.declare((1,))
    first = ledger.publish("raw", 0, lane=0, now=0, groups=((1,),))[0]
    second = ledger.publish("raw", 1, lane=0, now=0, groups=((1,),))[0]
    confirm(ledger, [first])
    assert advance(ledger) == [(0, ACKED)]
    confirm(ledger, [second])
    assert advance(ledger) == [(1, ACKED)]


def test_a_queue_counts_as_full_until_its_subscriber_reads() -> None:
    ledger = new_ledger(queue_limit=2)
    reader = ledger.join(1)
    ledger.publish("raw", 0, lane=0, now=0)
    assert not ledger.full
    ledger.publish("raw", 1, lane=0, now=0)
    assert ledger.full == {reader}
    ledger.begin(reader)
    assert not ledger.full


def test_only_idle_subscribers_are_woken() -> None:
    ledger = new_ledger()
    idle, busy = ledger.join(1), ledger.join(2)
    assert ledger.begin(idle) is None
    assert ledger.publish("raw", 0, lane=0, now=0)[1] == [idle]
    assert ledger.publish("raw", 1, lane=0, now=0)[1] == []
    assert ledger.subscribers.reading
    ledger.fail(idle)
    ledger.leave(busy)
    assert not ledger.subscribers.reading


def test_subscribers_that_owe_the_oldest_entry_are_named() -> None:
    ledger = new_ledger()
    slow, fast = ledger.join(1), ledger.join(2)
    assert ledger.oldest_unresolved() is None
    ledger.publish("raw", 0, lane=0, now=5)
    oldest = ledger.oldest_unresolved()
    assert oldest is not None
    ledger.begin(fast)
    ledger.bind(fast)
    ledger.begin(fast)
    assert ledger.subscribers.before(oldest) == [slow]
    ledger.begin(slow)
    assert ledger.subscribers.before(oldest) == [slow]
    ledger.reject(slow)
    assert ledger.subscribers.before(oldest) == []
    assert ledger.oldest_unresolved() is oldest
    assert ledger.subscribers.deadline(ledger.ack_timeout) == 15


def test_an_open_entry_is_spilled_in_order_and_settled_under_its_backlog_number() -> None:
    ledger = new_ledger()
    reader = ledger.register(1)
    ledger.catch_up(reader)
    ledger.go_live(reader)
    for payload in "abc":
        ledger.publish(payload, payload, lane=None, now=0)
    ledger.begin(reader)
    seq = ledger.bind(reader)
    spills = ledger.spill([reader], stop=False)
    assert [spill.entry.raw for spill in spills] == ["a", "b", "c"]
    confirm(ledger, [spill.seq for spill in spills])
    assert [outcome for _, outcome in advance(ledger)] == [AdvanceOutcome(0, 0, 0, 1)] * 3
    assert ledger.to_wake == [reader]
    ledger.set_backlog_number(reader, 7)
    assert ledger.begin(reader) is None
    assert reader.answers == []
    assert seq is not None
    confirm(ledger, [seq])
    assert reader.answers == [(7, "fired")]
    assert list(ledger.settling) == [reader]


class Interleaving:
    """One random life of a ledger, step by step beside the model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ledger = Ledger(5, 20.0, keeps_custody=True)
        self.model = Model(20.0)
        self.now = 0.0
        self.readers: list[Subscriber] = []
        self.seqs: list[int] = []
        self.published = self.kept = 0
        self.settled: list[tuple[int, int, str]] = []
        self.in_flight: list[tuple[Batch, list[Row]]] = []

    def step(self) -> None:
        self.now += self.random.choice((0.0, 0.5, 1.0))
        self.ledger.now = self.now
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
            reader = self.ledger.join(100 + len(self.readers))
            self.readers.append(reader)
            self.model.mode[reader] = "live"

    def register(self) -> None:
        if len(self.model.mode) < 5:
            reader = self.ledger.register(100 + len(self.readers))
            self.readers.append(reader)
            self.model.mode[reader] = "offline"

    def declare(self) -> None:
        self.model.declared = tuple(range(self.random.randrange(6)))
        self.ledger.subscribers.declare(self.model.declared)

    def publish(self) -> None:
        lane, number = self.random.choice("abc"), self.published
        wanted = [one for one in self.model.declared if self.random.random() < 0.5]
        middle = self.random.randint(0, len(wanted))
        groups = [tuple(ids) for ids in (wanted[:middle], wanted[middle:]) if ids]
        self.published += 1
        first_seq, _, spill = self.ledger.publish(number, number, lane=lane, now=self.now, position=number, groups=groups)
        away = [reader for reader, mode in self.model.mode.items() if mode == "offline"]
        assert set(() if spill is None else spill.readers) == set(away)
        named = list(enumerate(groups, first_seq))
        self.seqs.extend(seq for seq, _ in named)
        if spill is not None:
            self.seqs.append(spill.seq)
        self.model.publish(number, lane, self.now, named, None if spill is None else spill.seq)

    def begin(self) -> None:
        if (reader := self.reader()) is not None:
            entry = self.ledger.begin(reader)
            assert (None if entry is None else entry.raw) == self.model.begin(reader, self.now)

    def begin_from_backlog(self) -> None:
        reader = self.here()
        if reader is not None and self.model.mode[reader] != "live":
            entry = self.ledger.begin(reader)
            assert (None if entry is None else entry.raw) == self.model.begin(reader, self.now)
            if entry is None:
                self.kept += 1
                self.ledger.begin_from_backlog(reader, self.kept, f"kept {self.kept}", "text", "kept")
                self.model.begin_from_backlog(reader, self.kept, self.now)

    def bind(self) -> None:
        if (reader := self.reader()) is not None:
            seq = self.ledger.bind(reader)
            assert (seq is None) == (self.model.at(reader) is None)
            if seq is not None:
                self.seqs.append(seq)
                self.model.bind(reader, seq)

    def end(self) -> None:
        if (reader := self.reader()) is not None:
            self.ledger.end(reader)
            self.model.end(reader)

    def confirm(self) -> None:
        seqs = self.random.sample(self.seqs, min(len(self.seqs), self.random.randint(1, 6)))
        confirm(self.ledger, [*seqs, 10**9])
        for seq in seqs:
            self.model.confirm(seq)

    def mark(self) -> None:
        if self.seqs:
            seq = self.random.choice(self.seqs)
            self.ledger.mark_rejected(seq)
            self.model.mark(seq)

    def reject(self) -> None:
        if (reader := self.reader()) is not None:
            assert self.ledger.reject(reader) == self.model.reject(reader)

    def dead_letter(self) -> None:
        if (reader := self.here()) is not None:
            kind: Literal["rejected", "dead_lettered"] = self.random.choice(("rejected", "dead_lettered"))
            seq = self.ledger.dead_letter(reader, kind)
            assert (seq is None) == (self.model.at(reader) is None)
            if seq is not None:
                self.seqs.append(seq)
                self.model.dead_letter(reader, seq, kind)

    def requeue(self) -> None:
        if (reader := self.here()) is not None:
            entry = self.ledger.requeue(reader)
            assert (None if entry is None else entry.raw) == self.model.requeue(reader)

    def spill(self) -> None:
        here = [reader for reader in self.model.mode if reader.registered]
        readers = self.random.sample(here, min(len(here), self.random.randint(1, 2)))
        stop = self.random.random() < 0.5
        spills = self.ledger.spill(readers, stop=stop)
        assert [(entry.raw, list(who)) for _, entry, who in spills] == self.model.spill(readers, self.now, stop=stop)
        for seq, entry, who in spills:
            self.seqs.append(seq)
            self.model.spilled(entry.raw, who, seq)

    def catch_up(self) -> None:
        if (reader := self.here()) is not None:
            self.ledger.catch_up(reader)
            if self.model.mode[reader] == "offline":
                self.model.mode[reader] = "catching_up"

    def go_live(self) -> None:
        if (reader := self.here()) is not None:
            self.ledger.go_live(reader)
            self.model.moved.pop(reader, None)
            if self.model.mode[reader] == "catching_up":
                self.model.mode[reader] = "live"

    def found(self) -> None:
        if (reader := self.here()) is not None:
            self.kept += 1
            self.ledger.set_backlog_number(reader, self.kept)
            self.model.found(reader, self.kept)

    def recheck_backlog(self) -> None:
        if (reader := self.here()) is not None:
            reader.recheck_backlog()
            if self.model.mode[reader] == "live":
                self.model.mode[reader] = "catching_up"

    def leave(self) -> None:
        if (reader := self.reader(registered=False)) is not None:
            self.ledger.leave(reader)
            self.model.leave(reader)

    def drop(self) -> None:
        if self.random.random() < 0.5 and (reader := self.here()) is not None:
            self.settle_kept()
            self.ledger.drop(reader)
            self.model.drop(reader)

    def fail_one(self) -> None:
        if self.random.random() < 0.3 and (reader := self.reader(registered=False)) is not None:
            self.ledger.fail(reader)
            self.model.fail(reader)

    def fail_overdue(self) -> None:
        overdue = self.ledger.subscribers.overdue(self.now, self.ledger.ack_timeout)
        assert set(overdue) == self.model.overdue(self.now)
        for reader in overdue:
            if not reader.registered:
                self.ledger.fail(reader)
                self.model.fail(reader)

    def take(self) -> None:
        while (batch := self.ledger.take_ready()) is not None:
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
            self.ledger.advanced(batch)
            for row in rows:
                row.taken, row.advanced = False, True

    def settle_kept(self) -> None:
        while self.ledger.settling:
            reader, _ = self.ledger.settling.popitem()
            numbers = [number for number, _ in reader.answers]
            self.settled += [(reader.trigger_id, number, answer) for number, answer in reader.answers]
            reader.answers.clear()
            assert set(numbers) <= reader.unsettled.keys()
            self.ledger.settled(reader, numbers)

    def check(self) -> None:
        ledger, model = self.ledger, self.model
        rows = [row for row in model.rows if not row.is_kept]
        assert {lane.key for lane in ledger.ready} == set(model.ready())
        assert len(ledger.ready) == len(model.ready())
        assert ledger.subscribers.deadline(ledger.ack_timeout) == model.deadline()
        assert ledger.outstanding == sum(not row.advanced for row in rows)
        assert set(ledger.lanes) == {row.lane for row in rows if not row.advanced}
        oldest = ledger.oldest_unresolved()
        assert (None if oldest is None else oldest.raw) == next((row.number for row in model.rows if not row.resolved), None)
        for reader in self.readers:
            queued = sum(duty.state == "queued" for _, duty in model.duties(reader))
            assert len(reader.queue) == queued
            assert (reader in ledger.full) <= (queued >= ledger.queue_limit)
            unconfirmed = {
                seq for _, duty in model.duties(reader) if duty.kind in ("spilled", "dead_lettered", "rejected") for seq in duty.seqs
            }
            assert reader.obligations.keys() <= unconfirmed

    def finish(self) -> None:
        """Whatever happened, when all leave and all is confirmed, everything advances, and the ledger are empty."""
        for reader in [one for one in self.model.mode if one.registered]:
            for seq, entry, who in self.ledger.spill([reader], stop=True):
                self.model.spill([reader], self.now, stop=True)
                self.model.spilled(entry.raw, who, seq)
                self.seqs.append(seq)
            self.model.requeue(reader)
        for reader in self.readers:
            if not reader.registered:
                self.ledger.leave(reader)
                self.model.leave(reader)
        confirm(self.ledger, self.seqs)
        for seq in self.seqs:
            self.model.confirm(seq)
        self.settle_kept()
        assert sorted(self.settled) == sorted(self.model.settled)
        for reader in [one for one in self.model.mode if one.registered]:
            self.ledger.drop(reader)
            self.model.drop(reader)
        while self.in_flight or self.ledger.ready:
            self.take()
            self.settle()
        rows = [row for row in self.model.rows if not row.is_kept]
        assert all(row.advanced for row in rows)
        counts = self.ledger.counters
        assert counts.advanced == counts.read == counts.resolved == len(rows)
        assert counts.rejected == sum(row.outcome.rejected > 0 for row in rows)
        assert counts.failed == sum(row.outcome.failed > 0 for row in rows)
        assert counts.spilled == sum(row.outcome.spilled > 0 for row in rows)
        told = [row.outcome.rejected or row.outcome.failed or row.outcome.spilled for row in rows]
        assert counts.filtered == sum(not (row.derived or some) for row, some in zip(rows, told, strict=True))
        assert not self.ledger.lanes
        assert self.ledger.subscribers.deadline(self.ledger.ack_timeout) is None
        empty = ("_obligations", "_bindings", "_unresolved", "ready", "full", "settling")
        assert [name for name in empty if getattr(self.ledger, name)] == []
        subscribers = self.ledger.subscribers
        assert not any((subscribers.reading, subscribers.offline, subscribers.leaving))


@pytest.mark.parametrize("first", range(0, 400, 40))
def test_the_ledger_equals_its_model_in_any_interleaving(first: int) -> None:
    for seed in range(first, first + 40):
        life = Interleaving(seed)
        try:
            for _ in range(140):
                life.step()
            life.finish()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
