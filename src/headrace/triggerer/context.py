"""Which trigger's code is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from headrace.core.tracing import traceparent_in
from headrace.errors import MalformedEvent
from headrace.triggers.packed import PackedEvent
from headrace.triggers.raw_event import RawEvent


class EventOrigin(NamedTuple):
    """The place of a raw event and the `traceparent` that it carries; of a trigger that polls alone only the stream."""

    stream: str
    lane: str | None = None
    position: int | None = None
    trace: str | None = None


class TriggerContext(NamedTuple):
    """One trigger at work here; `place` says what its filter is at, from any thread."""

    trigger_id: int
    name: str
    log_name: str
    place: Callable[[], EventOrigin | None] | None = None


current_trigger: Final[ContextVar[TriggerContext | None]] = ContextVar("headrace_current_trigger", default=None)
"""The trigger that the running code belongs to. Tasks and threads that it starts inherit it."""


@contextmanager
def log_as(running: TriggerContext) -> Iterator[None]:
    """Attribute the log lines of this block to a trigger whose code is not running."""
    token = current_trigger.set(running)
    try:
        yield
    finally:
        current_trigger.reset(token)


def trace_of(raw: Any) -> str | None:
    """Return the `traceparent` that a raw event carries, whatever its upstream makes of it, or None if it carries none that is valid."""
    try:
        return traceparent_in(raw.value if isinstance(raw, RawEvent | PackedEvent) else raw)
    except MalformedEvent:
        return None
