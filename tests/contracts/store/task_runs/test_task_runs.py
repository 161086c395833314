"""The contract of task runs: started once, held by one worker, resumed by one event, ended once."""

from __future__ import annotations

import json
from threading import Event
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from headrace.core.task_run import MAX_ATTEMPTS, RUN_FAILED, RUN_SKIPPED, RUN_SUCCEEDED, TIMED_OUT
from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.tables.control import triggers
from headrace.store.tables.log import events
from headrace.store.task_runs.sweep import BATCH_TRIGGERS
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.control.triggers import CleanupTriggers, LoadTriggers, TriggerFailure
from headrace.wire.task_runs import (
    AwaitedTrigger,
    Callbacks,
    ClaimedRun,
    ClaimedRuns,
    ClaimRuns,
    DeferRun,
    FinishRun,
    StartRun,
    WaitCondition,
)
from support.processes.store import Holder, TurnedClock, arguments, declaration, event, holder, registration

PROJECT = "flights"
TRIGGER = AwaitedTrigger(classpath="some.Trigger", kwargs={"path": "there"})


def start(store: Store, run_id: str = "one", task: str = "submit", **other: Any) -> str:
    return store.task_runs.start(PROJECT, StartRun(run_id=run_id, task=task, **other)).state


def waiting(**other: Any) -> WaitCondition:
    given: dict[str, Any] = {"trigger": TRIGGER, "method": "collect", "kwargs": '{"day":1}'}
    return WaitCondition(**(given | other))


class Worker:
    """A worker's job."""

    def __init__(self, store: Store, **other: Any) -> None:
        self.store = store
        self.job = store.jobs.register(registration("worker", **other)).id

    def claim(self, capacity: int = 9, tasks: tuple[str, ...] = ("submit", "told"), running: tuple[str, ...] = ()) -> list[ClaimedRun]:
        return self.ask(capacity, tasks, running).runs

    def ask(self, capacity: int = 0, tasks: tuple[str, ...] = (), running: tuple[str, ...] = ()) -> ClaimedRuns:
        return self.store.task_runs.claim(self.job, ClaimRuns(capacity=capacity, tasks=list(tasks), running=list(running)))

    def defer(self, run: ClaimedRun, **other: Any) -> str:
        return self.store.task_runs.defer(self.job, run.run_id, DeferRun(epoch=run.epoch, waiting=waiting(**other))).state

    def finish(self, run: ClaimedRun, state: Any = "succeeded", **other: Any) -> str:
        return self.store.task_runs.finish(self.job, run.run_id, FinishRun(epoch=run.epoch, state=state, **other)).state


def deferred(store: Store, run_id: str = "one", **other: Any) -> tuple[Worker, Holder]:
    """A run that waits, and a triggerer that runs what it waits for."""
    worker = Worker(store)
    start(store, run_id)
    (run,) = worker.claim()
    assert worker.defer(run, **other) == "deferred"
    return worker, holder(store)


def the_state(store: Store, run_id: str = "one") -> str:
    return store.task_runs.result(run_id).state


def test_a_run_is_started_once_for_each_id(store: Store) -> None:
    begun = store.task_runs.start(PROJECT, StartRun(run_id="one", task="submit"))
    again = store.task_runs.start(PROJECT, StartRun(run_id="one", task="submit", kwargs='{"other": 1}'))
    assert (begun.created, again.created, again.state) == (True, False, "scheduled")
    with pytest.raises(ApiRefused, match="is one of task 'submit'") as refused:
        store.task_runs.start(PROJECT, StartRun(run_id="one", task="other"))
    assert (refused.value.status, refused.value.problem) == (409, "conflict")
    assert [run.kwargs for run in Worker(store).claim()] == ["{}"]


def test_a_run_is_claimed_by_one_worker_with_its_project_and_task(store: Store) -> None:
    start(store, "one")
    start(store, "two", "told")
    assert Worker(store, project="trains").claim() == []
    first, second = Worker(store), Worker(store)
    assert [run.run_id for run in first.claim(tasks=("submit",))] == ["one"]
    assert [(run.run_id, run.attempt, run.epoch) for run in second.claim()] == [("two", 1, 1)]
    assert first.claim(running=("one",)) == []


def test_the_oldest_runs_are_claimed_first_up_to_the_capacity(store: Store, clock: TurnedClock) -> None:
    for name in ("c", "a", "b"):
        start(store, name)
        clock.turn(1)
    worker = Worker(store)
    assert [run.run_id for run in worker.claim(2)] == ["c", "a"]
    assert worker.claim(0) == []
    assert [run.run_id for run in worker.claim(2, running=("c", "a"))] == ["b"]


