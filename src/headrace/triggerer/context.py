"""Track which trigger's code is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from headrace.core.tracing import traceparent_in
from headrace.errors import MalformedEvent
from headrace.triggers.packed import PackedEvent
from headrace.triggers.raw_event import Message, RawEvent


class EventOrigin(NamedTuple):
    """The origin of a raw event and its `traceparent`. A trigger that polls alone has only the stream."""

    stream: str
    lane: str | None = None
    position: int | None = None
    trace: str | None = None


class TriggerContext(NamedTuple):
    """One running trigger. `get_origin` returns the origin of the filter's current raw event; any thread may call it."""

    trigger_id: int
    name: str
    log_name: str
    get_origin: Callable[[], EventOrigin | None] | None = None


current_trigger: Final[ContextVar[TriggerContext | None]] = ContextVar("headrace_current_trigger", default=None)
"""The trigger that owns the running code. Tasks and threads that this code starts inherit it."""


@contextmanager
def log_as(context: TriggerContext) -> Iterator[None]:
    """Attribute the log lines of this block to a trigger whose code is not running."""
    token = current_trigger.set(context)
    try:
        yield
    finally:
        current_trigger.reset(token)


def trace_of(raw: Any) -> str | None:
    """Return the `traceparent` of a raw event of any upstream, or None if it has no valid one."""
    try:
        value = raw.value if isinstance(raw, RawEvent | PackedEvent) else raw
    except MalformedEvent:
        value = None
    return trace_of_value(raw, value)


def trace_of_value(raw: Any, value: Any) -> str | None:
    """Return the `traceparent` in the value of a raw event, else the one in its headers, or None if there is no valid one."""
    return traceparent_in(value) or (traceparent_in(raw.headers) if isinstance(raw, Message) else None)
