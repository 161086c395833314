"""Task runs with real processes: API server, triggerer, worker and Spark, killed while a run waits; and a worker killed during a run."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow.parquet as pq
import pytest

from headrace.client.admin.task_runs import TaskRunsClient
from headrace.process.child import REGISTRATION, REPLACES
from headrace.wire.task_runs import StartTask, TaskRunDetail
from support.processes.deployment import KEY, Deployment, Process, until

pytestmark = pytest.mark.acceptance

EXAMPLE = Path(__file__).parents[2] / "examples" / "deferred"
DAY = "2013-01-01"

TASKS = """
import os, signal
from pathlib import Path
from headrace import BaseTrigger, DateTimeTrigger, FileTrigger, Project

project = Project("scenario")
HERE = Path(__file__).parent

@project.task()
def mortal(run, until):
    with (HERE / "attempts").open("a") as file:
        file.write(f"{run.attempt}\\n")
    if run.attempt < until:
        os.kill(os.getpid(), signal.SIGKILL)
    return run.attempt

@project.task()
def waiter(run, path, timeout=None, late=None):
    run.defer(trigger=FileTrigger(path), method_name="go_on", kwargs={"path": path}, timeout=timeout, timeout_method=late)

@waiter.method
def go_on(run, event, path):
    return {"size": event["size"]}

@waiter.method
def too_late(run, path):
    run.skip("too late")

@project.task()
def watched(run, marks):
    from waiting_triggers import Marking
    run.defer(trigger=Marking(marks))

@project.task()
def patient(run, path):
    Path(path).touch()
    while not run.cancelled:
        run._cancelled.wait(0.1)
    Path(path).unlink()
    run.check()
"""

TRIGGERS = """
import asyncio, os
from pathlib import Path
from headrace import BaseTrigger

class Marking(BaseTrigger):
    '''Waits for ever; leaves a file for each of its lives, and one when it is cleaned up.'''

    def __init__(self, marks):
        self.marks = marks

    def serialize(self):
        return "waiting_triggers.Marking", {"marks": self.marks}

    async def run(self):
        (Path(self.marks) / f"alive-{os.getpid()}").touch()
        await asyncio.Event().wait()
        yield

    async def cleanup(self):
        (Path(self.marks) / "cleaned").touch()
