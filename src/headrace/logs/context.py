"""Select the log of the running code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from headrace.core.tracing import run_trace_id
from headrace.logs.names import LogName, run_log_name


class Target(NamedTuple):
    """A log, with the fields of each line. `defaults` apply to lines that do not set these fields themselves."""

    name: LogName
    fields: Mapping[str, Any]
    defaults: Mapping[str, Any] = MappingProxyType({})


Finder = Callable[[], Target | None]
"""Returns the log of the running code, or None."""

_run: Final[ContextVar[Target | None]] = ContextVar("headrace_run_log", default=None)


@contextmanager
def run_log(run_id: str, **fields: Any) -> Iterator[None]:
    """Also write the records of this block, from structlog or `logging`, to the log of a run, with `fields` in each line.

    Tasks that start in the block inherit this. Threads inherit it only if they are started with a copy of the context.
    """
    target = Target(run_log_name(run_id), {"run_id": run_id, "trace_id": run_trace_id(run_id)} | fields)
    token = _run.set(target)
    try:
        yield
    finally:
        _run.reset(token)


def run_target() -> Target | None:
    """Return the log of the run that the running code belongs to, or None."""
    return _run.get()
