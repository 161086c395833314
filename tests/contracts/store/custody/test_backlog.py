"""The contract of the backlog: stored once, in order, read without gaps, and deleted after settlement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from headrace.errors import Fenced
from headrace.store import Store
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, spills
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.custody.backlog import SettleBacklog, Settled
from headrace.wire.custody.events import EventBatch
from support.processes.store import DATABASES, Holder, event, holder, letter, opened
from support.sources.custody import answered, balance, books, bury, counts, keep, positions, receipt, record, settle, some, spill, waiting


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second")


def rows(store: Store) -> tuple[int, int]:
    with store.reading() as connection:
        kept = connection.execute(select(func.count()).select_from(backlog)).scalar_one()
        return kept, connection.execute(select(func.count()).select_from(spills)).scalar_one()


def depths(store: Store) -> dict[int, tuple[int, int]]:
    with store.reading() as connection:
        return {row.id: (row.backlog, row.spilled) for row in connection.execute(select(triggers))}


def test_a_backlog_returns_raw_events_unchanged_and_in_order(owner: Holder) -> None:
    assert keep(owner, spill(1, raw="ü {"), spill(2), spill(7, lane="b"), spill(3)) == ["stored"] * 4
    found = waiting(owner)
    assert [(item.lane, item.position, item.raw) for item in found] == [
        ("a.jsonl", 1, "ü {"),
        ("a.jsonl", 2, '{"n": 2}'),
        ("b", 7, '{"n": 7}'),
        ("a.jsonl", 3, '{"n": 3}'),
    ]
    assert [item.number for item in found] == sorted({item.number for item in found})
    assert {item.stream for item in found} == {"folder"}


def test_spills_and_events_of_a_batch_are_stored_atomically(store: Store, owner: Holder) -> None:
    batch = EventBatch(epochs=owner.epochs, events=[event("a")], spills=[spill(1)])
    assert store.log.append(owner.job_id, batch).spills == ["stored"]
    assert (store.log.head().head, positions(owner)) == (1, [1])
    store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    with pytest.raises(Fenced):
        store.log.append(owner.job_id, EventBatch(epochs=owner.epochs, spills=[spill(2)]))
    assert rows(store) == (1, 1)


def test_a_repeated_spill_is_stored_once_for_each_trigger(store: Store, owner: Holder) -> None:
    assert keep(owner, spill(1, 1), spill(1, 1), spill(1, 2, 1)) == ["stored", "duplicate", "stored"]
    assert keep(owner, spill(1, 1, 2), spill(1, 1, lane="b")) == ["duplicate", "stored"]
    assert (len(waiting(owner, 1)), len(waiting(owner, 2))) == (2, 1)
    assert depths(store) == {1: (2, 2), 2: (1, 1)}


def test_a_raw_text_is_shared_by_triggers_and_deleted_with_the_last(store: Store, owner: Holder) -> None:
    keep(owner, spill(1, 1, 2, raw="shared"))
    assert rows(store) == (2, 1)
    settle(owner, trigger=1)
    assert [item.raw for item in waiting(owner, 2)] == ["shared"]
    settle(owner, trigger=2)
    assert rows(store) == (2, 0), "the answers stay until their receipt"


@pytest.mark.parametrize("wrong", [spill(2**63), spill(1, lane="\0")])
def test_an_unstorable_spill_is_invalid_and_others_are_stored(owner: Holder, wrong: object) -> None:
    assert isinstance(wrong, type(spill(1)))
    assert keep(owner, wrong, spill(1)) == ["invalid", "stored"]
    assert positions(owner) == [1]


@pytest.mark.parametrize("position", [-(2**63), -1, 0, 2**63 - 1])
def test_every_64_bit_position_can_be_stored(owner: Holder, position: int) -> None:
    assert keep(owner, spill(position)) == ["stored"]
    assert positions(owner) == [position]


def test_a_stale_lease_cannot_store_read_or_settle_spills(store: Store, owner: Holder) -> None:
    keep(owner, spill(1, 2))
    number = waiting(owner, 2)[0].number
    stale = Holder(store, owner.job_id, owner.epochs | {2: 0})
    assert keep(stale, spill(5, 1), spill(6, 2), spill(7, 1, 2)) == ["stored", "fenced", "fenced"]
    with pytest.raises(Fenced):
        settle(stale, "fired", number, trigger=2)
    stranger = holder(store)
    with pytest.raises(Fenced):
        waiting(stranger, 2)
    with pytest.raises(Fenced):
        waiting(owner, 99)
    assert positions(owner, 2) == [1]


def test_a_spill_does_not_overtake_a_fenced_spill_of_its_trigger(store: Store, owner: Holder) -> None:
    stale = Holder(store, owner.job_id, owner.epochs | {2: 0})
    assert keep(stale, spill(5, 1, 2), spill(6, 1), spill(7, 1)) == ["fenced"] * 3
    assert keep(owner, spill(5, 1, 2), spill(6, 1), spill(7, 1)) == ["stored"] * 3
    assert (positions(owner, 1), positions(owner, 2)) == ([5, 6, 7], [5])


def test_pages_are_contiguous_and_new_spills_follow_the_highest_number(owner: Holder) -> None:
    keep(owner, *(spill(n) for n in range(5)))
    first = waiting(owner, limit=3)
    assert [item.position for item in first] == [0, 1, 2]
    assert [item.position for item in waiting(owner, after=first[-1].number)] == [3, 4]
    last = waiting(owner)[-1].number
    settle(owner)
    assert waiting(owner, after=last) == []
    keep(owner, spill(9))
    assert [item.position for item in waiting(owner, after=last)] == [9]


def test_a_page_of_large_texts_is_bounded_and_never_empty(owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.custody.backlog.MAX_PAGE_BYTES", 250)
    keep(owner, *(spill(n, raw="x" * 100) for n in range(5)), spill(9, raw="x" * 1000))
    pages, after = [], 0
    while found := waiting(owner, after=after):
        pages.append(len(found))
        after = found[-1].number
    assert pages == [2, 2, 1, 1]


def test_repeated_and_foreign_settlements_change_nothing(store: Store, owner: Holder) -> None:
    keep(owner, spill(1, 1, raw="x"), spill(2, 2, raw="y"))
    mine, other = waiting(owner, 1)[0].number, waiting(owner, 2)[0].number
    for _ in range(2):
        settle(owner, "fired", mine, other, 10_000)
    assert (positions(owner, 1), len(waiting(owner, 2))) == ([], 1)
    assert depths(store) == {1: (0, 1), 2: (1, 1)}


def test_a_page_tells_redriven_dead_letters_from_spills(store: Store, owner: Holder) -> None:
    bury(owner, letter("x", 1, lane="a.jsonl", position=7))
    store.dead_letters.redrive(some("x"))
    keep(owner, spill(8))
    assert [(item.position, item.redriven) for item in waiting(owner)] == [(7, True), (8, False)]


def test_an_empty_settlement_is_accepted(store: Store, owner: Holder) -> None:
    store.backlog.settle(owner.job_id, 1, SettleBacklog(epoch=owner.epochs[1], settled=[]))
    store.backlog.settle(owner.job_id, 1, SettleBacklog(epoch=owner.epochs[1], settled=[Settled(number=7, answer="fired")]))
    assert rows(store) == (0, 0)


def test_heartbeats_return_the_depth_of_each_backlog(store: Store, owner: Holder) -> None:
    assert store.jobs.heartbeat(owner.job_id, Heartbeat()).backlogs == {}
    keep(owner, spill(1, 2), spill(2, 2))
    assert store.jobs.heartbeat(owner.job_id, Heartbeat()).backlogs == {2: 2}
    assert [workload.backlog for workload in store.triggers.workloads(owner.job_id, [1, 2])] == [0, 2]
    assert store.backlog.page(owner.job_id, 2, after=0, limit=1).depth == 2


def test_a_spill_settled_before_its_receipt_is_a_duplicate_on_redelivery(store: Store, owner: Holder) -> None:
    keep(owner, spill(1), spill(2))
    settle(owner)
    assert rows(store) == (2, 0)
    assert keep(owner, spill(1), spill(2), spill(3)) == ["duplicate", "duplicate", "stored"]
    assert positions(owner) == [3]
    record(owner, receipt(None, 3, 3, answered(1, spilled=3)))
    assert counts(store) == {"read": 3, "fired": 2, "spilled": 3, "settled": 2, "pending": 1}
    assert rows(store) == (1, 1)
    settle(owner, "rejected")
    assert counts(store) == {"read": 3, "fired": 2, "rejected": 1, "spilled": 3, "settled": 3}
    assert rows(store) == (0, 0)


def test_a_raw_event_spilled_and_later_answered_live_is_counted_once(store: Store, owner: Holder) -> None:
    """The triggerer died after the backlog was drained and before the receipt: what came again was taken live."""
    keep(owner, spill(1), spill(2), spill(3))
    settle(owner, "filtered", *(item.number for item in waiting(owner)[:2]))
    record(owner, receipt(None, 3, 3, answered(1, fired=2, spilled=1)))
    assert counts(store) == {"read": 3, "fired": 2, "spilled": 1, "pending": 1}
    settle(owner, "filtered")
    assert counts(store) == {"read": 3, "fired": 2, "filtered": 1, "spilled": 1, "settled": 1}
    assert rows(store) == (0, 0)


def test_a_redelivery_below_the_recorded_position_is_stored_but_not_counted(store: Store, owner: Holder) -> None:
    keep(owner, spill(1))
    record(owner, receipt(None, 1, 1, answered(1, spilled=1)))
    settle(owner)
    before = balance(store)
    assert keep(owner, spill(1)) == ["stored"]
    assert balance(store) == before
    settle(owner, "filtered")
    assert balance(store) == before
    assert rows(store) == (0, 0)


def test_the_audit_reports_spills_missing_in_the_backlog(store: Store, owner: Holder) -> None:
    keep(owner, spill(1))
    record(owner, receipt(None, 3, 3, answered(1, spilled=3)))
    found = books(store)
    assert not found.clean
    assert [problem.problem for problem in found.streams[0].problems] == [
        "2 of 3 raw events that trigger 1 spilled up to 3 are not in its backlog"
    ]
    assert not balance(store).balanced


def test_the_audit_reports_a_lost_row_of_a_backlog(store: Store, owner: Holder) -> None:
    keep(owner, spill(1), spill(2))
    record(owner, receipt(None, 2, 2, answered(1, spilled=2)))
    assert books(store).clean
    store._database.write(lambda connection: connection.exec_driver_sql("DELETE FROM backlog WHERE position = 1").rowcount)
    assert not books(store).clean
