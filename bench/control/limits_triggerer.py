"""Measure 100,000 watches in a real triggerer with a real API server: start, a failure of the upstream, stop, and loop stalls.

The supervisor runs in this process. The runner and the API server run in separate processes (`bench.control.limits_process`), which
record each stall of their event loops with its time, wall time and processor time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from time import monotonic, process_time, thread_time
from typing import Any, Final
from uuid import uuid4

import psutil
from bench.api_process import KEY, ROOT, clean_environment, free_port, process, wait_for_response
from bench.control.limits import declaration
from bench.control.limits_process import LARGE, SMALL, WATCHES, Stalls

from headrace.client.triggerer import TriggererClient
from headrace.store import open_store
from headrace.triggerer.supervisor.runner_process import RunnerCommand, RunnerProcess
from headrace.triggerer.supervisor.session import CapacityPolicy, ShutdownRequest
from headrace.triggerer.supervisor.supervisor import Policy, Supervisor
from headrace.wire.calls.call import NO_QUERY, Query
from headrace.wire.control.jobs import RegisterJob

MAX_PHASE_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 3.0


async def measure(folder: Path, watches: int = WATCHES, large: int = LARGE) -> dict[str, Any]:
    """Return the figures of a run on SQLite; `large` watches are on the stream that fails once."""
    stalls = {name: folder / f"{name}.stalls" for name in ("api", "supervisor", "runner")}
    opened, streams = folder / "opened", 1 + -(-(watches - large) // SMALL)
    orders = ShutdownRequest()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    command = (sys.executable, "-m", "bench.control.limits_process", "runner", str(folder), str(watches), str(large))
    gc.freeze()  # as the triggerer does: imports of other parts of the benchmark do not belong to the supervisor
    watching = asyncio.create_task(Stalls(stalls["supervisor"]).watch())
    policy = Policy(capacity=CapacityPolicy(capacity=2 * watches))
    async with _api(folder, stalls["api"]) as url, Timed(url, key=KEY) as api:
        start = lambda: RunnerProcess.start(RunnerCommand(command, environment))  # noqa: E731
        running = asyncio.create_task(Supervisor(api, start, _registration, policy).run(orders))
        phases = Phases(stalls, running)
        began = monotonic()
        answer: dict[str, Any] = {"watches": watches, "on the stream that fails": large}
        answer["start until all streams are open"] = await phases.step(lambda: _lines(folder / "running") == streams)
        answer["start until all streams are open"]["parts"] = api.parts(began)
        answer["start until all streams are open"]["processor seconds"] = _processor_seconds()
        seconds = answer["start until all streams are open"]["seconds"]
        answer["one raw INSERT of the same rows"] = raw = await asyncio.to_thread(raw_insert, folder / "raw.db", watches, large)
        answer["start until all streams are open"]["ratio to the raw INSERT"] = round(seconds / raw["seconds"], 1)
        await asyncio.sleep(IDLE_SECONDS)
        until = monotonic() + IDLE_SECONDS
        answer["idle"] = await phases.step(lambda: monotonic() > until)
        (folder / "fail").touch()
        answer["failure until the stream is open again"] = await phases.step(lambda: _lines(opened) == 2)
        orders.stop.set()
        answer["stop"] = await phases.step(running.done)
        await running
    watching.cancel()
    return answer


class Timed(TriggererClient):
    """A client that records when it first sent and last completed each kind of call."""

    def __init__(self, url: str, *, key: str) -> None:
        super().__init__(url, key=key)
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}

    async def _send_as_job(self, method: str, path: str, content: bytes | None, query: Query = NO_QUERY) -> bytes:
        kind = path.removeprefix("/execution/").partition("?")[0]
        self._first.setdefault(kind, monotonic())
        try:
            return await super()._send_as_job(method, path, content, query)
        finally:
            self._last[kind] = monotonic()

    def parts(self, began: float) -> dict[str, tuple[float, float]]:
        """Return the first and last second of the calls that declare, claim and fetch."""
        kinds = {"stage": "declarations", "apply": "projects/bench", "claim": "triggers/load", "workloads": "triggers/workloads"}
        return {
            name: (round(self._first[kind] - began, 2), round(self._last[kind] - began, 2))
            for name, kind in kinds.items()
            if kind in self._first
        }


class Phases:
    """Measures the duration of each phase, and the longest stall of each loop in it."""

    def __init__(self, stalls: dict[str, Path], running: asyncio.Task[None]) -> None:
        self._stalls = stalls
        self._running = running

    async def step(self, done: Callable[[], bool]) -> dict[str, Any]:
        """Wait until a phase is done; return its figures."""
        began, used = monotonic(), process_time()
        while not done():
            if self._running.done():
                self._running.result()
            if monotonic() - began > MAX_PHASE_SECONDS:
                raise SystemExit(f"A phase of the benchmark does not end: {self._max_stalls(began, monotonic())}")
            await asyncio.sleep(0.02)
        ended = monotonic()
        used = round(process_time() - used, 2)
        taken = {"seconds": round(ended - began, 2), "supervisor_processor_seconds": used, "max stall": self._max_stalls(began, ended)}
        print(json.dumps(taken), file=sys.stderr, flush=True)
        return taken

    def _max_stalls(self, began: float, ended: float) -> dict[str, dict[str, int]]:
        """Return the longest stall of each loop between two times, in milliseconds."""
        result = {}
        for name, path in self._stalls.items():
            stalls = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            mine = [(clock, own) for at, clock, own in stalls if began <= at <= ended]
            result[name] = {"ms": max((clock for clock, _ in mine), default=0), "own_ms": max((own for _, own in mine), default=0)}
        return result


def raw_insert(path: Path, watches: int, large: int) -> dict[str, float]:
    """Return the time in which the driver of SQLite inserts the same triggers, unencrypted, in one transaction into an empty store."""
    open_store(f"sqlite:///{path}").close()
    names = ("project", "name", "classpath", "kwargs", "stream", "queue", "state", "failures", "fired", "rejected", "epoch", "declared")
    rows = [
        ("bench", one.name, one.classpath, json.dumps(one.kwargs), one.stream, one.queue, "waiting", 0, 0, 0, 0, 0)
        for one in declaration(watches, large).triggers
    ]
    with closing(sqlite3.connect(path)) as connection:
        began, used = monotonic(), thread_time()
        marks = ", ".join("?" * len(names))
        with connection:
            connection.executemany(f"INSERT INTO triggers ({', '.join(names)}) VALUES ({marks})", rows)
        return {"seconds": round(monotonic() - began, 2), "processor seconds": round(thread_time() - used, 2)}


def _processor_seconds() -> dict[str, float]:
    """Return the processor time of each process, in seconds."""
    me = psutil.Process()
    used = {"supervisor": sum(me.cpu_times()[:2])}
    for child in me.children(recursive=True):
        line = child.cmdline()
        name = next((name for name in ("api", "runner", "trigger-process") if name in line), "other")
        used[name] = used.get(name, 0.0) + sum(child.cpu_times()[:2])
    return {name: round(seconds, 2) for name, seconds in used.items()}


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@asynccontextmanager
async def _api(folder: Path, stalls: Path) -> AsyncIterator[str]:
    port = free_port()
    settings = {"home": str(folder), "host": "127.0.0.1", "port": str(port), "key": KEY, "log_level": "warning"}
    async with process("-m", "bench.control.limits_process", "api", str(stalls), cwd=ROOT, env=clean_environment(**settings)) as running:
        url = f"http://127.0.0.1:{port}"
        await wait_for_response(f"{url}/healthz", running)
        yield url


def _registration(project: str) -> RegisterJob:
    return RegisterJob(registration_id=uuid4().hex, kind="triggerer", hostname=socket.gethostname(), pid=os.getpid(), project=project)
