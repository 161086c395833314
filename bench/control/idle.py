"""Measure a runner with many idle triggers: the longest block of its event loop, and the memory of each trigger."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, Literal, TypeAlias, cast

import structlog
import uvloop
from bench.api_process import ROOT

from headrace.ports.triggerer_api import TriggererApi
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.runner.runner import Limits, Runner
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import Handled, TriggerEvent
from headrace.wire.control.triggers import FailureRecorded, RunTrigger

sys.path.insert(0, str(ROOT / "tests"))
from support.processes.trigger_process import local_processes, local_producers

Form: TypeAlias = Literal["alone", "shared"]

FORMS: Final[tuple[Form, ...]] = ("alone", "shared")
COUNT: Final = 20_000
IDLE_SECONDS: Final = 3.0
"""Duration of the measurement after all triggers have started."""

GOAL_LAG_MS: Final = 100.0
GOAL_BYTES: Final = 6 * 1024
_SAMPLE_SECONDS: Final = 0.001
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_STREAMS: Final = 20


class Alone(BaseEventTrigger):
    """Poll alone, and wait for a long time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Alone", {"seconds": self._seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.sleep(self._seconds)
        yield TriggerEvent("awake")


class Shared(BaseEventTrigger):
    """Filter a shared stream without raw events."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self._stream = stream

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Shared", {"stream": self._stream}

    def shared_stream_key(self) -> str:
        return self._stream

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        del kwargs
        await asyncio.Event().wait()
        yield None

    async def handle(self, raw: Any) -> Handled:
        return TriggerEvent(raw)


class Lag:
    """Measures the longest block of the loop since the last `take`, in milliseconds of wall time and of processor time.

    If other processes use the machine, wall time is longer than processor time.
    """

    def __init__(self) -> None:
        self._max_block = [0.0, 0.0]

    async def watch(self) -> None:
        """Sample the loop until cancelled."""
        before = (perf_counter(), process_time())
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            now = (perf_counter(), process_time())
            took = (now[0] - before[0] - _SAMPLE_SECONDS, now[1] - before[1])
            self._max_block = [max(pair) for pair in zip(self._max_block, took, strict=True)]
            before = now

    def take(self, when: str) -> dict[str, float]:
        """Return the longest block, and reset it."""
        (clock, own), self._max_block = self._max_block, [0.0, 0.0]
        return {f"lag_{when}_ms": round(1000 * clock, 1), f"lag_{when}_own_ms": round(1000 * own, 1)}


def measure(count: int = COUNT) -> dict[str, Any]:
    """Return the figures of `count` idle triggers in each form."""
    forms = {str(form): uvloop.run(_measure(form, count)) for form in FORMS}
    reached = all(
        one["lag_starting_ms"] <= GOAL_LAG_MS and one["lag_idle_ms"] <= GOAL_LAG_MS and one["bytes_each"] <= GOAL_BYTES
        for one in forms.values()
    )
    return {"triggers": count, "goal_lag_ms": GOAL_LAG_MS, "goal_bytes": GOAL_BYTES, "reached": reached, **forms}


async def _measure(form: Form, count: int) -> dict[str, Any]:
    heartbeat = SharedHeartbeat()
    heartbeat.start()
    lag = Lag()
    watching = asyncio.create_task(lag.watch())
    # Warm up: imports, pools and tables of the loop are not measured.
    async with _running(heartbeat, [_workload(form, number) for number in range(1, 201)]):
        await asyncio.sleep(0.1)
    gc.collect()
    before = _resident()
    workloads = [_workload(form, number) for number in range(1, count + 1)]
    await asyncio.sleep(0.01)
    lag.take("before")
    begun = perf_counter()
    async with _running(heartbeat, workloads):
        started = perf_counter() - begun
        lags = lag.take("starting")
        await asyncio.sleep(IDLE_SECONDS)
        lags |= lag.take("idle")
        gc.collect()
        held = _resident() - before
        lag.take("before")
        begun = perf_counter()
    stopped = perf_counter() - begun
    lags |= lag.take("stopping")
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    return {
        "bytes_each": round(held / count),
        **lags,
        "start_seconds": round(started, 2),
        "stop_seconds": round(stopped, 2),
    }


@asynccontextmanager
async def _running(heartbeat: SharedHeartbeat, workloads: list[RunTrigger]) -> AsyncIterator[Runner]:
    leases = Leases()
    leases.update({workload.trigger_id: 1 for workload in workloads})
    # Idle triggers send no requests, so the runner needs no API.
    outbox = Outbox()
    # The trigger process runs in this process, so the figures include both sides.
    processes = local_processes(outbox)
    api = cast(TriggererApi, None)
    async with Runner(api, leases, outbox, _failed, _stream_failed, Limits(), processes, local_producers(), heartbeat) as runner:
        await runner.start(workloads)
        workloads.clear()
        yield runner


async def _stream_failed(stream: str, watches: Sequence[TriggerContext], error: BaseException) -> float:
    raise AssertionError(f"{stream} failed with {len(watches)} watches: {error}")


async def _failed(context: TriggerContext, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
    raise SystemExit(f"Trigger {context.name} of the benchmark failed: {error!r} (upstream: {upstream})")


def _workload(form: Form, number: int) -> RunTrigger:
    stream = f"stream-{number % _STREAMS}"
    kwargs: dict[str, Any] = {"seconds": 3600.0 + number} if form == "alone" else {"stream": stream}
    return RunTrigger(
        trigger_id=number,
        name=f"trigger.{number}",
        classpath=f"bench.control.idle.{'Alone' if form == 'alone' else 'Shared'}",
        kwargs=kwargs,
        stream=None if form == "alone" else stream,
        queue="default",
        epoch=1,
        log_name=f"trigger.{number}.1",
    )


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def main(write: Callable[[str], object] = print) -> None:
    """Print the figures as JSON."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    write(json.dumps(measure(), indent=2))


if __name__ == "__main__":
    main()
