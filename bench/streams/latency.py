"""Broker → stored → advanced: the real api in a process of its own, SQLite, HTTP, and the real triggerer in this process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

import httpx
from bench.streams.paced import LANES, Handled, Paced, Stuck, Times
from bench.streams.sides import ROOT
from bench.streams.throughput import Say

from headrace.client.triggerer import TriggererClient
from headrace.engine.triggerer import Identity, Triggerer
from headrace.project import Project
from headrace.wire.events import BatchStored, EventBatch
from headrace.wire.jobs import RegisterJob

Form: TypeAlias = Literal["declared", "handle", "declared beside a stuck trigger"]

RATE: Final = 1_000
WARM_UP: Final = 1.0
"""Seconds at the beginning that are not counted: connections, first batches."""

GOAL_MS: Final = 50.0
LATE: Final = 5.0
"""Seconds after the last raw event was due in which everything must be stored."""

KEY: Final = "the-benchmarks-key-of-32-characters-"


class TimedClient(TriggererClient):
    """The client, noting when each event is durable."""

    times: Times

    async def store(self, batch: EventBatch) -> BatchStored:
        answer = await super().store(batch)
        now = perf_counter()
        for item in batch.events:
            # A redelivery or another trigger's event of the same raw event changes nothing.
            if item.lane is not None and item.position is not None:
                self.times.note_stored(item.position * LANES + int(item.lane), now)
        return answer


async def latency(rounds: int, seconds: float, say: Say) -> dict[str, Any]:
    """Return the latencies of each form of trigger."""
    forms: tuple[Form, ...] = ("declared", "handle", "declared beside a stuck trigger")
    taken: dict[Form, list[dict[str, Any]]] = {form: [] for form in forms}
    folder = ROOT / ".headrace"
    folder.mkdir(exist_ok=True)
    # On the disk of the checkout, since /tmp may be memory.
    with TemporaryDirectory(prefix="bench-", dir=folder) as home:
        commit = commit_ms(Path(home))
        async with _api(Path(home)) as url:
            for number in range(rounds):
                for form in forms[: 3 if number == 0 else 2]:
                    taken[form].append(await _run(url, form, seconds))
    answer: dict[str, Any] = {
        "rate": RATE,
        "goal_p99_ms": GOAL_MS,
        "commit_ms": commit,
        "airflow": None,
        "why_no_airflow": "Its confirmation waits for a state sync of triggerer and supervisor (a second or two by its own documentation).",
    }
    for form, results in taken.items():
        answer[form] = summary = _summary(results)
        stored, advanced = summary["stored"], summary["advanced"]
        told = "does not advance" if advanced is None else f"advanced p50 {advanced['p50_ms']:.1f}, p99 {advanced['p99_ms']:.1f} ms"
        say(f"  {form:<32} stored p50 {stored['p50_ms']:.1f}, p99 {stored['p99_ms']:.1f} ms; {told}; {summary['stored_events']} stored")
    best = answer["declared"]["advanced"]
    answer["reached"] = best is not None and best["p99_ms"] <= GOAL_MS
    return answer


async def _run(url: str, form: Form, seconds: float) -> dict[str, Any]:
    total = int(RATE * (seconds + WARM_UP))
    run = uuid4().hex[:8]
    times = Times(run, total)
    stop = asyncio.Event()
    async with TimedClient(url, key=KEY) as api:
        api.times = times
        identity = Identity(_registration(), _project(form, run, total).declaration())
        running = asyncio.create_task(Triggerer(api, identity, next_registration=lambda: uuid4().hex).run(stop))
        done = times.all_stored if form == "declared beside a stuck trigger" else times.all_advanced
        waiting = asyncio.create_task(done.wait())
        await asyncio.wait({waiting, running}, timeout=seconds + WARM_UP + LATE, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        stop.set()
        await running
    del Times.runs[run]
    skipped = int(RATE * WARM_UP)
    return {
        "complete": done.is_set(),
        "stored_events": len(times.stored),
        "stored": _milliseconds(times.due, times.stored, skipped),
        "advanced": _milliseconds(times.due, times.advanced, skipped),
    }


def _project(form: Form, run: str, total: int) -> Project:
    project = Project("bench")
    if form == "handle":
        project.trigger("handled", Handled(run, RATE, total))
        return project
    project.watch("declared", Paced(run, RATE, total), id="$.id")
    if form == "declared beside a stuck trigger":
        project.trigger("stuck", Stuck(run, RATE, total))
    return project


def _registration() -> RegisterJob:
    return RegisterJob(registration_id=uuid4().hex, kind="triggerer", hostname=socket.gethostname(), pid=os.getpid(), project="bench")


def _milliseconds(due: Sequence[float], at: dict[int, float], skipped: int) -> dict[str, float] | None:
    waits = [1000 * (when - due[number]) for number, when in at.items() if number >= skipped]
    if len(waits) < 100:
        return None
    hundredths = quantiles(waits, n=100)
    return {"p50_ms": round(hundredths[49], 2), "p99_ms": round(hundredths[98], 2), "max_ms": round(max(waits), 2)}


def _summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The best and the median round of each figure."""
    summary: dict[str, Any] = {
        "complete": all(result["complete"] for result in results),
        "stored_events": min(result["stored_events"] for result in results),
    }
    for what in ("stored", "advanced"):
        figures = [result[what] for result in results if result[what] is not None]
        if len(figures) < len(results):
            summary[what] = None
            continue
        summary[what] = {name: min(one[name] for one in figures) for name in figures[0]}
        summary[what]["p99_ms_median"] = round(median(one["p99_ms"] for one in figures), 2)
    return summary


def commit_ms(folder: Path) -> float:
    """Return the milliseconds that making a small write durable takes here, the median of many."""
    took = []
    with (folder / "probe").open("wb") as file:
        for _ in range(50):
            begun = perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fdatasync(file.fileno())
            took.append(1000 * (perf_counter() - begun))
    return round(median(took), 3)


@asynccontextmanager
async def _api(home: Path) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    environment = {
        "HEADRACE_HOME": str(home),
        "HEADRACE_HOST": "127.0.0.1",
        "HEADRACE_PORT": str(port),
        "HEADRACE_KEY": KEY,
        "HEADRACE_LOG_LEVEL": "warning",
    }
    # Not the settings of whoever runs this: a file or a variable of theirs must not point the benchmark at their database.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", "api", cwd=home, env=kept | environment, stdout=sys.stderr
    )
    try:
        await _answers(url, process)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answers(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
        while process.returncode is None:
            try:
                if (await client.get(f"{url}/healthz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)
    raise SystemExit("The api of the benchmark does not start; what it said stands above.")
