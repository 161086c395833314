"""Task runs over HTTP with real clients, a real server and a real database; access rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.client.admin.task_runs import TaskRunsClient
from headrace.client.job import JobClient
from headrace.errors import ApiRefused, Fenced
from headrace.wire.calls import execution as calls
from headrace.wire.control.jobs import JobKind
from headrace.wire.task_runs import AwaitedTrigger, ClaimRuns, DeferRun, FinishRun, StartRun, StartTask, WaitCondition
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import event, holder, registration

TRIGGER = AwaitedTrigger(classpath="some.Trigger", kwargs={})
CLAIM = ClaimRuns(capacity=1, tasks=["submit"])


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def worker(api: Api) -> Iterator[JobClient]:
    with JobClient(api.url, key=KEY) as client:
        client.register(registration("worker"))
        yield client


@pytest.fixture
def admin(api: Api) -> Iterator[TaskRunsClient]:
    with TaskRunsClient(api.url, key=KEY) as client:
        yield client


def start(admin: TaskRunsClient, run_id: str = "one", **other: Any) -> str:
    return admin.start(StartTask(project="flights", run_id=run_id, task="submit", **other)).state


def test_a_run_is_started_claimed_deferred_resumed_and_finished(api: Api, worker: JobClient, admin: TaskRunsClient) -> None:
    assert start(admin, kwargs='{"day":1}') == "scheduled"
    (run,) = worker.request(calls.CLAIM_TASK_RUNS, CLAIM).runs
    waiting = WaitCondition(trigger=TRIGGER, method="collect", timeout=60)
    assert worker.request(calls.DEFER_TASK_RUN, DeferRun(epoch=run.epoch, waiting=waiting), run_id="one").state == "deferred"
    shown = admin.run("one")
    assert (shown.state, shown.method, shown.step) == ("deferred", "collect", 1)
    assert shown.waits_for is not None
    assert (shown.waits_for.classpath, shown.waits_for.state) == ("some.Trigger", "waiting")
    assert shown.timeout is not None
    owner = holder(api.store)
    assert owner.append(event("e", *owner.epochs, payload='{"rows":1}')) == ["stored"]
    (run,) = worker.request(calls.CLAIM_TASK_RUNS, CLAIM).runs
    assert (run.method, run.kwargs) == ("collect", '{"event":{"rows":1}}')
    assert (
        worker.request(calls.FINISH_TASK_RUN, FinishRun(epoch=run.epoch, state="succeeded", result="[1, 2]"), run_id="one").state
        == "succeeded"
    )
    assert worker.request(calls.GET_TASK_RUN_STATE, None, run_id="one").state == "succeeded"
    assert worker.request(calls.GET_TASK_RUN_RESULT, None, run_id="one").result == admin.run("one").result == "[1, 2]"
    assert [one.run_id for one in admin.task_runs(limit=5, state="succeeded", task="submit").runs] == ["one"]
    assert admin.task_runs(limit=5, state="failed").runs == []


def test_a_repeated_claim_returns_the_runs_of_a_lost_response(worker: JobClient, admin: TaskRunsClient) -> None:
    for run_id in ("one", "two", "three"):
        start(admin, run_id)
    request = CLAIM.model_copy(update={"capacity": 2})
    lost = worker.request(calls.CLAIM_TASK_RUNS, request).runs
    assert worker.request(calls.CLAIM_TASK_RUNS, request).runs == lost, "no further run was claimed"
    running = request.model_copy(update={"running": [run.run_id for run in lost]})
    (last,) = worker.request(calls.CLAIM_TASK_RUNS, running).runs
    assert {last.run_id, *running.running} == {"one", "two", "three"}


def test_a_waiting_claim_returns_new_runs_and_revocations_immediately(worker: JobClient, admin: TaskRunsClient) -> None:
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(worker.request, calls.CLAIM_TASK_RUNS, CLAIM.model_copy(update={"wait": 20.0}))
        start(admin)
        assert [run.run_id for run in asking.result(120).runs] == ["one"]
        asking = pool.submit(worker.request, calls.CLAIM_TASK_RUNS, ClaimRuns(capacity=0, tasks=[], running=["one"], wait=20.0))
        admin.cancel("one")
        assert asking.result(120).revoked == ["one"]


@pytest.mark.parametrize("kind", ["triggerer", "pipeline"])
def test_only_workers_claim_runs_and_any_job_starts_them(api: Api, kind: JobKind) -> None:
    with JobClient(api.url, key=KEY) as other:
        other.register(registration(kind))
        assert other.request(calls.START_TASK_RUN, StartRun(run_id="one", task="submit")).created
        assert not other.request(calls.START_TASK_RUN, StartRun(run_id="one", task="submit")).created
        for ask in (
            lambda: other.request(calls.CLAIM_TASK_RUNS, CLAIM),
            lambda: other.request(calls.FINISH_TASK_RUN, FinishRun(epoch=1, state="succeeded"), run_id="one"),
            lambda: other.request(calls.DEFER_TASK_RUN, DeferRun(epoch=1, waiting=WaitCondition(trigger=TRIGGER)), run_id="one"),
        ):
            with pytest.raises(ApiRefused) as refused:
                ask()
            assert refused.value.problem == "forbidden"


def test_runs_are_protected_from_other_workers_and_other_projects(api: Api, worker: JobClient, admin: TaskRunsClient) -> None:
    start(admin)
    (run,) = worker.request(calls.CLAIM_TASK_RUNS, CLAIM).runs
    with JobClient(api.url, key=KEY) as other:
        other.register(registration("worker"))
        with pytest.raises(Fenced):
            other.request(calls.FINISH_TASK_RUN, FinishRun(epoch=run.epoch, state="succeeded"), run_id="one")
    with JobClient(api.url, key=KEY) as stranger:
        stranger.register(registration("worker", project="trains"))
        assert stranger.request(calls.CLAIM_TASK_RUNS, CLAIM).runs == []
        with pytest.raises(ApiRefused) as refused:
            stranger.request(calls.GET_TASK_RUN_RESULT, None, run_id="one")
        assert refused.value.problem == "not-found"


def test_starting_and_cancelling_runs_needs_the_deployment_key(api: Api) -> None:
    with TaskRunsClient(api.url, key="another") as stranger:
        for ask in (lambda: start(stranger), lambda: stranger.cancel("one")):
            with pytest.raises(ApiRefused) as refused:
                ask()
            assert refused.value.problem == "unauthorized"


@pytest.mark.parametrize(
    "wrong",
    [
        {"kwargs": "[1]"},
        {"kwargs": "{"},
        {"run_id": "../etc"},
        {"run_id": "a" * 251},
        {"task": ""},
        {"waiting": {"trigger": {"classpath": "some.Trigger", "kwargs": {}}, "timeout": -1}},
        {"waiting": {"trigger": {"classpath": "not a class; import os", "kwargs": {}}}},
    ],
)
def test_an_invalid_start_is_refused_and_starts_nothing(api: Api, wrong: dict[str, Any]) -> None:
    body = {"project": "flights", "run_id": "one", "task": "submit"} | wrong
    answer = api.ask("POST", "/api/v1/task-runs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert api.ask("GET", "/api/v1/task-runs").json() == {"runs": []}
