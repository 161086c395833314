"""A child process: its priority is lowered alone, and only while it lives."""

from __future__ import annotations

import os
import sys

from headrace.engine.runner_process import NICENESS, RunnerCommand, RunnerProcess


async def test_the_scheduler_prefers_others_to_a_process_of_lower_priority() -> None:
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