def test_the_event_is_passed_unchanged_and_not_stored_in_the_log(store: Store) -> None:
    worker, owner = deferred(store)
    assert owner.append(event("e", *owner.epochs, payload='{"b": 1.0,  "a":[]}')) == ["stored"]
    (run,) = worker.claim()
    assert (run.method, run.kwargs, run.attempt) == ("collect", '{"day":1,"event":{"b": 1.0,  "a":[]}}', 1)
    with store.reading() as connection:
        assert connection.execute(select(events.c.id)).all() == []
    assert store.log.head().head == 0


def test_the_first_event_resumes_the_run_and_later_events_are_duplicates(store: Store) -> None:
    worker, owner = deferred(store)
    trigger = next(iter(owner.epochs))
    assert owner.append(event("a", trigger, payload="1"), event("b", trigger, payload="2")) == ["stored", "duplicate"]
    assert owner.append(event("a", trigger, payload="1"), event("c", trigger, payload="3")) == ["duplicate", "duplicate"]
    (run,) = worker.claim()
    assert json.loads(run.kwargs)["event"] == 1
    assert worker.claim(running=(run.run_id,)) == []
    assert owner.append(event("d", trigger)) == ["duplicate"]


def test_an_event_of_an_earlier_wait_does_not_end_the_next_wait(store: Store) -> None:
    worker, owner = deferred(store)
    first = dict(owner.epochs)
    owner.append(event("a", *first))
    assert worker.defer(worker.claim()[0]) == "deferred"
    assert owner.append(event("b", *first)) == ["duplicate"]
    owner.load()
    assert set(owner.epochs).isdisjoint(first)
    assert owner.append(event("c", *owner.epochs, payload='"second"')) == ["stored"]
    assert json.loads(worker.claim()[0].kwargs)["event"] == "second"


def test_a_trigger_without_a_waiting_run_is_revoked_and_not_leased_again(store: Store) -> None:
    worker, owner = deferred(store)
    (trigger,) = owner.epochs
    store.task_runs.cancel("one")
    answer = store.triggers.load(owner.job_id, LoadTriggers(capacity=9))
    assert (answer.leases, list(answer.revoked)) == ([], [trigger])
    assert holder(store).epochs == {}
    assert worker.claim() == []


def test_only_the_trigger_of_the_last_wait_remains(store: Store) -> None:
    worker, owner = deferred(store)
    for number in range(4):
        owner.append(event(str(number), *owner.epochs))
        worker.defer(worker.claim()[0])
        owner.load()
    with store.reading() as connection:
        assert [row.state for row in connection.execute(select(triggers.c.state).order_by(triggers.c.id))] == ["removed", "running"]


def test_a_trigger_without_a_waiting_run_is_deleted_after_its_cleanup(store: Store) -> None:
    _, owner = deferred(store)
    (trigger,) = owner.epochs

    def known() -> list[int]:
        store.task_runs.sweep()
        with store.reading() as connection:
            return list(connection.execute(select(triggers.c.id)).scalars())

    store.task_runs.cancel("one")
    assert known() == [trigger]
    store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[trigger]))
    assert known() == []


def test_a_declaration_does_not_change_triggers_of_waiting_runs(store: Store) -> None:
    _, owner = deferred(store)
    declared = store.projects.declare(owner.job_id, PROJECT, declaration("first"))
    assert list(declared.triggers) == ["first"]
    waited = dict(owner.epochs)
    owner.load()
    assert waited.items() <= owner.epochs.items()
    (workload,) = store.triggers.workloads(owner.job_id, list(waited))
    assert (workload.run_id, workload.classpath, arguments(workload)) == ("one", "some.Trigger", {"path": "there"})


@pytest.mark.parametrize(("type", "state"), [(RUN_SUCCEEDED, "succeeded"), (RUN_FAILED, "failed"), (RUN_SKIPPED, "skipped")])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_terminal_event_ends_the_run_without_a_worker(store: Store, type: str, state: str, at_once: bool) -> None:
    if at_once:
        assert start(store, waiting=waiting()) == "deferred"
        owner = holder(store)
    else:
        _, owner = deferred(store)
    assert owner.append(event("e", *owner.epochs, type=type, payload='{"rows": 3}')) == ["stored"]
    result = store.task_runs.result("one")
    assert result.state == state
    assert (result.error if state == "failed" else result.result) == '{"rows": 3}'
    assert Worker(store).claim() == []


