"""Write the number of asyncio tasks of each process to a file. Python imports this module as it starts if PYTHONPATH names its folder.

The file is in the folder that `BENCH_TASKS` names, and has the id of the process as its name. It is written every INTERVAL_SECONDS.
"""

import asyncio
import os
from pathlib import Path
from typing import Any, Final

INTERVAL_SECONDS: Final = 0.5
RUN: Final = "run"

_run: Final = getattr(asyncio.Runner, RUN)


def run(runner: asyncio.Runner, *arguments: Any, **named: Any) -> Any:
    """Run a coroutine as `asyncio.Runner.run` does, and count."""
    _count(runner.get_loop(), Path(os.environ["BENCH_TASKS"]))
    return _run(runner, *arguments, **named)


def _count(loop: asyncio.AbstractEventLoop, folder: Path) -> None:
    part = folder / f"{os.getpid()}.part"
    part.write_text(str(len(asyncio.all_tasks(loop))))
    part.rename(part.with_suffix(""))
    loop.call_later(INTERVAL_SECONDS, _count, loop, folder)


if "BENCH_TASKS" in os.environ:
    setattr(asyncio.Runner, RUN, run)
