"""The contract of scope leases: one driver at a time, and late calls of the previous driver are fenced."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.pipelines.scope_leases import LEASE_SECONDS
from headrace.store.tables.pipelines import runs
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from support.pipelines.plans import driver, open_runs, plan, planned, report, stored_cursor
from support.processes.store import TurnedClock


def stored_runs(store: Store) -> dict[str, tuple[str, str | None]]:
    with store.reading() as connection:
        return {row.run_id: (row.state, row.error) for row in connection.execute(select(runs).order_by(runs.c.run_id))}


def wait_silently(store: Store, clock: TurnedClock, waiting: int, seconds: int) -> None:
    """Let a driver ask for the scope once a second while the holder sends nothing."""
    for _ in range(seconds):
        with pytest.raises(ApiRefused) as caught:
            store.scope_leases.acquire(waiting, "s")
        assert caught.value.problem == "held"
        clock.turn(1)


def test_a_free_scope_is_leased_and_its_holder_keeps_the_epoch(store: Store) -> None:
    first = driver(store)
    assert store.scope_leases.acquire(first, "s").epoch == 1
    assert store.scope_leases.acquire(first, "s").epoch == 1
    assert store.scope_leases.acquire(driver(store), "other").epoch == 1


def test_a_second_driver_waits_until_the_first_has_ended(store: Store, clock: TurnedClock) -> None:
    first, second = driver(store), driver(store)
    store.scope_leases.acquire(first, "s")
    wait_silently(store, clock, second, 2)
    with pytest.raises(Fenced, match=f"Job {second} does not hold the scope 's'"):
        store.plans.store(second, "s", plan(1))
    store.jobs.complete(first, CompleteJob(state="succeeded"))
    assert store.scope_leases.acquire(second, "s").epoch == 2


def test_a_silent_holder_loses_its_scope_and_its_job(store: Store, clock: TurnedClock) -> None:
    first, second = driver(store), driver(store)
    store.scope_leases.acquire(first, "s")
    store.plans.store(first, "s", plan(1))
    wait_silently(store, clock, second, LEASE_SECONDS + 1)
    assert store.scope_leases.acquire(second, "s").epoch == 2
    for late in (lambda: store.plans.store(first, "s", plan(2)), lambda: store.jobs.heartbeat(first, Heartbeat())):
        with pytest.raises(Fenced):
            late()
    assert stored_cursor(store, "s").cursor == 1


def test_an_attempt_ends_with_the_job_of_its_driver(store: Store, clock: TurnedClock) -> None:
    first, second, other = driver(store), driver(store), driver(store)
    store.scope_leases.acquire(other, "other")
    store.plans.store(other, "other", plan(1, planned()))
    store.runs.report(other, [report(1, run_id="other", scope="other", state="running")])
    store.scope_leases.acquire(first, "s")
    store.plans.store(first, "s", plan(1, planned(0), planned(1), planned(2)))
    store.runs.report(first, [report(1, number, state="running") for number in range(3)])
    store.runs.report(first, [report(1, 1)])
    wait_silently(store, clock, second, LEASE_SECONDS + 1)
    store.scope_leases.acquire(second, "s")
    error = f"The job of the driver ended during this attempt: job {second} took over its scope 's'."
    assert stored_runs(store) == {
        "1.0": ("interrupted", error),
        "1.1": ("succeeded", None),
        "1.2": ("interrupted", error),
        "other": ("running", None),
    }
    assert [(run.number, run.begun, run.ended) for run in open_runs(store, second)] == [(0, 1, 0), (2, 1, 0)]

    # The table has the rows of the first attempt at run 0. Run 2 is repeated.
    store.runs.report(second, [report(1, 0, rows=7), report(1, 2, run_id="1.2 again", attempt=2)])
    assert {name: state for name, (state, _) in stored_runs(store).items()} == {
        "1.0": "succeeded",
        "1.1": "succeeded",
        "1.2": "interrupted",
        "1.2 again": "succeeded",
        "other": "running",
    }
    assert open_runs(store, second) == []


def test_an_attempt_ends_with_a_driver_that_stops(store: Store) -> None:
    stopped = driver(store)
    store.scope_leases.acquire(stopped, "s")
    store.plans.store(stopped, "s", plan(1, planned(0)))
    store.runs.report(stopped, [report(1, state="running")])
    store.jobs.complete(stopped, CompleteJob(state="succeeded"))
    assert stored_runs(store) == {"1.0": ("interrupted", "The job of the driver ended during this attempt.")}


def test_a_holder_with_heartbeats_keeps_its_scope(store: Store, clock: TurnedClock) -> None:
    first, second = driver(store), driver(store)
    store.scope_leases.acquire(first, "s")
    for _ in range(5):
        wait_silently(store, clock, second, LEASE_SECONDS - 1)
        store.jobs.heartbeat(first, Heartbeat())


def test_silence_before_a_gap_in_the_requests_does_not_count(store: Store, clock: TurnedClock) -> None:
    """The API itself may have been paused: then the holder could not be heard."""
    first, second = driver(store), driver(store)
    store.scope_leases.acquire(first, "s")
    wait_silently(store, clock, second, 1)
    clock.turn(60)
    wait_silently(store, clock, second, LEASE_SECONDS + 1)
    assert store.scope_leases.acquire(second, "s").epoch == 2
