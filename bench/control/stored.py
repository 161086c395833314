"""Measure durable storage of events over HTTP, in batches and one by one, beside a plain route as the baseline."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
from bench.api_process import KEY, ROOT, api_process, clean_environment, free_port, process, processor_seconds, wait_for_response
from bench.control.posting import post, rendered

from headrace.client.http.responses import bearer
from headrace.client.triggerer import TriggererClient
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.calls.execution import LOAD_TRIGGERS
from headrace.wire.control.jobs import CompleteJob, RegisterJob
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, LoadTriggers

Form: TypeAlias = Literal["batch", "single"]
Body: TypeAlias = Callable[[int, int], bytes]
"""Returns the request body that stores `size` events, numbered from `first`."""

BATCH: Final = 1_000
CONNECTIONS: Final[dict[Form, int]] = {"batch": 4, "single": 32}
"""Number of concurrent requests."""

GOALS: Final[dict[tuple[str, Form], int]] = {("sqlite", "batch"): 20_000, ("postgresql", "batch"): 10_000, ("sqlite", "single"): 1_500}
PAYLOAD: Final = msgspec.json.encode({"carrier": "UA", "origin": "EWR", "dest": "IAH", "dep_delay": 2, "pad": "x" * 80}).decode()


@dataclass(frozen=True, slots=True)
class Target:
    """The address of the posts, with their headers and body."""

    url: str
    pid: int
    headers: dict[str, str]
    body: Body


class Rate(NamedTuple):
    """Events per second of wall time, and of the server process's processor time (without the database server)."""

    by_clock: int
    by_processor: int


async def measure(database: str, database_url: str, home: Path, seconds: float) -> dict[str, Any]:
    """Return events per second of Headrace and of the baseline in turn, in both forms."""
    forms: tuple[Form, ...] = ("batch", "single")
    answer: dict[str, Any] = {}
    for form in forms:
        async with _ours(home, database_url) as target:
            ours = await _rate(target, form, seconds)
        async with _floor(home, f"{form}.db", database_url) as target:
            floor = await _rate(target, form, seconds)
        goal = GOALS.get((database, form))
        ratios = {"ratio": round(ours.by_clock / floor.by_clock, 2), "ratio_by_processor": round(ours.by_processor / floor.by_processor, 2)}
        figures = {"ours": ours._asdict(), "floor": floor._asdict(), **ratios}
        answer[form] = figures | ({} if goal is None else {"goal": goal, "reached": ours.by_clock >= goal})
    return answer


async def _rate(target: Target, form: Form, seconds: float) -> Rate:
    """Post events for `seconds`; return the rate."""
    size = BATCH if form == "batch" else 1
    taken = 0
    begun = perf_counter()
    used = processor_seconds(target.pid)

    def request() -> bytes:
        nonlocal taken
        first, taken = taken, taken + size
        return rendered(target.url, target.headers, target.body(first, size))

    done = size * await post(target.url, request, CONNECTIONS[form], seconds)
    return Rate(round(done / (perf_counter() - begun)), round(done / (processor_seconds(target.pid) - used)))


@asynccontextmanager
async def _ours(home: Path, database_url: str) -> AsyncIterator[Target]:
    settings = {"database_url": database_url} if database_url else {}
    async with AsyncExitStack() as stack:
        url, pid = await stack.enter_async_context(api_process(home, **settings))
        client = await stack.enter_async_context(TriggererClient(url, key=KEY))
        job = await client.register(
            RegisterJob(registration_id=uuid4().hex, kind="triggerer", hostname=socket.gethostname(), pid=os.getpid(), project="bench")
        )
        declared = DeclareProject(triggers=[DeclaredTrigger(name="t", classpath="project.T", kwargs={}, stream="s")], pipelines=[])
        await client.declare("bench", declared)
        (lease,) = (await client.request(LOAD_TRIGGERS, LoadTriggers(capacity=10, queues=["default"]))).leases
        headers = {"Content-Type": "application/json", VERSION_HEADER: API_VERSION, **bearer(job.token)}
        run = uuid4().hex

        def body(first: int, size: int) -> bytes:
            events = [
                {"id": f"{run}-{n}", "source": "s", "type": "t", "payload": PAYLOAD, "firings": [lease.trigger_id]}
                for n in range(first, first + size)
            ]
            return msgspec.json.encode({"epochs": {lease.trigger_id: lease.epoch}, "events": events})

        yield Target(f"{url}/execution/triggers/events", pid, headers, body)
        await client.complete(CompleteJob(state="succeeded"))


@asynccontextmanager
async def _floor(home: Path, file: str, database_url: str) -> AsyncIterator[Target]:
    port, run = free_port(), uuid4().hex
    database = f"{database_url}_floor".replace("postgresql://", "postgresql+psycopg://") if database_url else f"sqlite:///{home}/{file}"

    def body(first: int, size: int) -> bytes:
        return msgspec.json.encode(
            {"events": [{"id": f"{run}-{n}", "source": "s", "type": "t", "payload": PAYLOAD} for n in range(first, first + size)]}
        )

    async with process("-m", "bench.control.floor", str(port), database, cwd=ROOT, env=clean_environment()) as running:
        await wait_for_response(f"http://127.0.0.1:{port}/healthz", running)
        yield Target(f"http://127.0.0.1:{port}/events", running.pid, {"Content-Type": "application/json"}, body)
