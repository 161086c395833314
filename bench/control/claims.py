"""Measure lease requests of three triggerers with 10,000 registered triggers."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

from bench.api_process import KEY, api_process, processor_seconds

from headrace.client.triggerer import TriggererClient
from headrace.wire.calls.execution import CLEAN_UP_TRIGGERS, LOAD_TRIGGERS
from headrace.wire.control.jobs import Heartbeat, RegisterJob
from headrace.wire.control.triggers import CleanupTriggers, DeclaredTrigger, DeclareProject, LoadTriggers

TRIGGERS: Final = 10_000
STREAMS: Final = 500
JOBS: Final = 3
ROUNDS: Final = 60
PAUSE_SECONDS: Final = 0.1
"""Pause between two rounds of a triggerer. A real triggerer requests a tenth as often."""


async def measure(database_url: str, home: Path) -> dict[str, Any]:
    """Return the times of the declaration, of the first claims, and of the later loads and heartbeats, in milliseconds."""
    settings = {"database_url": database_url} if database_url else {}
    async with AsyncExitStack() as stack:
        url, pid = await stack.enter_async_context(api_process(home, **settings))
        clients = [await stack.enter_async_context(TriggererClient(url, key=KEY)) for _ in range(JOBS)]
        for client in clients:
            await client.register(
                RegisterJob(registration_id=uuid4().hex, kind="triggerer", hostname=socket.gethostname(), pid=os.getpid(), project="bench")
            )
        begun = perf_counter()
        await clients[0].declare("bench", _declaration())
        declared = perf_counter() - begun
        first = [await _load(client) for client in clients]
        loads: list[float] = []
        beats: list[float] = []
        held: list[int] = []

        async def live(client: TriggererClient) -> None:
            leases = 0
            for _ in range(ROUNDS):
                begun = perf_counter()
                loaded = await client.request(LOAD_TRIGGERS, LoadTriggers(capacity=TRIGGERS, queues=["default"]))
                loads.append(1000 * (perf_counter() - begun))
                if loaded.revoked:
                    await client.request(CLEAN_UP_TRIGGERS, CleanupTriggers(trigger_ids=list(loaded.revoked)))
                begun = perf_counter()
                leases = len((await client.heartbeat(Heartbeat())).leases)
                beats.append(1000 * (perf_counter() - begun))
                await asyncio.sleep(PAUSE_SECONDS)
            held.append(leases)

        used = processor_seconds(pid)
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(live(client))
        used = processor_seconds(pid) - used
    return {
        "triggers": TRIGGERS,
        "streams": STREAMS,
        "jobs": JOBS,
        "declare_ms": round(1000 * declared, 1),
        "first_load_ms": [round(one, 1) for one in first],
        "load": _percentiles(loads),
        "heartbeat": _percentiles(beats),
        "processor_ms_per_round": round(1000 * used / len(loads), 1),
        "leases_at_the_end": sorted(held),
    }


def _declaration() -> DeclareProject:
    return DeclareProject(
        triggers=[
            DeclaredTrigger(name=f"t{number:05}", classpath="project.T", kwargs={"n": number}, stream=f"s{number % STREAMS}")
            for number in range(TRIGGERS)
        ],
        pipelines=[],
    )


async def _load(client: TriggererClient) -> float:
    begun = perf_counter()
    await client.request(LOAD_TRIGGERS, LoadTriggers(capacity=TRIGGERS, queues=["default"]))
    return 1000 * (perf_counter() - begun)


def _percentiles(took: list[float]) -> dict[str, float]:
    hundredths = quantiles(took, n=100)
    return {"p50_ms": round(hundredths[49], 1), "p99_ms": round(hundredths[98], 1), "max_ms": round(max(took), 1)}
