"""Measure the latency from the broker until an event is stored and its raw event advanced.

The API server on SQLite and the runner are separate processes. The supervisor runs in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final, get_args
from uuid import uuid4

from bench.api_process import KEY, ROOT, api_process, commit_ms
from bench.streams.latency_runner import RATE, SPILLED, Form
from bench.streams.throughput import Say

from headrace.client.triggerer import TriggererClient
from headrace.triggerer.supervisor.runner_process import RunnerCommand, RunnerProcess
from headrace.triggerer.supervisor.session import ShutdownRequest
from headrace.triggerer.supervisor.supervisor import Policy, Supervisor
from headrace.wire.control.jobs import RegisterJob

GOAL_MS: Final = 50.0
MAX_EXTRA_SECONDS: Final = 60.0
"""Limit of a measurement, in addition to the duration of its load."""


async def latency(rounds: int, seconds: float, say: Say) -> dict[str, Any]:
    """Return the latencies of each form of trigger."""
    forms = get_args(Form)
    taken: dict[Form, list[dict[str, Any]]] = {form: [] for form in forms}
    folder = ROOT / ".headrace"
    folder.mkdir(exist_ok=True)
    # On the disk of the checkout, since /tmp may be memory.
    with TemporaryDirectory(prefix="bench-", dir=folder) as home:
        commit = commit_ms(Path(home))
        async with api_process(Path(home)) as (url, _):
            for _ in range(rounds):
                for form in forms:
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
        advance_text = "does not advance" if advanced is None else f"advanced p50 {advanced['p50_ms']:.1f}, p99 {advanced['p99_ms']:.1f} ms"
        p99 = f"{stored['p99_ms']:.1f} (median {stored['p99_ms_median']:.1f}"
        later = summary["stored_after_spill"]
        p99 += ")" if later is None else f"; without the first {SPILLED} s {later['p99_ms']:.1f}, median {later['p99_ms_median']:.1f})"
        say(f"  {form:<52} stored p50 {stored['p50_ms']:.1f}, p99 {p99} ms; {advance_text}; {summary['stored_events']} stored")
    best = answer["declared"]["advanced"]
    answer["reached"] = best is not None and best["p99_ms"] <= GOAL_MS
    return answer


async def _run(url: str, form: Form, seconds: float) -> dict[str, Any]:
    run = uuid4().hex[:8]
    orders = ShutdownRequest()
    begun = process_time()
    with TemporaryDirectory(prefix="bench-latency-") as folder:
        out = Path(folder) / "figures.json"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        command = RunnerCommand((sys.executable, "-m", "bench.streams.latency_runner", form, run, str(seconds), str(out)), environment)
        async with TriggererClient(url, key=KEY) as api:
            running = asyncio.create_task(Supervisor(api, lambda: RunnerProcess.start(command), _registration, Policy()).run(orders))
            written = asyncio.create_task(_written(out))
            await asyncio.wait({written, running}, timeout=seconds + MAX_EXTRA_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            written.cancel()
            orders.stop.set()
            await running
        figures: dict[str, Any] = json.loads(out.read_text())
    events = figures["stored_events"] or 1
    figures["cpu_us_per_event"] = {
        "runner": round(1e6 * figures.pop("cpu_seconds") / events, 1),
        "trigger processes": round(1e6 * figures.pop("trigger_process_cpu_seconds") / events, 1),
        "supervisor": round(1e6 * (process_time() - begun) / events, 1),
    }
    return figures


async def _written(out: Path) -> None:
    """Poll until another process has written the file."""
    while True:
        if await asyncio.to_thread(out.exists):
            return
        await asyncio.sleep(0.1)


def _registration(project: str) -> RegisterJob:
    return RegisterJob(registration_id=uuid4().hex, kind="triggerer", hostname=socket.gethostname(), pid=os.getpid(), project=project)


def _summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the best and the median round of each figure."""
    summary: dict[str, Any] = {
        "complete": all(result["complete"] for result in results),
        "stored_events": min(result["stored_events"] for result in results),
        "cpu_us_per_event": min((result["cpu_us_per_event"] for result in results), key=lambda spent: sum(spent.values())),
    }
    for kind in ("stored", "stored_after_spill", "advanced"):
        figures = [result[kind] for result in results if result[kind] is not None]
        if len(figures) < len(results):
            summary[kind] = None
            continue
        summary[kind] = {name: min(one[name] for one in figures) for name in figures[0]}
        summary[kind]["p99_ms_median"] = round(median(one["p99_ms"] for one in figures), 2)
    return summary
