"""The contract of dropping the backlog of a removed trigger, by an operator or by retention: the dropped raw events are counted."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from headrace.errors import ApiRefused
from headrace.store import Store
from headrace.store.custody.backlog import DROP_BATCH_ROWS, removed_backlogs
from headrace.store.queries.events import dead_letter_page
from headrace.store.queries.status import backlog_list
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, spills
from support.processes.store import Holder, TurnedClock, declaration, holder, letter
from support.sources.custody import STREAM, answered, books, bury, counts, keep, positions, receipt, record, settle, some, spill, waiting

DAY = 86_400


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second")


def rows(store: Store) -> tuple[int, int]:
    with store.reading() as connection:
        found = [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in (backlog, spills)]
    return found[0], found[1]


def test_a_dropped_backlog_is_counted_and_the_audit_is_clean(store: Store, owner: Holder) -> None:
    keep(owner, spill(1, 1, 2), spill(2, 1), spill(3, 1))
    record(owner, receipt(None, 2, 2, answered(1, spilled=2), answered(2, spilled=1)))
    assert store.backlog.drop(1) == 3
    assert (positions(owner), positions(owner, 2)) == ([], [1])
    record(owner, receipt(2, 3, 1, answered(1, spilled=1)))  # the receipt of the third comes later
    assert counts(store) == {"read": 3, "spilled": 3, "settled": 3, "dropped": 3}
    assert books(store).clean
    settle(owner, "fired", trigger=2)
    assert rows(store) == (0, 0)
    assert store.backlog.drop(1) == 0
    with pytest.raises(ApiRefused, match="No trigger"):
        store.backlog.drop(9)


def test_a_backlog_larger_than_one_transaction_is_dropped(store: Store, owner: Holder) -> None:
    keep(owner, *(spill(position) for position in range(1, DROP_BATCH_ROWS + 11)))
    assert store.backlog.drop(1) == DROP_BATCH_ROWS + 10
    assert waiting(owner) == []


def test_dropping_a_redriven_dead_letter_closes_it(store: Store, owner: Holder) -> None:
    bury(owner, letter("a", 1, stream=STREAM, lane="a.jsonl", position=1))
    store.dead_letters.redrive(some("a"))
    assert store.backlog.drop(1) == 1
    with store.reading() as connection:
        assert dead_letter_page(connection, before=None, limit=9).dead_letters == []


def test_retention_drops_the_backlogs_of_removed_triggers(store: Store, owner: Holder, clock: TurnedClock) -> None:
    keep(owner, *(spill(position, 1, 2) for position in range(1, 6)))
    record(owner, receipt(None, 5, 5, answered(1, spilled=5), answered(2, spilled=5)))
    store.projects.declare(owner.job_id, "flights", declaration("second"))
    with store.reading() as connection:
        assert [(one.trigger, one.removed) for one in backlog_list(connection)] == [("first", True), ("second", False)]
    clock.turn(DAY)

    def sweep(most: int, age: float) -> int:
        return store.prune(lambda connection: removed_backlogs(connection, store.now() - int(age * DAY * 1_000_000), most))

    assert sweep(10, 2) == 0
    assert [sweep(3, 0.5), sweep(3, 0.5), sweep(3, 0.5)] == [3, 2, 0]
    assert books(store).clean
    assert counts(store)["dropped"] == 5
    assert rows(store) == (5, 5)


def test_a_trigger_that_is_declared_again_keeps_its_backlog(store: Store, owner: Holder, clock: TurnedClock) -> None:
    keep(owner, spill(1))
    store.projects.declare(owner.job_id, "flights", declaration("second"))
    clock.turn(DAY)
    store.projects.declare(owner.job_id, "flights", declaration("first", "second"))
    assert store.prune(lambda connection: removed_backlogs(connection, store.now(), 10)) == 0
    owner.load()
    assert positions(owner) == [1]
    with store.reading() as connection:
        assert connection.execute(select(triggers.c.removed)).scalars().all() == [None, None]
