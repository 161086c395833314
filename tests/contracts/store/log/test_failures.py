"""The contract of failed triggers: when they restart, when they are parked, and how they are resumed."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from sqlalchemy import func, select

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.control.workloads import Workload
from headrace.store.queries.status import job_list
from headrace.store.queries.triggers import trigger_detail
from headrace.store.tables.control import triggers
from headrace.wire.control.jobs import Blocked, CompleteJob, Heartbeat
from headrace.wire.control.triggers import (
    MAX_FAILED,
    CleanupTriggers,
    DeclaredTrigger,
    DeclareProject,
    FailureRecorded,
    LoadTriggers,
    StreamFailure,
    TriggerFailure,
)
from headrace.wire.status.triggerers import TriggerDetail
from support.processes.store import Holder, TurnedClock, declaration, event, holder


@pytest.fixture
def owner(store: Store) -> Holder:
    made = holder(store)
    declare(made)
    made.load()
    return made


def declare(owner: Holder, *, streams: tuple[str | None, ...] = ("folder", "folder"), max_restarts: int | None = 2, **kwargs: int) -> None:
    made = [
        DeclaredTrigger(name=f"t{n}", classpath="some.Trigger", kwargs=kwargs, stream=stream, max_restarts=max_restarts)
        for n, stream in enumerate(streams, start=1)
    ]
    owner.store.projects.declare(owner.job_id, "flights", DeclareProject(triggers=made, pipelines=[]))


def fail(owner: Holder, trigger_id: int = 1, *, number: int = 0, upstream: bool = False, blocked: float = 0.0) -> FailureRecorded:
    failure = TriggerFailure(
        epoch=owner.epochs[trigger_id],
        number=number,
        upstream=upstream,
        blocked=blocked,
        type="ValueError",
        message="no",
        traceback=["line 1", "line 2"],
    )
    return owner.store.triggers.failure(owner.job_id, trigger_id, failure)


def park(owner: Holder, trigger_id: int = 1) -> None:
    verdicts = [fail(owner, trigger_id).decision for _ in range(3)]
    assert verdicts == ["restart", "restart", "parked"]


def fail_stream(owner: Holder, *trigger_ids: int, report: str = "report-1") -> float:
    epochs = {one: owner.epochs[one] for one in trigger_ids}
    failed = StreamFailure(report=report, epochs=epochs, type="OSError", message="away", traceback=["line 1", "line 2"])
    return owner.store.triggers.stream_failure(owner.job_id, failed).retry_in


def workload(owner: Holder, trigger_id: int = 1) -> Workload:
    return owner.store.triggers.workloads(owner.job_id, [trigger_id])[0]


def detail_of(owner: Holder, trigger_id: int = 1) -> TriggerDetail:
    with owner.store.reading() as connection:
        found = trigger_detail(connection, owner.store.keyring, trigger_id, owner.store.now())
    assert found is not None
    return found


def test_a_failed_trigger_waits_longer_each_time_and_is_then_parked(owner: Holder) -> None:
    first, second, third = fail(owner), fail(owner), fail(owner)
    assert (first.decision, second.decision, third.decision) == ("restart", "restart", "parked")
    assert 0 < first.retry_in < second.retry_in
    assert third == FailureRecorded(decision="parked", retry_in=0, restarts=3)
    now = detail_of(owner)
    assert (now.state, now.failure, now.traceback, now.failures) == ("parked", "ValueError: no", ["line 1", "line 2"], 3)


def test_a_long_run_resets_the_number_of_restarts(owner: Holder, clock: TurnedClock) -> None:
    for _ in range(6):
        assert fail(owner).restarts == 1
        assert detail_of(owner).state == "failed"
        clock.turn(62)


def test_blocked_and_waiting_time_does_not_count_as_running(owner: Holder, clock: TurnedClock) -> None:
    counted = []
    for _ in range(3):
        clock.turn(70)
        counted.append(fail(owner, blocked=65).restarts)
    assert counted == [1, 2, 3]
    assert detail_of(owner).state == "parked"
    declare(owner, max_restarts=9, depth=1)
    owner.load()
    waits = [fail(owner).retry_in for _ in range(7)]
    owner.store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[1, 2]))
    owner.load()
    clock.turn(waits[-1] + 20)
    assert fail(owner).restarts == 8, "it waited longer than a long life, but lived for 20 s"


def test_a_repeated_failure_report_has_the_same_answer_and_is_not_counted(owner: Holder) -> None:
    first = fail(owner, number=1)
    assert fail(owner, number=1) == first
    fail(owner, number=2)
    third = fail(owner, number=3)
    assert fail(owner, number=3) == third
    assert detail_of(owner).failures == 3


def test_a_failing_upstream_never_parks_a_trigger(owner: Holder) -> None:
    waits = [fail(owner, upstream=True).retry_in for _ in range(20)]
    assert detail_of(owner).state == "failed"
    assert max(waits) <= 60
    assert fail(owner).decision == "restart", "it has its own failures before it"


def test_the_next_holder_inherits_the_wait_and_the_parked_state(owner: Holder, clock: TurnedClock) -> None:
    wait = fail(owner).retry_in
    park(owner, 2)
    clock.turn(0.25)
    owner.store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[1, 2]))
    next_owner = holder(owner.store)
    next_owner.load()
    owner.load()
    taker = next_owner if next_owner.epochs else owner
    taken = workload(taker)
    assert (taken.parked, taken.restarts) == (False, 1)
    assert taken.start_after == pytest.approx(wait - 0.25)
    assert workload(taker, 2).parked
    clock.set(-86_400)
    assert workload(taker).start_after <= 60


def test_a_parked_trigger_stays_leased_and_parked_after_a_late_event(owner: Holder) -> None:
    park(owner)
    assert owner.load() == {1: 1, 2: 1}
    assert owner.store.triggers.load(owner.job_id, _all()).revoked == {}
    assert owner.append(event("late", 1)) == ["stored"]
    assert detail_of(owner).state == "parked"


def test_a_stream_with_only_parked_triggers_is_released_and_not_acquired(owner: Holder) -> None:
    park(owner)
    park(owner, 2)
    answer = owner.store.triggers.load(owner.job_id, _all())
    assert list(answer.revoked) == [1, 2]
    owner.store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=list(answer.revoked), epochs=owner.epochs))
    assert owner.load() == {}
    assert detail_of(owner).state == "parked"
    assert detail_of(owner).unserved is None
    owner.store.triggers.resume(1)
    assert owner.load() == {1: 2, 2: 2}
    assert (workload(owner).parked, workload(owner, 2).parked) == (False, True)


def test_a_resumed_trigger_has_a_new_epoch_and_zero_restarts(owner: Holder) -> None:
    park(owner)
    owner.store.triggers.resume(1)
    assert owner.load() == {1: 2, 2: 1}
    now = workload(owner)
    assert (now.parked, now.restarts, now.start_after) == (False, 0, 0)
    assert detail_of(owner).failure is None
    owner.store.triggers.resume(1)
    assert owner.load() == {1: 2, 2: 1}, "what runs is left alone"
    park(owner)


def test_a_restarted_trigger_is_running_and_keeps_its_last_failure(owner: Holder, clock: TurnedClock) -> None:
    wait = fail(owner).retry_in
    failed = detail_of(owner)
    assert (failed.state, failed.since) == ("failed", None)
    clock.turn(wait + 1)
    again = detail_of(owner)
    assert (again.state, again.failure, again.failed, again.traceback) == ("running", "ValueError: no", failed.failed, ["line 1", "line 2"])
    assert again.failed is not None
    assert again.since is not None
    assert again.since > again.failed
    owner.store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[1, 2]))
    waits = detail_of(owner)
    assert (waits.state, waits.since, waits.failure) == ("waiting", None, "ValueError: no")
    owner.load()
    taken = detail_of(owner)
    assert (taken.state, taken.epoch, taken.failure, taken.failed) == ("running", 2, "ValueError: no", failed.failed)
    fail(owner)
    assert detail_of(owner).failures == 2


def test_a_failed_trigger_that_fires_is_running(owner: Holder, clock: TurnedClock) -> None:
    for _ in range(2):
        fail(owner)
    clock.turn(0.001)
    assert detail_of(owner).state == "failed"
    owner.append(event("after", 1))
    now = detail_of(owner)
    assert (now.state, now.failure) == ("running", "ValueError: no")


def test_a_blocked_trigger_is_shown_until_it_ends_blocking(owner: Holder) -> None:
    stack = ['File "slow.py", line 7 in handle'] * 300
    for seconds in (2.0, 3.0):
        blocked = Blocked(trigger_id=1, trigger="t1", seconds=seconds, stack=stack)
        owner.store.jobs.heartbeat(owner.job_id, Heartbeat(blocked=blocked))
        assert (detail_of(owner).blocking, detail_of(owner).stack, detail_of(owner, 2).blocking) == (seconds, stack[:100], None)
    assert running(owner) == [("t1", 3.0)]
    owner.store.jobs.heartbeat(owner.job_id, Heartbeat())
    assert (detail_of(owner).blocking, detail_of(owner).stack, running(owner)) == (None, [], [])
    owner.store.jobs.heartbeat(owner.job_id, Heartbeat(blocked=Blocked(trigger_id=None, trigger=None, seconds=5)))
    assert running(owner) == [(None, 5.0)]
    owner.store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    assert running(owner) == []


def running(owner: Holder) -> list[tuple[str | None, float]]:
    """Return what blocks jobs, as the status shows it."""
    with owner.store.reading() as connection:
        found = job_list(connection, owner.store.now(), owner.store.liveness)
    return [(job.blocked.trigger, job.blocked.seconds) for job in found if job.blocked is not None]


def test_a_changed_declaration_resumes_a_parked_trigger(owner: Holder) -> None:
    park(owner)
    declare(owner)
    assert detail_of(owner).state == "parked", "nothing changed"
    declare(owner, depth=2)
    owner.load()
    assert (detail_of(owner).state, workload(owner).parked) == ("running", False)


def test_the_limit_of_restarts_changes_while_the_trigger_runs(owner: Holder) -> None:
    declare(owner, max_restarts=0)
    assert owner.load() == {1: 1, 2: 1}
    assert fail(owner).decision == "parked"


def test_the_default_limit_is_ten_restarts(owner: Holder) -> None:
    declare(owner, max_restarts=None)
    assert [fail(owner).decision for _ in range(11)] == ["restart"] * 10 + ["parked"]


def test_only_the_holder_of_a_trigger_reports_its_failure(owner: Holder) -> None:
    other = holder(owner.store)
    other.epochs = dict(owner.epochs)
    with pytest.raises(Fenced):
        fail(other)


def test_an_unknown_trigger_cannot_be_resumed(owner: Holder) -> None:
    declare(owner, streams=("folder",))
    for trigger_id in (2, 77):
        with pytest.raises(ApiRefused) as refused:
            owner.store.triggers.resume(trigger_id)
        assert refused.value.status == 404


def _all() -> LoadTriggers:
    return LoadTriggers(capacity=100)


def test_a_failure_of_a_stream_applies_to_all_its_watches(store: Store, owner: Holder, clock: TurnedClock) -> None:
    first = fail_stream(owner, 1, 2)
    assert 0 < first <= 1
    assert [workload(owner, one).start_after for one in (1, 2)] == [first, first]
    assert [workload(owner, one).restarts for one in (1, 2)] == [1, 1]
    shown = [failure_of(store, f"t{one}") for one in (1, 2)]
    assert [one["traceback"] for one in shown] == [["line 1", "line 2"], ["The traceback is kept with trigger t1, of the same stream."]]
    assert [(one["type"], one["message"], one["upstream"]) for one in shown] == [("OSError", "away", True)] * 2
    clock.turn(0.25)
    assert fail_stream(owner, 1, 2) == pytest.approx(first - 0.25)  # a replay
    clock.turn(1)
    for number in range(2, 30):
        again = fail_stream(owner, 1, 2, report=f"report-{number}")
        assert workload(owner).parked is False
        clock.turn(again)
    assert workload(owner).restarts == 1  # half of what it may


def test_a_failure_of_a_stream_counts_only_for_leases_of_the_job(store: Store, owner: Holder) -> None:
    stale = Holder(store, owner.job_id, {1: owner.epochs[1], 2: owner.epochs[2] - 1, 9: 1})
    assert fail_stream(stale, 1, 2, 9) > 0
    assert [workload(owner, one).restarts for one in (1, 2)] == [1, 0]
    other = holder(store, hostname="other")
    assert fail_stream(Holder(store, other.job_id, owner.epochs), 1, 2) == 0


def test_a_thousand_watches_fail_with_one_call(store: Store) -> None:
    owner = holder(store)
    store.projects.declare(owner.job_id, "flights", declaration(*(f"w{n}" for n in range(MAX_FAILED))))
    owner.load(MAX_FAILED)
    assert fail_stream(owner, *owner.epochs) > 0
    with store.reading() as connection:
        kept = connection.execute(select(func.count(), func.sum(func.length(triggers.c.failure))).where(triggers.c.state == "failed")).one()
    assert kept[0] == MAX_FAILED
    assert kept[1] < MAX_FAILED * 400


def failure_of(store: Store, name: str) -> dict[str, Any]:
    with store.reading() as connection:
        text = connection.execute(select(triggers.c.failure).where(triggers.c.name == name)).scalar_one()
    return cast("dict[str, Any]", json.loads(text))
