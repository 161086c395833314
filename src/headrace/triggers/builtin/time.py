"""Triggers that wait for a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from headrace.errors import ProjectError
from headrace.triggers.base import BaseTrigger
from headrace.triggers.event import TriggerEvent
from headrace.wire.base import rfc3339

MAX_SLEEP_SECONDS: Final = 60.0  # seconds slept at a time: a clock that is set is noticed after this


class DateTimeTrigger(BaseTrigger):
    """Fires at a moment (aware, or RFC 3339): `{"moment"}`. A moment in the past fires at once."""

    def __init__(self, moment: datetime | str) -> None:
        super().__init__()
        try:
            self.moment = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        except ValueError as error:
            raise ProjectError(f"Invalid time {moment!r}.", hint="Use the form 2026-11-21T09:00:00Z.") from error
        if self.moment.tzinfo is None:
            raise ProjectError(f"{moment!r} has no time zone.", hint="Write it as 2026-11-21T09:00:00Z, or give tzinfo=UTC.")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the keyword arguments."""
        return f"{__name__}.DateTimeTrigger", {"moment": rfc3339(self.moment.astimezone(UTC))}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event at the moment."""
        left = self._left()
        while left > 0:
            await asyncio.sleep(min(left, MAX_SLEEP_SECONDS))
            left = self._left()
        yield TriggerEvent({"moment": rfc3339(self.moment.astimezone(UTC))})

    def _left(self) -> float:
        return (self.moment - datetime.now(UTC)).total_seconds()


class TimeDeltaTrigger(DateTimeTrigger):
    """Fires after a time since its creation. It is stored as a moment, so a move to another triggerer adds no time."""

    def __init__(self, delta: timedelta | float) -> None:
        super().__init__(datetime.now(UTC) + (delta if isinstance(delta, timedelta) else timedelta(seconds=delta)))
