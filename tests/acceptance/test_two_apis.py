"""Two real API servers on one PostgreSQL database: a waiting client of one server is notified of commits of the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

from headrace.client.admin.client import AdminClient
from headrace.client.admin.task_runs import TaskRunsClient
from headrace.client.job import JobClient
from headrace.wire.calls import admin as calls
from headrace.wire.calls.execution import CLAIM_TASK_RUNS
from headrace.wire.task_runs import ClaimRuns, StartTask
from support.processes.deployment import KEY, Deployment, until
from support.processes.ports import free_port
from support.processes.postgres import database_of
from support.processes.store import registration

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False).is_success
    except httpx.TransportError:
        return False


def heartbeat(url: str) -> str:
    with AdminClient(url) as admin:
        (job,) = admin.get(calls.GET_STATUS)["jobs"]
    return str(job["last_heartbeat"])


def has_asked(url: str, before: str) -> bool:
    return heartbeat(url) > before


def test_a_worker_receives_runs_started_at_another_api_server(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    deployment._environment["HEADRACE_DATABASE_URL"] = database_of(tmp_path)
    port = str(free_port())
    other = f"http://127.0.0.1:{port}"
    with deployment, ThreadPoolExecutor(1) as pool:
        deployment._start("api-2", {"HEADRACE_PORT": port}, "api")
        until(lambda: answers(other), "the other api answers")
        with JobClient(deployment.url, key=KEY) as worker, TaskRunsClient(other, key=KEY) as admin:
            worker.register(registration("worker"))
            running: list[str] = []
            for run_id in ("one", "two", "three"):
                # Without word of the other's commits it would get nothing, or only after its time.
                before = heartbeat(other)
                claim = ClaimRuns(capacity=1, tasks=["t"], running=list(running), wait=20)
                claimed = pool.submit(worker.request, CLAIM_TASK_RUNS, claim)
                until(partial(has_asked, other, before), "it has asked, and waits")
                admin.start(StartTask(project="flights", run_id=run_id, task="t", kwargs="{}"))
                assert [run.run_id for run in claimed.result().runs] == [run_id]
                running.append(run_id)
