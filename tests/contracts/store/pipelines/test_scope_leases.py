"""The contract of scope leases: one driver at a time, and late calls of the previous driver are fenced."""

from __future__ import annotations

import pytest

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.pipelines.scope_leases import LEASE_SECONDS
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from support.pipelines.plans import driver, plan, stored_cursor
from support.processes.store import TurnedClock


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
