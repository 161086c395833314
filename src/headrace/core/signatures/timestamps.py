"""The time of a signed request. An old request can be a replay."""

from __future__ import annotations

from typing import Final

TOLERANCE_SECONDS: Final = 300
"""Maximum difference between the time of a request and the time here."""
_MAX_DIGITS: Final = 15


def outside_tolerance(header: str, seconds: str, now: float) -> str | None:
    """Return why the time in `header` is refused, or None if it is within the tolerance."""
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= _MAX_DIGITS):
        return f"The time in {header} is not a number of seconds since 1970."
    difference = now - int(seconds)
    if abs(difference) <= TOLERANCE_SECONDS:
        return None
    age = f"{difference:.0f} s old" if difference > 0 else f"{-difference:.0f} s in the future"
    return f"The time in {header} is {age}, and at most {TOLERANCE_SECONDS} s are allowed."
