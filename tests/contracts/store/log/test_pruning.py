"""The contract of pruning the event log: old events that all consumers have read are deleted, their keys remain, needed events remain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from headrace.core.ordering.delivery import OrderedEvent
from headrace.errors import ApiRefused
from headrace.store import Store
from headrace.store.db import slices
from headrace.store.db.ages import AgeLimit
from headrace.store.ordering.scopes import scope_named
from headrace.store.queries.status import overview
from headrace.store.retention.event_log import FIRING_BYTES, event_keys, logged_events
from headrace.store.retention.pruner import Pruner
from headrace.store.tables.log import events, firings, pruned_event_keys
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.pipelines import redeliveries
from headrace.store.tables.webhooks import webhooks
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.plans import store_next
from support.processes.store import Holder, TurnedClock, declaration, event, holder, registration

DAY = 86_400
WEBHOOK = {"url": "https://example", "types": "[]", "secret": "", "policy": "hold", "max_attempts": 8, "timeout": 1, "created": 0}


@pytest.fixture
def owner(store: Store, clock: TurnedClock) -> Holder:
    """Give one who has stored ten events a month ago, and three just now."""
    made = holder(store, "first", "second")
    made.append(*(event(f"e{n}") for n in range(1, 11)))
    clock.turn(31 * DAY)
    made.append(*(event(f"e{n}") for n in range(11, 14)))
    return made


def driver(store: Store, clock: TurnedClock) -> int:
    job = store.jobs.register(registration("pipeline")).id
    store.projects.declare(job, "flights", declaration("first", "second", pipelines=["delays"]))
    return job


def prune(store: Store) -> None:
    Pruner(store, 30).prune()


def stored_values(store: Store, column: Any = events.c.seq) -> list[int]:
    with store.reading() as connection:
        return list(connection.execute(select(column).distinct().order_by(column)).scalars())


def failed(store: Store, *stretches: tuple[int, int]) -> RunReport:
    given = {"run_id": "run", "pipeline": "delays", "scope": "s", "batch": 1, "attempt": 1, "state": "failed", "dead_letter": "letter"}
    started = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=store.now())
    return RunReport.model_validate(given | {"started": started, "finished": started, "events": 2, "seqs": list(stretches), "error": "bad"})


def test_old_events_that_all_scopes_have_read_are_pruned_with_their_firings(store: Store, owner: Holder, clock: TurnedClock) -> None:
    job = driver(store, clock)
    store_next(store, job, "slow", Cursor(cursor=6, batch=1, low_watermark=4))
    store_next(store, job, "quick", Cursor(cursor=13, batch=9))
    prune(store)
    assert stored_values(store) == stored_values(store, firings.c.seq) == list(range(5, 14))
    assert (store.log.head().first, store.log.head().head) == (5, 13)
    store_next(store, job, "slow", Cursor(cursor=13, batch=2))
    prune(store)
    assert stored_values(store) == [11, 12, 13]
    assert stored_values(store, pruned_event_keys.c.seq) == list(range(1, 11))
    assert store.log.head().first == 11
    assert store.log.page(after=0).table.column("seq").to_pylist() == [11, 12, 13]
    prune(store)
    assert stored_values(store) == [11, 12, 13]


def test_a_pruned_event_is_still_a_leader_and_its_copy_a_duplicate(store: Store, owner: Holder) -> None:
    prune(store)
    assert owner.append(event("e3", 1, 2), event("follower", follows="e4"), event("e13", 2)) == ["duplicate", "stored", "duplicate"]
    page = store.log.page(after=13).table
    assert page.column("leader_seq").to_pylist() == [4]
    assert stored_values(store, redeliveries.c.seq) == [13], "a trigger that fires on what is forgotten brings nobody what is not there"
    assert stored_values(store) == [11, 12, 13, 14]


def test_old_events_are_pruned_in_slices_and_young_events_remain(store: Store, owner: Holder) -> None:
    before = store.now() - 30 * DAY * 1_000_000
    old = AgeLimit(0, 13, before, before)
    assert [store.write(lambda connection: logged_events(connection, old, 4)).rows for _ in range(4)] == [4, 4, 2, 0]
    assert store.write(lambda connection: logged_events(connection, old, 4)).done
    assert stored_values(store) == [11, 12, 13]


def rows_of_each_transaction(store: Store, old: AgeLimit, most: int = 500) -> list[int]:
    rows, after, done = [], 0, False
    while not done:
        swept = store.write(partial(logged_events, old=old, limit=most, after=after))
        rows.append(swept.rows)
        after, done = swept.position, swept.done
    return rows


def test_slices_of_large_events_are_bounded_in_bytes(store: Store) -> None:
    owner = holder(store, "first")
    sizes = [3, 3, 3, 9, 9, 1, 3, 4, 1]
    owner.append(*(event(f"e{n}", payload=f'"{"ä" * (size * 2**19 - 500)}"') for n, size in enumerate(sizes)))
    owner.append(*(event(f"s{n}") for n in range(10)))
    assert rows_of_each_transaction(store, AgeLimit(0, 99, 2**62, 0)) == [2, 1, 1, 1, 3, 11], "at least one event, and at most 8 MiB"
    assert stored_values(store) == stored_values(store, firings.c.seq) == []


def test_firings_count_in_the_bytes_of_a_slice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{n}" for n in range(10)]
    owner = holder(store, *names)
    owner.append(*(event(f"e{n}", *range(1, 11)) for n in range(6)))
    monkeypatch.setattr(slices, "MAX_SLICE_BYTES", 25 * FIRING_BYTES)
    assert rows_of_each_transaction(store, AgeLimit(0, 99, 2**62, 0)) == [2, 2, 2]
    assert stored_values(store) == stored_values(store, firings.c.seq) == []


def test_events_of_dead_letters_remain_until_these_are_discarded(store: Store, owner: Holder, clock: TurnedClock) -> None:
    job = driver(store, clock)
    store_next(store, job, "s", Cursor(cursor=13, batch=1))
    store.runs.report(job, [failed(store, (2, 3), (7, 7), (12, 12))])
    prune(store)
    assert stored_values(store) == [2, 3, 7, 11, 12, 13]
    assert store.log.head().first == 11, "from here on there is no gap"
    store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["letter"]))
    store_next(store, job, "s", Cursor(cursor=13, batch=2, last_redelivery_id=1))
    prune(store)
    assert stored_values(store)[:3] == [2, 3, 7], "it may fail again"
    store.runs.report(job, [failed(store, (2, 3), (7, 7), (12, 12)).model_copy(update={"run_id": "again"})])
    store.pipeline_dead_letters.act("discard", PipelineDeadLetterSelection(ids=["letter"]))
    prune(store)
    assert stored_values(store)[:3] == [2, 3, 7], "what was discarded can still be redriven, for as long as it is kept"
    clock.turn(31 * DAY)
    prune(store)
    assert (stored_values(store), store.pipeline_dead_letters.page(limit=9).dead_letters) == ([2], []), (
        "the last redelivery keeps its event"
    )


def test_an_event_with_an_unread_redelivery_is_not_pruned(store: Store, owner: Holder, clock: TurnedClock) -> None:
    job = driver(store, clock)
    owner.append(event("e2", 2), event("e5", 2), event("e6", 2))
    store_next(store, job, "s", Cursor(cursor=13, batch=1, last_redelivery_id=1))
    prune(store)
    assert stored_values(store) == [5, 6, 11, 12, 13]
    store_next(store, job, "s", Cursor(cursor=13, batch=2, last_redelivery_id=3))
    prune(store)
    assert stored_values(store) == [6, 11, 12, 13]
    assert store.log.news().last_redelivery_id == 3, "no number is given twice"


def test_unread_and_open_events_of_a_webhook_are_not_pruned(store: Store, owner: Holder) -> None:
    def make(connection: Any) -> int:
        scope = scope_named(connection, "webhook:billing", 1, head=4)
        counts = {"delivered": 0, "failed": 0, "dead": 0, "changed": 0}
        connection.execute(insert(webhooks).values(name="billing", state="paused", scope_id=scope, **WEBHOOK, **counts))
        caused = OrderedEvent.of("tests", "e2", None, 0)
        row = {"scope_id": scope, "seq": 2, "key": caused.key, "source": "tests", "id": "e2", "occurred": 0, "since": 0}
        connection.execute(insert(ordering_events).values(**row, late=False, state="dead", attempts=8))
        return scope

    store.prune(make)
    prune(store)
    assert stored_values(store) == [2, *range(5, 14)]
    store.prune(lambda connection: connection.execute(update(ordering_scopes).values(head=13)).rowcount)
    prune(store)
    assert stored_values(store) == [2, 11, 12, 13]


def test_an_abandoned_scope_is_reported_and_can_be_removed(store: Store, owner: Holder, clock: TurnedClock) -> None:
    job = driver(store, clock)
    store_next(store, job, "dead", Cursor(cursor=3, batch=1))
    prune(store)
    with store.reading() as connection:
        shown = overview(connection, store.now(), store.liveness)
        since = connection.execute(select(func.min(events.c.received))).scalar_one()
    assert (shown.log.first, shown.log.head) == (4, 13)
    assert shown.log.since is not None
    assert round(shown.log.since.timestamp() * 1_000_000) == since
    assert [one.needs for one in shown.scopes] == [shown.log.since]
    with pytest.raises(ApiRefused, match=f"read by job {job}"):
        store.scopes.remove("dead")
    store.jobs.complete(job, CompleteJob(state="succeeded"))
    assert store.scopes.remove("dead")
    assert not store.scopes.remove("dead")
    prune(store)
    assert stored_values(store) == [11, 12, 13]


def test_keys_of_events_are_pruned_after_four_times_the_retention(store: Store, clock: TurnedClock) -> None:
    owner = holder(store, "first")
    for ids in (range(1, 11), range(11, 14)):
        owner.append(*(event(f"e{n}") for n in ids))
        clock.turn(60)
        prune(store)
        clock.turn(31 * DAY)
    prune(store)
    assert stored_values(store, pruned_event_keys.c.seq) == list(range(1, 14))
    assert owner.append(event("e1")) == ["duplicate"]
    clock.turn(57 * DAY)
    prune(store)  # the first ten came 119 days ago, the other three 88
    assert stored_values(store, pruned_event_keys.c.seq) == list(range(1, 14))
    assert owner.append(event("e1")) == ["duplicate"]
    clock.turn(2 * DAY)
    prune(store)
    assert stored_values(store, pruned_event_keys.c.seq) == [11, 12, 13]
    assert owner.append(event("e11"), event("e1")) == ["duplicate", "stored"]
    assert store.log.head().head == 14


def test_keys_of_events_are_pruned_in_slices(store: Store, owner: Holder) -> None:
    prune(store)
    assert store.prune(lambda connection: event_keys(connection, 8, 3)) == 3
    assert stored_values(store, pruned_event_keys.c.seq) == list(range(4, 11))
    assert [store.prune(lambda connection: event_keys(connection, 8, 3)) for _ in range(3)] == [3, 2, 0]
    assert stored_values(store, pruned_event_keys.c.seq) == [9, 10]
