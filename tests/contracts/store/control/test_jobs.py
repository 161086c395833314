"""The contract of jobs and leases: who lives, who holds what, and who is told to let go."""

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


def test_a_registration_is_replayed_not_repeated(store: Store) -> None:
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


def test_loading_answers_with_every_lease_held_and_keeps_their_epochs(store: Store) -> None:
    owner = holder(store, "first", "second")
    assert owner.epochs == {1: 1, 2: 1}
    assert owner.load() == {1: 1, 2: 1}
    answer = store.jobs.heartbeat(owner.job_id, NOTHING)
    assert answer.desired_state == "run"
    assert {lease.trigger_id: lease.epoch for lease in answer.leases} == owner.epochs


def test_a_completed_job_gives_its_leases_to_the_next_at_a_higher_epoch(store: Store) -> None:
    first = holder(store, "first")
    second = holder(store)
    assert second.epochs == {}
    store.jobs.complete(first.job_id, CompleteJob(state="succeeded"))
    assert trigger_states(store) == {"first": "waiting"}
    assert second.load() == {1: 2}


def test_a_silent_job_dies_after_thirty_seconds_and_its_old_epoch_is_fenced(store: Store, clock: TurnedClock) -> None:
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


def test_where_nobody_was_heard_all_get_a_moment_to_say_that_they_live(store: Store, clock: TurnedClock) -> None:
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


def test_nobody_dies_of_a_silence_in_which_the_api_was_away(tmp_path: Path) -> None:
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


def test_the_next_incarnation_does_not_wait_for_the_previous_one(store: Store) -> None:
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


def test_a_trigger_that_changed_is_taken_from_its_owner_and_run_anew(store: Store) -> None:
    owner = holder(store, "first", "second")
    store.projects.declare(owner.job_id, "flights", declaration("first", "second"))
    assert owner.load() == {1: 1, 2: 1}
    store.projects.declare(owner.job_id, "flights", declaration("first", "second", depth=2))
    assert store.jobs.heartbeat(owner.job_id, NOTHING).leases == []
    assert owner.load() == {1: 2, 2: 2}


def test_a_trigger_no_longer_named_is_revoked_and_keeps_its_row(store: Store) -> None:
    owner = holder(store, "first", "second")
    assert store.projects.declare(owner.job_id, "flights", declaration("second")).triggers == {"second": 2}
    answer = store.triggers.load(owner.job_id, LoadTriggers(capacity=9))
    assert answer.revoked == [1]
    assert [lease.trigger_id for lease in answer.leases] == [2]
    assert trigger_states(store) == {"first": "removed", "second": "running"}
    assert store.projects.declare(owner.job_id, "flights", declaration("first", "second")).triggers == {"first": 1, "second": 2}
    assert owner.load() == {1: 2, 2: 1}


def test_a_job_declares_its_own_project_only(store: Store) -> None:
    owner = holder(store, "first")
    with pytest.raises(ApiRefused) as refused:
        store.projects.declare(owner.job_id, "trains", declaration("second"))
    assert refused.value.status == 403


def test_triggers_of_another_project_are_not_claimed(store: Store) -> None:
    holder(store, "first")
    other = holder(store, project="trains")
    assert other.epochs == {}


def test_a_new_trigger_of_a_stream_goes_to_whoever_polls_it(store: Store) -> None:
    first = holder(store, "first")
    second = holder(store)
    store.projects.declare(first.job_id, "flights", declaration("first", "second"))
    assert second.load() == {}
    assert first.load() == {1: 1, 2: 1}


def test_workloads_are_given_for_leases_held_only(store: Store) -> None:
    owner = holder(store, "first")
    other = holder(store)
    workload = store.triggers.workloads(owner.job_id, [1, 2])[0]
    assert (workload.name, workload.stream, workload.epoch, arguments(workload)) == ("first", "folder", 1, {})
    assert str(owner.job_id) in workload.log_name
    assert store.triggers.workloads(other.job_id, [1]) == []


def test_a_failure_is_kept_until_the_trigger_fires_or_is_claimed_anew(store: Store) -> None:
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


def test_triggers_given_up_can_be_claimed(store: Store) -> None:
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
