"""A wall clock that is ahead or behind, briefly or permanently: retention deletes no young data and deletes all old data in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from headrace.core.ordering.delivery import OrderedEvent
from headrace.store import Store
from headrace.store.db.ages import AgeLimit
from headrace.store.ordering.scopes import scope_named
from headrace.store.queries.task_runs import task_run_list
from headrace.store.retention import event_log
from headrace.store.retention.pruner import Pruner
from headrace.store.tables.base import age_marks
from headrace.store.tables.control import jobs
from headrace.store.tables.log import events
from headrace.store.tables.ordering import ordering_events
from headrace.store.tables.task_runs import task_runs
from headrace.store.tables.webhooks import webhooks
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.task_runs import AwaitedTrigger, StartRun, WaitCondition
from support.processes.store import DATABASES, Holder, TurnedClock, event, holder, opened, registration

HOUR = 3_600
DAY = 86_400
WEBHOOK = {"url": "https://example", "types": "[]", "secret": "", "policy": "hold", "max_attempts": 8, "timeout": 1, "created": 0}
COUNTS = {"delivered": 0, "failed": 0, "dead": 0, "changed": 0}


def count(store: Store, table: Any = events) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def work(store: Store, owner: Holder, name: str) -> None:
    """Store an event, end a job and end a task run."""
    owner.append(event(name))
    job = store.jobs.register(registration("worker")).id
    store.jobs.complete(job, CompleteJob(state="succeeded"))
    store.task_runs.start("flights", StartRun(run_id=name, task="t"))
    store.task_runs.cancel(name)


def hours(store: Store, clock: TurnedClock, days: int) -> None:
    """Let days pass with a round of retention in each hour."""
    pruner = Pruner(store, 30)
    for _ in range(days * 24):
        clock.turn(HOUR)
        pruner.prune()


def row_counts(store: Store) -> tuple[int, int, int]:
    return count(store), count(store, jobs), count(store, task_runs)


def test_a_clock_jump_deletes_no_young_data_and_raises_an_alert(store: Store, clock: TurnedClock) -> None:
    owner = holder(store, "first")
    work(store, owner, "a")
    work(store, owner, "b")
    clock.turn(HOUR)
    before = row_counts(store)
    clock.set(60 * DAY)
    Pruner(store, 30).prune()
    assert row_counts(store) == before
    (alert,) = store.background.alerts()
    assert "60.0 days less than the clock" in alert.summary
    clock.set(-60 * DAY)
    Pruner(store, 30).prune()
    assert store.background.alerts() == []
    clock.turn(31 * DAY)
    Pruner(store, 30).prune()
    assert count(store) == count(store, task_runs) == 0


@pytest.mark.slow
def test_a_clock_that_stays_ahead_deletes_only_old_data(store: Store, clock: TurnedClock) -> None:
    owner = holder(store, "first")
    work(store, owner, "a")
    clock.turn(2 * HOUR)
    Pruner(store, 30).prune()
    clock.set(400 * DAY)
    clock.turn(2 * HOUR)
    Pruner(store, 30).prune()
    work(store, owner, "b")
    hours(store, clock, 10)
    assert row_counts(store)[0] == 2
    clock.turn(19 * DAY)
    Pruner(store, 30).prune()
    assert (count(store), count(store, task_runs)) == (2, 2), "29 days old"
    clock.turn(DAY + 3 * HOUR)
    Pruner(store, 30).prune()
    assert (count(store), count(store, task_runs)) == (0, 0)


@pytest.mark.parametrize("wrong", [-400 * DAY, -DAY, DAY, 400 * DAY])
def test_events_with_wrong_times_are_pruned_at_the_right_age(wrong: int, store: Store, clock: TurnedClock) -> None:
    owner = holder(store, "first")
    clock.turn(HOUR)
    Pruner(store, 30).prune()
    clock.set(wrong)
    owner.append(*(event(f"wrong{n}") for n in range(3)))
    clock.set(-wrong)
    owner.append(*(event(f"right{n}") for n in range(600)))
    clock.turn(HOUR)
    Pruner(store, 30).prune()
    assert count(store) == 603
    clock.turn(29 * DAY)
    Pruner(store, 30).prune()
    assert count(store) == 603
    clock.turn(DAY)
    Pruner(store, 30).prune()
    assert count(store) == 0


@pytest.mark.parametrize("kind", DATABASES)
def test_downtime_adds_at_most_a_day_to_the_age(kind: str, tmp_path: Path) -> None:
    clock = TurnedClock()
    with opened(kind, tmp_path, clock) as store:
        holder(store, "first").append(event("a"))
    clock.set(60 * DAY)
    with opened(kind, tmp_path, clock) as store:
        Pruner(store, 30).prune()
        assert count(store) == 1
        clock.turn(28 * DAY)
        Pruner(store, 30).prune()
        assert count(store) == 1
        clock.turn(2 * DAY)
        Pruner(store, 30).prune()
        assert count(store) == 0


@pytest.mark.slow
def test_age_marks_are_pruned_after_four_times_the_retention(store: Store, clock: TurnedClock) -> None:
    for _ in range(5):
        Pruner(store, 0.5).prune()
    assert count(store, age_marks) == 1, "no two of one minute"
    pruner = Pruner(store, 0.5)
    for _ in range(100):
        clock.turn(HOUR)
        pruner.prune()
    assert count(store, age_marks) == 49, "those of two days: what the keys of events take"


def test_pruning_skips_events_of_webhooks_in_bounded_slices(store: Store, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "MAX_SCANNED_EVENTS", 50)
    owner = holder(store, "first")
    owner.append(*(event(f"{n}") for n in range(1, 301)))

    def hold(connection: Any) -> int:
        scope = scope_named(connection, "webhook:billing", 1, head=300)
        connection.execute(insert(webhooks).values(name="billing", state="paused", scope_id=scope, **WEBHOOK, **COUNTS))
        shared = {"scope_id": scope, "source": "tests", "occurred": 0, "since": 0, "late": False, "state": "dead", "attempts": 8}
        rows = [{"seq": n, "id": f"{n}", "key": OrderedEvent.of("tests", f"{n}", None, 0).key, **shared} for n in range(1, 201)]
        connection.execute(insert(ordering_events), rows)
        return 0

    store.prune(hold)
    clock.turn(31 * DAY)
    swept = store.write(lambda connection: event_log.logged_events(connection, AgeLimit(300, 300, 0, 0), 500))
    assert swept == (0, 50, False), "it looked at no more"
    Pruner(store, 30).prune()
    with store.reading() as connection:
        assert connection.execute(select(events.c.seq).order_by(events.c.seq)).scalars().all() == list(range(1, 201))


def wait(store: Store, run_id: str, timeout: float = 600) -> None:
    waiting = WaitCondition(trigger=AwaitedTrigger(classpath="a.B", kwargs={}), timeout=timeout)
    store.task_runs.start("flights", StartRun(run_id=run_id, task="t", waiting=waiting))


def state(store: Store, run_id: str) -> str:
    while store.task_runs.sweep() == 0:
        pass
    return store.task_runs.result(run_id).state


@pytest.mark.parametrize("wrong", [-3600, 3600])
@pytest.mark.parametrize("right_again", [True, False])
def test_a_wrong_clock_neither_ends_nor_prolongs_the_timeout_of_a_task_run(
    store: Store, clock: TurnedClock, wrong: int, right_again: bool
) -> None:
    wait(store, "before")
    clock.turn(60)
    clock.set(wrong)
    assert state(store, "before") == "deferred"
    wait(store, "while")
    clock.turn(60)
    assert state(store, "while") == "deferred"
    if right_again:
        clock.set(-wrong)
    wait(store, "after")
    clock.turn(479)
    assert state(store, "before") == "deferred"
    assert store.task_runs.sweep() == 1_000_000
    clock.turn(2)
    assert (state(store, "before"), state(store, "while")) == ("failed", "deferred")
    clock.turn(60)
    assert (state(store, "while"), state(store, "after")) == ("failed", "deferred")
    clock.turn(60)
    assert state(store, "after") == "failed"


@pytest.mark.parametrize("wrong", [-3600, 3600])
@pytest.mark.parametrize("kind", DATABASES)
def test_a_timeout_survives_a_restart_after_a_clock_change(kind: str, wrong: int, tmp_path: Path) -> None:
    clock = TurnedClock()
    with opened(kind, tmp_path, clock) as store:
        wait(store, "waits")
        clock.set(wrong)
        clock.turn(61)
        assert state(store, "waits") == "deferred"
    clock.turn(239)
    with opened(kind, tmp_path, clock) as store:
        assert state(store, "waits") == "deferred"
        clock.turn(299)
        assert state(store, "waits") == "deferred"
        clock.turn(2)
        assert state(store, "waits") == "failed"


@pytest.mark.parametrize("kind", DATABASES)
def test_a_timeout_that_expires_during_downtime_ends_after_the_restart(kind: str, tmp_path: Path) -> None:
    clock = TurnedClock()
    with opened(kind, tmp_path, clock) as store:
        wait(store, "waits")
    clock.turn(HOUR)
    with opened(kind, tmp_path, clock) as store:
        assert state(store, "waits") == "failed"


def test_the_timeout_of_a_task_run_is_shown_in_wall_clock_time(store: Store, clock: TurnedClock) -> None:
    def timeout_from_now() -> float:
        with store.reading() as connection:
            (found,) = task_run_list(connection, limit=9)
        return 0.0 if found.timeout is None else found.timeout.timestamp() - store.now() / 1_000_000

    wait(store, "waits")
    assert timeout_from_now() == 600
    clock.turn(30)
    assert timeout_from_now() == 570
    clock.set(3600)
    clock.turn(31)
    store.task_runs.sweep()
    assert timeout_from_now() == 539


@pytest.mark.slow
def test_sweeps_of_task_runs_store_about_one_age_mark_per_hour(store: Store, clock: TurnedClock) -> None:
    for _ in range(10 * 60):
        clock.turn(61)
        store.task_runs.sweep()
    assert count(store, age_marks) == 12
    with store.reading() as connection:
        last = connection.execute(select(age_marks).order_by(age_marks.c.age.desc()).limit(1)).one()
    assert (last.age, last.wall) == (clock.passed, clock.now)


class _StallingClock(TurnedClock):
    """A clock in which ten seconds pass before each look, as on a machine that stalls."""

    def __call__(self) -> int:
        self.turn(10.0)
        return super().__call__()


@pytest.mark.parametrize("kind", DATABASES)
def test_a_job_receives_leases_although_its_call_took_long(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path, _StallingClock()) as store:
        assert len(holder(store, "legs.a", "legs.b").epochs) == 2
