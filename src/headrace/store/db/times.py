"""Moments as the database keeps them: microseconds since the epoch."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """Return an aware `moment` as microseconds since the epoch, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Return microseconds since the epoch as a moment in UTC, exactly; one outside the years 1 to 9999 as the nearest that is within."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)


def wall_clock() -> int:
    """Return this machine's time in microseconds since the epoch."""
    return time.time_ns() // 1000
