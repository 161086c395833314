"""A child process: only its own priority is lowered, while it runs, and a cancelled start leaves no resources."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.triggerer.supervisor.runner_process import NICENESS, RunnerCommand, RunnerProcess


async def test_lower_priority_raises_the_niceness_of_the_child_only() -> None:
    process = await RunnerProcess.start(RunnerCommand((sys.executable, "-c", "import signal; signal.pause()"), os.environ))
    try:
        before = os.getpriority(os.PRIO_PROCESS, process.pid)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        process.lower_priority()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, before + NICENESS)
        assert os.getpriority(os.PRIO_PROCESS, 0) == own
    finally:
        await process.close()
    process.lower_priority()  # it has ended


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_cancelled_start_leaves_no_process_and_no_descriptor(monkeypatch: pytest.MonkeyPatch, *, is_made: bool) -> None:
    command = RunnerCommand((sys.executable, "-c", "import signal; signal.pause()"), os.environ)
    make, made = asyncio.create_subprocess_exec, list[asyncio.subprocess.Process]()

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def cancelled(*arguments: str, **other: Any) -> asyncio.subprocess.Process:
        if is_made:
            made.append(await make(*arguments, **other))
        task.cancel()
        return made[0] if made else await make(*arguments, **other)

    await (await RunnerProcess.start(command)).close()
    before = descriptors()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", cancelled)
    task = asyncio.create_task(RunnerProcess.start(command))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(process.returncode is not None for process in made)
    async with asyncio.timeout(20):
        while descriptors() > before:  # what the loop closes, it closes in its next steps
            await asyncio.sleep(0)
