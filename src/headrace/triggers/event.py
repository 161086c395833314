"""What a trigger answers to a raw event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, TypeAlias

from msgspec import Struct


class TriggerEvent(Struct, frozen=True):
    """What a trigger makes of a raw event. `payload` must be JSON; what else is given goes into the event, else Headrace fills it in."""

    payload: Any
    id: str | None = None
    subject: str | None = None
    occurred: datetime | None = None
    follows: str | None = None
    type: str | None = None
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