"""


@dataclass
class Scene:
    """A deployment, a project in it, and its processes."""

    deployment: Deployment
    triggerer: Process
    worker: Process

    def start_worker(self, replaces: Process | None = None) -> Process:
        self.worker = self._start("worker", replaces)
        return self.worker

    def start_triggerer(self, replaces: Process | None = None) -> Process:
        self.triggerer = self._start("triggerer", replaces)
        return self.triggerer

    def start_api(self) -> None:
        self.deployment.api = self.deployment._start("api", {}, "api")
        until(self.deployment._answers, "the api answers again")

    def start_run(self, task: str, **args: Any) -> str:
        run_id = str(uuid4())
        with self.runs() as client:
            client.start(StartTask(project="scenario", run_id=run_id, task=task, kwargs=json.dumps(args)))
        return run_id

    def cli(self, *arguments: str) -> str:
        done = self.deployment.cli(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def runs(self) -> TaskRunsClient:
        return TaskRunsClient(self.deployment.url, key=KEY)

    def run(self, run_id: str) -> TaskRunDetail:
        with self.runs() as client:
            return client.run(run_id)

    def until_is(self, run_id: str, state: str) -> TaskRunDetail:
        until(lambda: self.run(run_id).state == state, f"{run_id} is {state}")
        return self.run(run_id)

    def _start(self, kind: str, replaces: Process | None) -> Process:
        more = {REGISTRATION: uuid4().hex}
        if replaces is not None:
            more[REPLACES] = replaces.registration
        return self.deployment._start(f"{kind}-{len(self.deployment._processes)}", more, kind)


@contextmanager
def scene(folder: Path, project: Path, **more: str) -> Iterator[Scene]:
    with Deployment(folder, job_timeout=5) as deployment:
        deployment._environment |= {**more, "HEADRACE_PROJECT": str(project)}
        made = Scene(deployment, deployment.api, deployment.api)
        made.start_triggerer()
        made.start_worker()
        yield made


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "project.py").write_text(TASKS)
    (tmp_path / "waiting_triggers.py").write_text(TRIGGERS)
    with scene(tmp_path, tmp_path / "project.py") as made:
        yield made


@contextmanager
def forecaster(hold: Path) -> Iterator[str]:
    hold.touch()
    command = [sys.executable, str(EXAMPLE / "service.py"), "--port", "0", "--hold", str(hold)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(service.stdout.readline())}"
        finally:
            service.kill()


@pytest.mark.timeout(300)
def test_a_waiting_run_survives_a_kill_of_every_process(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    sys.stderr.write(f"seed {seed}\n")
    project = shutil.copy(EXAMPLE / "project.py", tmp_path / "project.py")
    feed, hold = tmp_path / "feed", tmp_path / "hold"
    feed.mkdir()
    with (
        forecaster(hold) as service,
        scene(tmp_path, Path(project), FEED=str(feed), FORECASTER=service, HEADRACE_MASTER="local[1]") as made,
    ):
        made.cli("task-runs", "start", "arrivals", "--args", json.dumps({"day": DAY}), "--id", "the-first")
        assert made.run("the-first").state == "deferred"
        subprocess.run([sys.executable, str(EXAMPLE / "feed.py"), DAY], env={**os.environ, "FEED": str(feed)}, check=True)
        arrived = json.loads(made.until_is("the-first", "succeeded").result or "")
        waiting = made.until_is(arrived["forecast"], "deferred")
        assert waiting.waits_for is not None
        assert waiting.waits_for.classpath.endswith("HttpStatusTrigger")
        kills = ["triggerer", "api", "worker"]
        random.Random(seed).shuffle(kills)
        for name in kills:
            victim = made.deployment.api if name == "api" else getattr(made, name)
            victim.kill()
            assert name == "api" or made.run(arrived["forecast"]).state == "deferred"
            made.start_api() if name == "api" else getattr(made, f"start_{name}")(victim)
        hold.unlink()
        done = made.until_is(arrived["forecast"], "succeeded")
        assert json.loads(done.result or "") == {"day": DAY, "lanes": 4}
        assert json.loads(made.cli("task-runs", "result", done.run_id)) == {"day": DAY, "lanes": 4}
        until(lambda: (tmp_path / "told.txt").exists(), "the callback has told")
        table = pq.read_table(tmp_path / "home" / "tables" / "forecasts").to_pylist()
        assert sorted((row["origin"], row["dest"]) for row in table) == [("EWR", "ORD"), ("EWR", "SFO"), ("JFK", "LAX"), ("LGA", "ATL")]
        assert httpx.get(service, trust_env=False, timeout=60).json() == {"started": 1}
        assert (tmp_path / "told.txt").read_text().count("forecast succeeded") == 1


def test_a_run_of_a_killed_worker_is_executed_again(tasks: Scene) -> None:
    run_id = tasks.start_run("mortal", until=3)
    for _ in range(2):
        tasks.worker.popen.wait(60)
        tasks.start_worker(tasks.worker)
    assert tasks.until_is(run_id, "succeeded").result == "3"
    assert (tasks.deployment.folder / "attempts").read_text().split() == ["1", "2", "3"]


def test_the_api_server_ends_a_wait_at_its_timeout(tasks: Scene) -> None:
    failed = tasks.start_run("waiter", path="/nowhere/at/all", timeout=1)
    skipped = tasks.start_run("waiter", path="/nowhere/at/all", timeout=1, late="too_late")
    assert "timed out" in (tasks.until_is(failed, "failed").error or "")
    assert tasks.until_is(skipped, "skipped").result == '"too late"'


def test_a_trigger_is_cleaned_up_after_a_cancellation_but_not_a_handover(tasks: Scene, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    run_id = tasks.start_run("watched", marks=str(marks))
    until(lambda: len(list(marks.iterdir())) == 1, "the trigger runs")
    tasks.triggerer.stop()
    tasks.start_triggerer(tasks.triggerer)
    until(lambda: len(list(marks.iterdir())) == 2, "the trigger runs in the next triggerer")
    assert not (marks / "cleaned").exists()
    assert "cancelled" in tasks.cli("task-runs", "cancel", run_id)
    until((marks / "cleaned").exists, "it is cleaned up")
    assert tasks.run(run_id).state == "cancelled"


def test_a_cancellation_interrupts_a_running_task(tasks: Scene, tmp_path: Path) -> None:
    there = tmp_path / "running"
    run_id = tasks.start_run("patient", path=str(there))
    until(there.exists, "it runs")
    tasks.cli("task-runs", "cancel", run_id)
    until(lambda: not there.exists(), "it has learnt it")
    assert tasks.run(run_id).state == "cancelled"
