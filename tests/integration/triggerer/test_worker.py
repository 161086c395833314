"""A worker in a thread, over HTTP, on a real API server: the effects of task bodies and their recorded results."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProjectError, TaskCancelled, UsageError
from headrace.project import Project
from headrace.sources.memory.upstream import Memory
from headrace.tasks.deferral import TaskDeferred
from headrace.tasks.log_event import LogEvent
from headrace.tasks.run import Run
from headrace.triggers.builtin.file import FileTrigger
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.jobs import CompleteJob
from support.processes.execution_api import serving
from support.processes.store import event, holder
from support.processes.worker import Working, worker_on

project = Project("flights")


@project.task()
def add(run: Run, a: int, b: int = 1) -> dict[str, int]:
    return {"sum": a + b, "attempt": run.attempt}


@project.task()
def fails(run: Run) -> None:
    raise ValueError("it cannot be")


@project.task()
def no_json(run: Run) -> object:
    return object()


@project.task()
def skips(run: Run) -> None:
    run.skip("nothing today")


@project.task()
def waits(run: Run, how: str) -> None:
    if how == "defer":
        run.defer(trigger=FileTrigger("/there"), method_name="goes_on", kwargs={"day": 1})
    if how == "raise":
        raise TaskDeferred(FileTrigger("/there"), "goes_on", {"day": 1})
    if how == "no method":
        run.defer(trigger=FileTrigger("/there"), method_name="nobody")
    if how == "stream":
        run.defer(trigger=WatchTrigger(upstream=Memory("feed")))
    if how == "nothing":
        run.defer(trigger=LogEvent([]))
    if how == "pattern":
        run.defer(trigger=LogEvent("legs.*", match={"leg": {"state": [{"prefx": "land"}]}}))
    run.defer(trigger=FileTrigger("/there"), timeout=0)


@project.task()
def follows(run: Run, legs: tuple[str, ...] = (), event: Any = None) -> list[str]:
    """Wait for three events, one after the other."""
    seen = [*legs, *([event["id"]] if event else [])]
    if len(seen) < 3:
        run.defer(trigger=LogEvent("legs.*", subject="N1"), kwargs={"legs": seen})
    return seen


@project.task()
def lands(run: Run, tail: str, event: Any = None) -> Any:
    """Wait for the landing of an aircraft, which only the payload names."""
    if event is None:
        run.defer(trigger=LogEvent("legs.*", match={"tail": [tail], "state": ["landed"]}), kwargs={"tail": tail})
    return event["data"]


@project.task(start_deferred=LogEvent("legs.*", id="9"))
def begins_with(run: Run, event: Any) -> Any:
    return event["data"]


@waits.method
def goes_on(run: Run, event: Any, day: int) -> list[Any]:
    return [event, day]


@project.task()
def starts(run: Run) -> list[str]:
    return [add.start(a=1), add.start(a=1), add.start(a=2), add.start("named", a=1)]


@project.task()
def no_spark(run: Run) -> object:
    return run.spark


@project.task()
def lingers(run: Run) -> None:
    entered.set()
    assert run._cancelled.wait(20)
    with pytest.raises(TaskCancelled):
        run.check()
    left.set()


entered = threading.Event()
left = threading.Event()


@pytest.fixture
def working(tmp_path: Path) -> Iterator[Working]:
    with serving(tmp_path) as api, worker_on(api, tmp_path, project) as made:
        yield made


@pytest.mark.parametrize(
    ("task", "kwargs", "state", "said"),
    [
        ("add", {"a": 2}, "succeeded", '{"sum":3,"attempt":1}'),
        ("add", {}, "failed", "TypeError: add() missing 1 required positional argument: 'a'"),
        ("fails", {}, "failed", "ValueError: it cannot be"),
        ("no_json", {}, "failed", "ProjectError: what the task 'no_json' returned cannot be written as JSON"),
        ("skips", {}, "skipped", '"nothing today"'),
        ("no_spark", {}, "failed", "ProjectError: The task 'no_spark' asks for no Spark."),
        ("waits", {"how": "no method"}, "failed", "The task 'waits' has no method 'nobody'"),
        ("waits", {"how": "stream"}, "failed", "which reads a shared stream"),
        ("waits", {"how": "no time"}, "failed", "cannot wait for 0 seconds"),
        ("waits", {"how": "nothing"}, "failed", "A run cannot wait for LogEvent(on=[]"),
        ("waits", {"how": "pattern"}, "failed", "In match=, leg.state has the operator 'prefx', which does not exist."),
    ],
)
def test_a_run_ends_with_the_result_or_error_of_its_body(
    working: Working, task: str, kwargs: dict[str, Any], state: str, said: str
) -> None:
    working.start(task, **kwargs)
    end = working.end()
    assert end.state == state
    assert said in ((end.error if state == "failed" else end.result) or "")


@pytest.mark.parametrize("how", ["defer", "raise"])
def test_a_deferred_run_frees_its_slot_and_resumes_with_the_event(working: Working, how: str) -> None:
    working.start("waits", how=how)
    assert working.end(states=("deferred",)).state == "deferred"
    owner = holder(working.api.store)
    owner.append(event("e", *owner.epochs, payload='{"path":"/there"}'))
    assert working.end().result == '[{"path":"/there"},1]'


def test_a_task_starts_one_run_for_each_argument_or_name(working: Working) -> None:
    working.start("starts")
    first, again, other, named = json.loads(working.end().result or "")
    assert first == again
    assert len({first, other, named}) == 3
    assert [working.end(run_id).state for run_id in (first, other, named)] == ["succeeded"] * 3
    assert len(working.runs()) == 4


def test_a_cancelled_body_is_interrupted(working: Working) -> None:
    working.start("lingers")
    assert entered.wait(20)
    working.api.store.task_runs.cancel("one")
    assert left.wait(20)
    assert working.end().state == "cancelled"


def test_a_worker_registers_again_after_the_end_of_its_job(working: Working) -> None:
    working.start("add", a=1)
    working.end()
    with working.api.store.reading() as connection:
        jobs = [row.id for row in connection.exec_driver_sql("SELECT id FROM jobs WHERE kind = 'worker'")]
    working.api.store.jobs.complete(jobs[0], CompleteJob(state="failed"))
    working.start("add", "two", a=2)
    assert working.end("two").result == '{"sum":3,"attempt":1}'


def test_invalid_declarations_and_starts_of_tasks_are_refused() -> None:
    other = Project("other")

    @other.task(on_failure="nobody")
    def known(run: Run) -> None:
        return

    with pytest.raises(ProjectError, match="names 'nobody', but no task has such a name"):
        other.declaration()
    with pytest.raises(ProjectError, match="Two tasks have the name 'known'"):
        other.task("known")(lambda run: None)
    with pytest.raises(ProjectError, match="two methods 'goes_on'"):
        waits.method(goes_on)
    with pytest.raises(ProjectError, match="is not a task"):
        other.task("bad", on_success=7)(lambda run: None)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="started from within a pipeline"):
        add.start(a=1)
    assert add(Run("id", "add", "flights", 1, Path()), a=1) == {"sum": 2, "attempt": 1}


def test_waiting_runs_resume_with_events_in_causal_order(working: Working) -> None:
    feeder = holder(working.api.store, "legs.a")
    (trigger,) = feeder.epochs
    working.start("follows")
    working.start("begins_with", "two")
    working.end("one", states=("deferred",))
    feeder.append(
        event("3", trigger, subject="N1", follows="2"),
        event("9", trigger, payload='{"n": 9}'),
        event("2", trigger, subject="N1", follows="1"),
    )
    assert json.loads(working.end("two").result or "") == {"n": 9}
    feeder.append(event("1", trigger, subject="N1"))
    assert json.loads(working.end("one").result or "") == ["1", "2", "3"]


def test_waiting_runs_resume_with_events_whose_payload_matches(working: Working) -> None:
    feeder = holder(working.api.store, "legs.a")
    (trigger,) = feeder.epochs
    for run_id, tail in (("one", "N1"), ("two", "N2")):
        working.start("lands", run_id, tail=tail)
        working.end(run_id, states=("deferred",))
    payloads = [{"tail": "N1", "state": "taxiing"}, {"tail": "N2", "state": "landed"}, {"tail": "N3", "state": "landed"}]
    feeder.append(*(event(f"{n}", trigger, payload=json.dumps(payload)) for n, payload in enumerate(payloads)))
    assert json.loads(working.end("two").result or "") == payloads[1]
    assert working.end("one", states=("deferred",)).state == "deferred"
    feeder.append(event("last", trigger, payload='{"tail": "N1", "state": "landed"}'))
    assert json.loads(working.end("one").result or "") == {"tail": "N1", "state": "landed"}
