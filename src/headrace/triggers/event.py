"""The answers of a trigger to a raw event: events, a skip or a rejection."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

import structlog
from msgspec import Struct

from headrace.core.task_run import RUN_FAILED, RUN_SKIPPED, RUN_SUCCEEDED

log = structlog.get_logger(__name__)


class TriggerEvent(Struct, frozen=True):
    """The event that a trigger creates from a raw event. `payload` must be JSON. Headrace sets the missing fields."""

    payload: Any
    id: str | None = None
    subject: str | None = None
    occurred: datetime | None = None
    follows: str | None = None
    type: str | None = None
    source: str | None = None


class RunSucceeded(TriggerEvent, frozen=True):
    """Ends the task run that waits for the trigger as succeeded, without a worker. `payload` is the result."""

    payload: Any = None
    type: str | None = RUN_SUCCEEDED


class RunFailed(TriggerEvent, frozen=True):
    """Ends the task run that waits for the trigger as failed, without a worker. `payload` is the reason."""

    payload: Any = None
    type: str | None = RUN_FAILED


class RunSkipped(TriggerEvent, frozen=True):
    """Ends the task run that waits for the trigger as skipped, without a worker. `payload` is the reason."""

    payload: Any = None
    type: str | None = RUN_SKIPPED


class Skip(Enum):
    """The type of `SKIP`."""

    SKIP = "skip"

    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = Skip.SKIP
"""The result of `handle` for a raw event on which the trigger does not fire."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Returned by `handle` to reject a raw event permanently: it becomes a dead letter and is not redelivered."""

    reason: str | None = None


Handled: TypeAlias = TriggerEvent | list[TriggerEvent] | Skip | Reject
"""The results that `handle` may return."""


class Rejectable(Protocol):
    """A stream that a filter reads."""

    def reject(self, reason: str | None) -> bool:
        """Reject the current raw event of the filter. Return False if it has none."""
        ...


current_stream: Final[ContextVar[Rejectable | None]] = ContextVar("headrace_current_stream", default=None)
"""The stream that the running filter reads. Tasks and threads that the filter starts inherit it."""


def reject_shared_stream_event(reason: str | None = None) -> None:
    """Reject the current raw event of the calling filter permanently: it becomes a dead letter and is not redelivered.

    Outside a filter, between raw events, or on a stream without acknowledgement, it logs a warning and changes nothing.
    """
    stream = current_stream.get()
    if stream is None or not stream.reject(reason):
        log.warning("Nothing to reject: no raw event of a stream with acks is being filtered here", reason=reason)