def test_a_run_that_starts_deferred_uses_no_worker_until_the_event(store: Store) -> None:
    start(store, waiting=waiting(method=None))
    worker = Worker(store)
    assert worker.claim() == []
    owner = holder(store)
    owner.append(event("e", *owner.epochs, payload="7"))
    assert [(run.method, run.kwargs) for run in worker.claim()] == [(None, '{"day":1,"event":7}')]


def test_a_wait_times_out_once_and_a_late_event_is_a_duplicate(store: Store, clock: TurnedClock) -> None:
    _, owner = deferred(store, timeout=10)
    clock.turn(9.9)
    assert store.task_runs.sweep() == 100_000
    assert the_state(store) == "deferred"
    clock.turn(0.1)
    assert store.task_runs.sweep() is None
    result = store.task_runs.result("one")
    assert (result.state, result.error) == ("failed", TIMED_OUT)
    assert owner.append(event("e", *owner.epochs)) == ["duplicate"]


def test_a_timeout_calls_the_timeout_method(store: Store, clock: TurnedClock) -> None:
    worker, _ = deferred(store, timeout=10, timeout_method="too_late")
    clock.turn(10)
    assert [(run.method, run.kwargs) for run in worker.claim()] == [("too_late", '{"day":1}')]


def test_only_the_holder_of_a_run_changes_it_and_repeated_calls_are_answered(store: Store) -> None:
    worker, other = Worker(store), Worker(store)
    start(store)
    (run,) = worker.claim()
    for stale in (run.model_copy(update={"epoch": run.epoch + 1}), run.model_copy(update={"epoch": 0})):
        with pytest.raises(Fenced):
            worker.finish(stale)
    with pytest.raises(Fenced):
        other.defer(run)
    assert worker.finish(run, result='{"rows":1}') == "succeeded"
    assert worker.finish(run, "failed", error="late") == "succeeded"
    assert worker.defer(run) == "succeeded"
    assert store.task_runs.result("one").result == '{"rows":1}'


def test_the_run_of_a_lost_worker_is_claimed_again_and_the_old_worker_is_fenced(store: Store, clock: TurnedClock) -> None:
    dead, heir = Worker(store), Worker(store)
    start(store)
    (lost,) = dead.claim()
    clock.turn(31)
    heir.ask()  # where nobody was heard, all get a moment
    clock.turn(5)
    heir.ask()
    (again,) = heir.claim()
    assert (again.attempt, again.run_id) == (2, "one")
    with pytest.raises(Fenced):
        dead.finish(lost)
    assert heir.finish(again) == "succeeded"


def test_a_run_that_kills_five_workers_fails(store: Store) -> None:
    start(store)
    for _ in range(MAX_ATTEMPTS):
        worker = Worker(store)
        assert len(worker.claim()) == 1
        store.jobs.complete(worker.job, CompleteJob(state="failed"))
    assert Worker(store).claim() == []
    assert "5 workers" in (store.task_runs.result("one").error or "")


@pytest.mark.parametrize("at", ["scheduled", "running", "deferred"])
def test_a_cancellation_ends_a_run_in_any_state_and_is_sent_to_its_worker(store: Store, at: str) -> None:
    worker = Worker(store)
    start(store)
    claimed = worker.claim() if at != "scheduled" else []
    if at == "deferred":
        worker.defer(claimed[0])
    assert worker.ask(running=("one",)).revoked == ([] if at == "running" else ["one"])
    assert store.task_runs.cancel("one").state == "cancelled"
    assert store.task_runs.cancel("one").state == "cancelled"
    assert worker.ask(running=("one",)).revoked == ["one"]
    assert worker.claim() == []
    if at == "running":
        with pytest.raises(Fenced):
            worker.finish(claimed[0])


def test_an_ended_run_cannot_be_cancelled(store: Store) -> None:
    worker = Worker(store)
    start(store)
    worker.finish(worker.claim()[0])
    assert store.task_runs.cancel("one").state == "succeeded"


CALLBACKS = Callbacks(on_success="told", on_failure="told", on_timeout="late")


