"""Logs of real processes: followed on the command line while a trigger works, and readable after a kill of the triggerer."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any
from uuid import uuid4

import httpx
import pytest

from headrace.logs.read_tokens import ReadTokens
from headrace.process.child import REGISTRATION
from support.processes.deployment import KEY, Deployment, Feed, until

pytestmark = pytest.mark.acceptance

PROJECT = """
import logging
import structlog
from headrace.project import Project
from headrace.sources.queue.upstream import Queue
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent

class Talking(BaseEventTrigger):
    def __init__(self, *, path):
        super().__init__()
        self.path = path

    def serialize(self):
        return f"{__name__}.Talking", {"path": self.path}

    def shared_stream_key(self):
        return Queue(self.path).stream_key()

    @classmethod
    def create_shared_stream_producer(cls, kwargs):
        return Queue(kwargs["path"]).producer()

    async def handle(self, raw):
        structlog.get_logger("talking").info("saw\\x1b[31m", n=raw.value["n"])
        if raw.value["n"] % 2:
            logging.getLogger("odd").warning("odd %s", raw.value["n"])
        return TriggerEvent(raw.value)
"""


WRONG = """
import time

class Wrong(Talking):
    def __init__(self, *, path, what):
        super().__init__(path=path)
        self.what = what

    def serialize(self):
        return f"{__name__}.Wrong", {"path": self.path, "what": self.what}

    async def handle(self, raw):
        event = await super().handle(raw)
        if raw.value["n"] == 2 and self.what == "block":
            time.sleep(600)
        if raw.value["n"] == 2:
            raise ValueError(raw.value)
        return event
"""


TASKS = """
from headrace import Project
project = Project("p")

def deep_down(n):
    return other(n - 1) if n else int("too deep")

def other(n):
    return deep_down(n)

@project.task()
def deep(run):
    return deep_down(50)
"""


@contextmanager
def following(deployment: Deployment, *arguments: str) -> Iterator[queue.Queue[str]]:
    """Run `headrace logs …` and give its lines as they come; at the end Ctrl-C it, which must end it cleanly."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    popen = subprocess.Popen(
        [sys.executable, "-m", "headrace", "logs", *arguments, "--api-url", deployment.url],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert popen.stdout is not None
    assert popen.stderr is not None
    lines: queue.Queue[str] = queue.Queue()
    reader = Thread(target=_pass_on, args=[popen.stdout, lines])
    reader.start()
    try:
        yield lines
    finally:
        popen.send_signal(signal.SIGINT)
        assert popen.wait(20) == 130
        reader.join()
        assert "Traceback" not in popen.stderr.read()
        popen.stdout.close()
        popen.stderr.close()


def test_a_log_is_followed_and_outlives_its_process(tmp_path: Path) -> None:
    feed_path = tmp_path / "feed.queue"
    with Feed(feed_path, lanes=1) as feed, Deployment(tmp_path) as deployment:
        (tmp_path / "talking.py").write_text(PROJECT)
        project = deployment.project(
            f"from talking import *\nproject = Project('p')\nproject.trigger('t', Talking(path={str(feed_path)!r}))\n"
        )
        first = deployment.triggerer(project)
        feed.send(1)
        until(lambda: deployment.rows("SELECT * FROM triggers"), "the trigger is declared")
        with following(deployment, "trigger", "t", "-f") as lines:
            assert "saw\\x1b[31m n=0" in lines.get(timeout=60)
            feed.send(2)
            assert "n=1" in lines.get(timeout=60)
            assert "odd 1" in lines.get(timeout=60)
            assert "n=2" in lines.get(timeout=60)
            os.killpg(first.pid, signal.SIGKILL)
            first.popen.wait()
            gone = deployment.cli("logs", "trigger", "t", "--json")
            assert [json.loads(line).get("n") for line in gone.stdout.splitlines()] == [0, 1, None, 2]
            deployment.triggerer(project, replaces=first)
            feed.send(1)
            assert "job=2" in lines.get(timeout=60), "the log of the next job comes after that of the first"
        told = deployment.cli("logs", "trigger", "t", "--level", "warning", "--job", "1", "--json")
        (line,) = [json.loads(line) for line in told.stdout.splitlines()]
        assert line.items() >= {"event": "odd 1", "level": "warning", "logger": "odd", "trigger": "t", "trigger_id": 1, "job": 1}.items()
        assert deployment.cli("logs", "trigger", "t", "--since", "2099-01-01").stdout == ""
        wrong = deployment.cli("logs", "trigger", "tt")
        assert (wrong.returncode, "Did you mean t?" in wrong.stderr) == (1, True)


