"""The close timeout of a stream: one limit for all code of the upstream. Code that exceeds it is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

import structlog

from headrace.core.values.text import describe_error

log = structlog.get_logger(__name__)

POLL_SHARE: Final = 1 / 3
"""The share of the close timeout after which a poll that has not ended is left behind."""
ADVANCE_SHARE: Final = 2 / 3
"""The share after which advances that still run are cancelled."""
CANCEL_SHARE: Final = 0.8
"""The share after which advances that do not end although they were cancelled are left behind. The rest is for closing the producer."""


class CloseDeadline:
    """The close timeout of one stream, from its end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begun: float | None = None

    def begin(self) -> None:
        """Start the timeout. Later calls change nothing."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().time()

    def left(self, share: float = 1.0) -> float:
        """Return the seconds until this share of the timeout is over, at least 0; the whole share if it has not begun."""
        passed = 0.0 if self._begun is None else asyncio.get_running_loop().time() - self._begun
        return max(0.0, self.seconds * share - passed)


class LeftBehind:
    """Tasks in upstreams' code that still run although they were cancelled. Each is referenced until it ends, and logged."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._counts: Counter[str] = Counter()

    def add(self, task: asyncio.Task[Any], stream: str, what: str) -> None:
        """Add a task that nothing waits for any more."""
        self._tasks[task] = stream
        self._counts[stream] += 1
        log.error("upstream code left behind", stream=stream, what=what, hint="It goes on although it was cancelled.")
        task.add_done_callback(self._ended)

    def count(self, stream: str) -> int:
        """Return the number of tasks of a stream that still run."""
        return self._counts[stream]

    def _ended(self, task: asyncio.Task[Any]) -> None:
        stream = self._tasks.pop(task)
        self._counts[stream] -= 1
        if not self._counts[stream]:
            del self._counts[stream]
        error = None if task.cancelled() else task.exception()
        log.info("upstream code that was left behind has ended", stream=stream, error=None if error is None else describe_error(error))


async def ends_in(task: asyncio.Task[Any], seconds: float) -> bool:
    """Wait for a task at most `seconds`, and return whether it is done. Its error is not raised."""
    await asyncio.wait({task}, timeout=seconds)
    return task.done()


def is_cancelled() -> bool:
    """Return whether the running task is being cancelled. If not, a `CancelledError` is an error of the called code."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