@pytest.mark.parametrize(
    ("callbacks", "how", "task"),
    [(CALLBACKS, "succeeded", "told"), (CALLBACKS, "failed", "told"), (CALLBACKS, "skipped", None), (CALLBACKS, "cancelled", None),
     (CALLBACKS, "expired", "late"), (Callbacks(on_failure="told"), "expired", "told"), (Callbacks(on_success="told"), "failed", None)],
)  # fmt: skip
def test_the_outcome_starts_the_callback_task(store: Store, clock: TurnedClock, callbacks: Callbacks, how: str, task: str | None) -> None:
    worker = Worker(store)
    start(store, callbacks=callbacks)
    (run,) = worker.claim()
    if how == "cancelled":
        store.task_runs.cancel("one")
    elif how == "expired":
        worker.defer(run, timeout=1)
        clock.turn(2)
        store.task_runs.sweep()
    else:
        worker.finish(run, how, **({"error": "why"} if how == "failed" else {"result": "[1]"}))
    found = worker.claim(tasks=("told", "late"))
    assert [one.task for one in found] == ([task] if task else [])
    if how == "succeeded":
        outcome = {"run_id": "one", "task": "submit", "state": "succeeded", "error": None, "result": [1]}
        assert json.loads(found[0].kwargs) == {"outcome": outcome}


def test_an_unknown_run_is_not_found(store: Store) -> None:
    for ask in (store.task_runs.cancel, store.task_runs.result):
        with pytest.raises(ApiRefused, match="No run has the id nobody"):
            ask("nobody")
    start(store)
    with pytest.raises(ApiRefused, match="No run has the id one"):
        store.task_runs.result("one", project="trains")


def test_commits_that_others_wait_for_send_the_commit_signal(store: Store) -> None:
    rung: list[str] = []
    store.task_runs.commit_signal.listen(lambda: rung.append("rung"))
    worker, owner = deferred(store)
    begun = len(rung)
    assert begun >= 2
    owner.append(event("e", *owner.epochs))
    assert len(rung) == begun + 1
    worker.ask()
    assert len(rung) == begun + 1, "asking is nothing to hear of"


def fail(store: Store, owner: Holder, number: int = 1) -> str:
    """Let what the run waits for fail; return the verdict."""
    (trigger,) = owner.epochs
    failure = TriggerFailure(
        epoch=owner.epochs[trigger],
        number=number,
        type="OSError",
        message="the service is gone",
        traceback=['  File "mine.py", line 7, in run', "OSError: the service is gone"],
    )
    return store.triggers.failure(owner.job_id, trigger, failure).decision


def test_a_run_whose_trigger_is_parked_fails_with_its_exception_and_traceback(store: Store) -> None:
    _, owner = deferred(store)
    rung = Event()
    forget = store.task_runs.commit_signal.listen(rung.set)
    number = 1
    while fail(store, owner, number) != "parked":
        assert the_state(store) == "deferred"
        number += 1
    assert rung.wait(120)  # the timer of the runs sweeps at once
    forget()
    store.task_runs.sweep()
    result = store.task_runs.result("one")
    assert result.state == "failed"
    assert (result.error or "").splitlines() == [
        "Its trigger failed for good: OSError: the service is gone",
        '  File "mine.py", line 7, in run',
        "OSError: the service is gone",
    ]


def test_the_error_of_a_timed_out_run_has_the_last_failure_of_its_trigger(store: Store, clock: TurnedClock) -> None:
    _, owner = deferred(store, timeout=60.0)
    assert fail(store, owner) == "restart"
    clock.turn(61)
    store.task_runs.sweep()
    error = store.task_runs.result("one").error or ""
    assert error.startswith(f"{TIMED_OUT} Its trigger last failed with OSError: the service is gone\n")
    assert 'File "mine.py", line 7' in error


def test_a_timeout_calls_the_timeout_callback_even_after_a_trigger_failure(store: Store, clock: TurnedClock) -> None:
    start(store, waiting=waiting(timeout=60.0), callbacks=Callbacks(on_timeout="told", on_failure="never"))
    assert fail(store, holder(store)) == "restart"
    clock.turn(61)
    store.task_runs.sweep()
    (called,) = Worker(store).claim()
    assert called.task == "told"


def test_triggers_without_waiting_runs_are_deleted_in_slices(store: Store) -> None:
    ended = {"classpath": "c", "kwargs": "{}", "queue": "default", "state": "removed", "failures": 0, "fired": 0, "rejected": 0}
    rows = [
        ended | {"project": PROJECT, "name": f"run:{n}/1", "run_id": f"{n}", "epoch": 1, "declared": 0}
        for n in range(2 * BATCH_TRIGGERS + 10)
    ]
    store.prune(lambda connection: connection.execute(insert(triggers), rows).rowcount)
    left = []
    for more in (True, True, False):
        assert (store.task_runs.sweep() is not None) is more, "it is to be called again at once while there are more"
        with store.reading() as connection:
            left.append(connection.execute(select(func.count()).select_from(triggers)).scalar_one())
    assert left == [BATCH_TRIGGERS + 10, 10, 0]
