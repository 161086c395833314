"""The watchdog counts the time in which a loop could have turned, and not the time without a processor."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.supervisor.runner_process import RunnerCommand, RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.supervisor.watchdog import LoopWatchdog


class Silent:
    """A process whose loop has beaten once. With `waits`, it has waited for a processor ever since."""

    def __init__(self, *, waits: bool) -> None:
        self.heartbeat = SharedHeartbeat()
        self.heartbeat.numbers[0] = 1
        self._waits = waits

    @property
    def processor_wait(self) -> float:
        return asyncio.get_running_loop().time() if self._waits else 0.0

    async def stack(self) -> list[str]:
        return []


def watchdog(process: Silent, silent: Any) -> LoopWatchdog:
    return LoopWatchdog(cast(RunnerProcess, process), WatchdogPolicy(blocked=0.1, stuck=0.2), str, lambda: None, silent)


async def test_a_process_without_a_processor_is_not_blocked() -> None:
    checks: list[float] = []
    watched = watchdog(Silent(waits=True), checks.append)
    watching = asyncio.create_task(watched.run())
    async with asyncio.timeout(60):
        while len(checks) < 8:
            await asyncio.sleep(0.01)
    assert max(checks) < 0.1
    assert not watching.done()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def test_a_process_with_a_processor_whose_loop_does_not_turn_is_blocked() -> None:
    async with asyncio.timeout(60):
        blocked = await watchdog(Silent(waits=False), lambda _: None).run()
    assert blocked.seconds > 0.2


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count the wait for a processor")
async def test_a_process_beside_a_busy_one_waits_for_its_processor() -> None:
    busy = RunnerCommand((sys.executable, "-c", "while True: pass"), os.environ)
    processes = [await RunnerProcess.start(busy) for _ in range(2)]
    try:
        for process in processes:
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        async with asyncio.timeout(60):
            while any(process.processor_wait < 0.1 for process in processes):
                await asyncio.sleep(0.01)
    finally:
        for process in processes:
            await process.close()
    assert processes[0].processor_wait == 0.0, "it has ended"
