"""Conversion between aware datetimes (years 1 to 9999 in UTC) and microseconds since the epoch. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def in_range(moment: datetime) -> bool:
    """Return whether an aware `moment` has a year in UTC: `9999-12-31T23:59:59-05:00` has none."""
    try:
        moment.astimezone(UTC)
    except (OverflowError, ValueError):
        return False
    return True


def micros(moment: datetime) -> int:
    """Return an aware `moment` as microseconds since the epoch, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Return microseconds since the epoch as a datetime in UTC, exactly; values outside the years 1 to 9999 are clamped."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return (datetime.max if micros > 0 else datetime.min).replace(tzinfo=UTC)
