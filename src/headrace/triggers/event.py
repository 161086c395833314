"""What a trigger answers to a raw event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeAlias

from msgspec import Struct

from headrace.core.task_run import RUN_FAILED, RUN_SKIPPED, RUN_SUCCEEDED


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
