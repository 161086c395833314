"""Who starts task runs for the code that is running: a pipeline's batch, or another task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from headrace.errors import UsageError
from headrace.wire.task_runs import StartRun

Starter = Callable[[StartRun], object]
"""Starts a run durably before it returns; the same id is the same run."""

_starter: Final[ContextVar[tuple[str, Starter] | None]] = ContextVar("headrace_starter", default=None)


@contextmanager
def starting(parent: str, starter: Starter) -> Iterator[None]:
    """Allow the code of this block to start task runs. `parent` is the same when it runs again, so nothing is started twice."""
    token = _starter.set((parent, starter))
    try:
        yield
    finally:
        _starter.reset(token)


def current_starter() -> tuple[str, Starter]:
    """Return who starts runs here, and for whom."""
    current = _starter.get()
    if current is None:
        raise UsageError(
            "A task is started from within a pipeline or another task.", hint="From outside use: headrace task-runs start TASK --args JSON"
        )
    return current


def run_id_of(parent: str, task: str, name: str) -> str:
    """Return the id of the run that `parent` starts of a task under a name."""
    return str(uuid5(NAMESPACE_URL, f"headrace:{parent}/{task}/{sha256(name.encode()).hexdigest()}"))
