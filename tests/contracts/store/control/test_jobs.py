"""The contract of jobs and leases: which jobs are alive, which leases they hold, and which leases are revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from headrace.core.ledger.counters import StreamCounters
from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.tables.control import jobs, stream_reports, triggers
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.streams import StreamReport
from headrace.wire.control.triggers import CleanupTriggers, LoadTriggers, TriggerFailure
from support.processes.store import TurnedClock, arguments, declaration, event, holder, opened, registration

NOTHING = Heartbeat()


def job_states(store: Store) -> dict[int, tuple[str, str | None]]:
    with store.reading() as connection:
        return {row.id: (row.state, row.reason) for row in connection.execute(select(jobs))}


def trigger_states(store: Store) -> dict[str, str]:
    with store.reading() as connection:
        return {row.name: row.state for row in connection.execute(select(triggers))}


def test_a_repeated_registration_returns_the_same_job(store: Store) -> None:
    job = registration()
    assert store.jobs.register(job) == store.jobs.register(job)
    assert store.jobs.register(registration()).id != store.jobs.register(job).id


def test_the_first_end_of_a_job_wins_and_replays_are_safe(store: Store) -> None:
    job = store.jobs.register(registration())
    store.jobs.complete(job.id, CompleteJob(state="succeeded"))
    store.jobs.complete(job.id, CompleteJob(state="failed", reason="late"))
    assert job_states(store) == {job.id: ("succeeded", None)}
    with pytest.raises(Fenced):
        store.jobs.heartbeat(job.id, NOTHING)
    with pytest.raises(Fenced):
        store.triggers.load(job.id, LoadTriggers(capacity=1))
    with pytest.raises(Fenced):
        store.jobs.check(job.id)


def test_an_unknown_job_is_fenced(store: Store) -> None:
    with pytest.raises(Fenced):
        store.jobs.heartbeat(77, NOTHING)


def test_loading_returns_all_held_leases_with_unchanged_epochs(store: Store) -> None:
    owner = holder(store, "first", "second")
    assert owner.epochs == {1: 1, 2: 1}
    assert owner.load() == {1: 1, 2: 1}
    answer = store.jobs.heartbeat(owner.job_id, NOTHING)
    assert answer.desired_state == "run"
    assert {lease.trigger_id: lease.epoch for lease in answer.leases} == owner.epochs


def test_leases_of_a_completed_job_are_acquired_at_a_higher_epoch(store: Store) -> None:
    first = holder(store, "first")
    second = holder(store)
    assert second.epochs == {}
    store.jobs.complete(first.job_id, CompleteJob(state="succeeded"))
    assert trigger_states(store) == {"first": "waiting"}
    assert second.load() == {1: 2}


def test_a_silent_job_is_lost_after_30_seconds_and_its_epoch_is_fenced(store: Store, clock: TurnedClock) -> None:
    first = holder(store, "first")
    second = holder(store)
    clock.turn(30)
    assert second.load() == {}
    clock.turn(0.000001)
    assert second.load() == {1: 2}
    assert job_states(store)[first.job_id] == ("lost", "silent for 30 s")
    with pytest.raises(Fenced):
        first.append(event("a"))
    assert second.append(event("a")) == ["stored"]


def test_jobs_get_a_grace_period_after_a_gap_in_all_requests(store: Store, clock: TurnedClock) -> None:
    first = holder(store, "first")
    second, third = holder(store), holder(store)
    clock.turn(300)
    assert second.load() == {}
    clock.turn(4)
    assert store.jobs.heartbeat(third.job_id, NOTHING).desired_state == "run"
    assert second.load() == {}
    clock.turn(1)
    second.load()
    assert {job_id: state for job_id, (state, _) in job_states(store).items()} == {
        first.job_id: "lost",
        second.job_id: "running",
        third.job_id: "running",
    }


def test_a_heartbeat_keeps_a_job_alive(store: Store, clock: TurnedClock) -> None:
    first = holder(store, "first")
    second = holder(store)
    for _ in range(4):
        clock.turn(20)
        store.jobs.heartbeat(first.job_id, NOTHING)
        assert second.load() == {}


def test_downtime_of_the_api_server_does_not_count_as_silence(tmp_path: Path) -> None:
    clock = TurnedClock()
    with opened("sqlite", tmp_path, clock) as store:
        first = holder(store, "first")
    clock.turn(300)
    with opened("sqlite", tmp_path, clock) as store:
        second = holder(store)
        clock.turn(20)
        assert second.load() == {}
        assert store.jobs.heartbeat(first.job_id, NOTHING).leases
        clock.turn(15)
        assert second.load() == {}


def test_a_job_is_replaced_immediately_by_its_next_incarnation(store: Store) -> None:
    killed = registration()
    first = store.jobs.register(killed)
    store.projects.declare(first.id, "flights", declaration("first"))
    store.triggers.load(first.id, LoadTriggers(capacity=1))
    assert holder(store, replaces=killed.registration_id).epochs == {1: 2}
    assert job_states(store)[first.id] == ("lost", "replaced by its next incarnation")


@pytest.mark.parametrize("other", [{"hostname": "there"}, {"project": "trains"}, {"kind": "pipeline"}])
def test_only_the_same_work_on_the_same_host_is_replaced(store: Store, other: dict[str, Any]) -> None:
    running = registration(**other)
    first = store.jobs.register(running)
    store.jobs.register(registration(replaces=running.registration_id))
    assert job_states(store)[first.id] == ("running", None)


def test_a_changed_trigger_is_revoked_and_leased_at_a_new_epoch(store: Store) -> None:
    owner = holder(store, "first", "second")
    store.projects.declare(owner.job_id, "flights", declaration("first", "second"))
    assert owner.load() == {1: 1, 2: 1}
    store.projects.declare(owner.job_id, "flights", declaration("first", "second", depth=2))
    assert store.jobs.heartbeat(owner.job_id, NOTHING).leases == []
    assert owner.load() == {1: 2, 2: 2}


def test_an_undeclared_trigger_is_revoked_and_keeps_its_row(store: Store) -> None:
    owner = holder(store, "first", "second")
    assert store.projects.declare(owner.job_id, "flights", declaration("second")).triggers == {"second": 2}
    answer = store.triggers.load(owner.job_id, LoadTriggers(capacity=9))
    assert answer.revoked == {1: 1}
    assert [lease.trigger_id for lease in answer.leases] == [2]
    assert trigger_states(store) == {"first": "removed", "second": "running"}
    assert store.projects.declare(owner.job_id, "flights", declaration("first", "second")).triggers == {"first": 1, "second": 2}
    assert owner.load() == {1: 2, 2: 1}


def test_a_job_declares_its_own_project_only(store: Store) -> None:
    owner = holder(store, "first")
    with pytest.raises(ApiRefused) as refused:
        store.projects.declare(owner.job_id, "trains", declaration("second"))
    assert refused.value.status == 403


def test_triggers_of_another_project_are_not_acquired(store: Store) -> None:
    holder(store, "first")
    other = holder(store, project="trains")
    assert other.epochs == {}


def test_a_new_trigger_of_a_stream_is_leased_to_the_job_of_the_stream(store: Store) -> None:
    first = holder(store, "first")
    second = holder(store)
    store.projects.declare(first.job_id, "flights", declaration("first", "second"))
    assert second.load() == {}
    assert first.load() == {1: 1, 2: 1}


def test_workloads_are_returned_only_for_held_leases(store: Store) -> None:
    owner = holder(store, "first")
    other = holder(store)
    workload = store.triggers.workloads(owner.job_id, [1, 2])[0]
    assert (workload.name, workload.stream, workload.epoch, arguments(workload)) == ("first", "folder", 1, {})
    assert str(owner.job_id) in workload.log_name
    assert store.triggers.workloads(other.job_id, [1]) == []


def test_a_trigger_is_failed_until_it_fires(store: Store) -> None:
    owner = holder(store, "first")
    failure = TriggerFailure(epoch=1, type="ValueError", message="no", traceback=["line"])
    store.triggers.failure(owner.job_id, 1, failure)
    with store.reading() as connection:
        row = connection.execute(select(triggers)).one()
    assert (row.state, row.failures) == ("failed", 1)
    assert '"message":"no"' in row.failure
    owner.append(event("a"))
    assert trigger_states(store) == {"first": "running"}


def test_a_failure_at_a_stale_epoch_is_fenced(store: Store) -> None:
    owner = holder(store, "first")
    with pytest.raises(Fenced):
        store.triggers.failure(owner.job_id, 1, TriggerFailure(epoch=0, type="ValueError", message="no"))
    assert trigger_states(store) == {"first": "running"}


def test_released_triggers_can_be_acquired(store: Store) -> None:
    first = holder(store, "first")
    second = holder(store)
    store.triggers.cleanup(second.job_id, CleanupTriggers(trigger_ids=[1]))
    assert second.load() == {}
    store.triggers.cleanup(first.job_id, CleanupTriggers(trigger_ids=[1]))
    assert second.load() == {1: 2}


def test_the_last_report_of_each_job_and_stream_stays(store: Store) -> None:
    owner = holder(store, "first")
    for read in (3, 5):
        store.jobs.heartbeat(
            owner.job_id, Heartbeat(streams=[StreamReport(stream="folder", state="polling", counters=StreamCounters(read=read))])
        )
    store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    other = holder(store)
    store.jobs.heartbeat(other.job_id, Heartbeat(streams=[StreamReport(stream="folder", state="polling", counters=StreamCounters(read=2))]))
    with store.reading() as connection:
        rows = connection.execute(select(stream_reports.c.job_id, stream_reports.c.read).order_by(stream_reports.c.job_id)).all()
    assert [tuple(row) for row in rows] == [(owner.job_id, 5), (other.job_id, 2)]
