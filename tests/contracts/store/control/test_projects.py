"""The contract of projects: two projects on one database cannot read each other's triggers."""

from __future__ import annotations

import pytest

from headrace.store import Store
from headrace.wire.control.triggers import CleanupTriggers
from headrace.wire.custody.events import EventBatch
from support.processes.store import Holder, declaration, event, registration
from support.sources.custody import receipt


def second_project(store: Store, *names: str) -> Holder:
    job = store.jobs.register(registration(project="trains"))
    store.projects.declare(job.id, "trains", declaration(*names, stream="other"))
    made = Holder(store, job.id, {})
    made.load()
    return made


@pytest.fixture
def flights(store: Store) -> Holder:
    job = store.jobs.register(registration())
    store.projects.declare(job.id, "flights", declaration("orders.paid", "mine"))
    made = Holder(store, job.id, {})
    made.load()
    return made


@pytest.fixture
def trains(store: Store, flights: Holder) -> Holder:
    return second_project(store, "orders.paid")


def named(store: Store, project: str | None) -> dict[str, list[str]]:
    table = store.log.page(after=0, project=project).table
    picked = store.log.get_by_seq(table.column("seq").to_pylist(), project).table
    assert picked.equals(table)
    return {row["id"]: row["triggers"] for row in table.to_pylist()}


def test_a_page_of_the_log_has_the_triggers_of_the_requested_project(store: Store, flights: Holder, trains: Holder) -> None:
    (paid, mine), (theirs,) = flights.epochs, trains.epochs
    flights.append(event("a", paid), event("b", paid, mine))
    trains.append(event("c", theirs), event("b", theirs))
    assert named(store, "flights") == {"a": ["orders.paid"], "b": ["orders.paid", "mine"], "c": []}
    assert named(store, "trains") == {"a": [], "b": [], "c": ["orders.paid"]}
    assert named(store, None) == {"a": ["orders.paid"], "b": ["orders.paid", "mine"], "c": ["orders.paid"]}


def test_a_late_firing_is_redelivered_to_its_own_project(store: Store, flights: Holder, trains: Holder) -> None:
    (paid, mine), (theirs,) = flights.epochs, trains.epochs
    flights.append(event("a", paid))
    trains.append(event("a", theirs))
    flights.append(event("a", mine))
    first, second = store.log.redeliveries(after=0, to=2)
    assert [(one.trigger, one.before) for one in store.log.redeliveries(after=0, to=2, project="flights")] == [("mine", ["orders.paid"])]
    assert [(one.trigger, one.before) for one in store.log.redeliveries(after=0, to=2, project="trains")] == [("orders.paid", [])]
    assert (first.before, second.before) == (["orders.paid"], ["orders.paid", "orders.paid"])


@pytest.mark.slow
def test_a_call_accepts_more_triggers_than_the_parameters_of_one_statement(store: Store, flights: Holder) -> None:
    """SQLite takes 32,766 values in one statement where it was built so (250,000 in Debian's)."""
    one = min(flights.epochs)
    many = range(one, one + 260_000)
    batch = EventBatch(epochs=dict.fromkeys(many, 1), events=[event("a", one)], receipts=[receipt(None, 1, 1, owed=tuple(many))])
    answer = store.log.append(flights.job_id, batch)
    assert (answer.events, answer.receipts) == (["stored"], ["stored"])
    assert [workload.trigger_id for workload in store.triggers.workloads(flights.job_id, list(many))] == sorted(flights.epochs)
    store.triggers.cleanup(flights.job_id, CleanupTriggers(trigger_ids=list(many)))
    assert flights.load() == {one: 2, one + 1: 2}
