"""Which log the running code writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from headrace.core.tracing import run_trace_id
from headrace.logs.names import LogName, run_log_name


class Target(NamedTuple):
    """A log, the fields that each of its lines bears, and those that it bears where it says nothing else of its own."""

    name: LogName
    fields: Mapping[str, Any]
    unless_said: Mapping[str, Any] = MappingProxyType({})


Finder = Callable[[], Target | None]
"""Returns the log of the code that is running, if it has one."""

_run: Final[ContextVar[Target | None]] = ContextVar("headrace_run_log", default=None)


@contextmanager
def run_log(run_id: str, **fields: Any) -> Iterator[None]:
    """Write the records of this block, by structlog or `logging`, to the log of a run too, each line with `fields`.

    Tasks that begin inside inherit it; threads do not, unless they are started with a copy of the context.
    """
    target = Target(run_log_name(run_id), {"run_id": run_id, "trace_id": run_trace_id(run_id)} | fields)
    token = _run.set(target)
    try:
        yield
    finally:
        _run.reset(token)


def run_target() -> Target | None:
    """Return the log of the run that the running code belongs to."""
    return _run.get()