def test_a_log_has_the_raw_event_and_the_error_of_a_failed_trigger(tmp_path: Path) -> None:
    feed_path = tmp_path / "feed.queue"
    with Feed(feed_path, lanes=1) as feed, Deployment(tmp_path, stuck_timeout=1) as deployment:
        (tmp_path / "talking.py").write_text(PROJECT + WRONG)
        declared = [
            f"project.trigger({name!r}, Wrong(path={str(feed_path)!r}, what={what!r}), max_restarts={most})"
            for name, what, most in (("raises", "raise", 9), ("blocks", "block", 0))
        ]
        deployment.triggerer(deployment.project("\n".join(["from talking import *", "project = Project('p')", *declared])))
        feed.send(3)

        def lines(name: str, *events: str) -> list[dict[str, Any]]:
            of = f"{deployment.url}/api/v1/logs/triggers/{name}"
            found = [httpx.get(of, params={"job": job}, timeout=60, trust_env=False) for job in (1, 2)]
            kept = [answer.text for answer in found if answer.status_code == 200]
            return [line for text in kept for line in map(json.loads, text.splitlines()) if line["event"] in events]

        until(lambda: lines("blocks", "trigger failed"), "the block is told")
        until(lambda: lines("raises", "trigger failed"), "the failure is told")
        (seen, *_) = [line for line in lines("raises", "saw\x1b[31m") if line["n"] == 2]
        told = lines("raises", "trigger raised", "trigger failed")
        places = [(line["stream"], line["lane"], line["position"]) for line in [seen, *told]]
        assert len(set(places)) == 1
        assert seen["stream"] == f"queue:{feed_path}"
        (raised, *_) = lines("raises", "trigger raised")
        assert "raise ValueError(raw.value)" in raised["exception"]
        (failed,) = lines("blocks", "trigger failed")
        assert "Blocked: " in failed["error"]
        assert "in handle" in failed["exception"]
        # It had read ahead, so what it was at is not known: neither the failure nor an attempt is put down to another raw event.
        assert "position" not in failed
        assert lines("blocks", "trigger raised") == []


def test_following_the_log_of_a_task_run_ends_after_the_traceback(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment:
        project = deployment.project(TASKS)
        deployment._environment["HEADRACE_PROJECT"] = str(project)
        worker = deployment._start("worker", {REGISTRATION: uuid4().hex}, "worker")
        run_id = uuid4().hex
        assert deployment.cli("task-runs", "start", "deep", "--id", run_id).returncode == 0
        until(lambda: deployment.cli("logs", "run", run_id).stdout, "the run begins")
        told = deployment.cli("logs", "run", run_id, "-f", "--json")
        assert told.returncode == 0
        lines = [json.loads(line) for line in told.stdout.splitlines()]
        assert [line["event"] for line in lines] == ["task started", "task failed", "task ended"]
        assert lines[1]["exception"].count("in deep_down") == 51
        assert "too deep" in lines[1]["error"]
        ((log_url,),) = deployment.rows("SELECT log_url FROM jobs WHERE kind = 'worker'")
        path = f"/logs/runs/{run_id}"
        headers = {"Authorization": f"Bearer {ReadTokens(KEY).create(path, time.time())}"}
        served = httpx.get(f"{log_url}{path}", headers=headers, trust_env=False, timeout=60)
        assert "too deep" in served.text
        assert httpx.get(f"{log_url}{path}", trust_env=False, timeout=60).status_code == 401
        assert worker.stop() == 0


def _pass_on(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
