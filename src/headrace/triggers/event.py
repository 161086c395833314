"""What a trigger answers to a raw event: an event, nothing, or a rejection."""

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
    """What a trigger makes of a raw event. `payload` must be JSON; what else is given goes into the event, else Headrace fills it in."""

    payload: Any
    id: str | None = None
    subject: str | None = None
    occurred: datetime | None = None
    follows: str | None = None
    type: str | None = None
    source: str | None = None


class RunSucceeded(TriggerEvent, frozen=True):
    """Ends the task run that waits for the trigger, in place: it has succeeded, and `payload` is its result. No worker is used."""

    payload: Any = None
    id: str | None = None
    subject: str | None = None
    occurred: datetime | None = None
    follows: str | None = None
    type: str | None = RUN_SUCCEEDED
    source: str | None = None


class RunFailed(TriggerEvent, frozen=True):
    """Ends the task run that waits for the trigger, in place: it has failed, and `payload` says why."""

    payload: Any = None
    id: str | None = None
    subject: str | None = None
    occurred: datetime | None = None
    follows: str | None = None
    type: str | None = RUN_FAILED
    source: str | None = None


class RunSkipped(TriggerEvent, frozen=True):
    """Ends the task run that waits for the trigger, in place: there is nothing to do, and `payload` says why."""

    payload: Any = None
    id: str | None = None
    subject: str | None = None
    occurred: datetime | None = None
    follows: str | None = None
    type: str | None = RUN_SKIPPED
    source: str | None = None


class Skip(Enum):
    """The type of `SKIP`."""

    SKIP = "skip"

    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = Skip.SKIP
"""`handle` returns it for a raw event that does not fire the trigger."""


@dataclass(frozen=True, slots=True)
class Reject:
    """`handle` returns it for a raw event that this trigger refuses for good: it is dead-lettered, not redelivered."""

    reason: str | None = None


Handled: TypeAlias = TriggerEvent | list[TriggerEvent] | Skip | Reject
"""All that `handle` may return."""


class Rejectable(Protocol):
    """The stream that a filter reads."""

    def refuse(self, reason: str | None) -> bool:
        """Reject the raw event that the filter is at, and say whether it is at one."""
        ...


current_stream: Final[ContextVar[Rejectable | None]] = ContextVar("headrace_current_stream", default=None)
"""The stream that the running filter reads. Tasks and threads that the filter starts inherit it."""


def reject_shared_stream_event(reason: str | None = None) -> None:
    """Refuse for good the raw event that the calling filter is at: the broker dead-letters it and does not redeliver.

    Outside a filter, between raw events, or on a stream without acks it logs one warning and changes nothing.
    """
    stream = current_stream.get()
    if stream is None or not stream.refuse(reason):
        log.warning("Nothing to reject: no raw event of a stream with acks is being filtered here", reason=reason)
