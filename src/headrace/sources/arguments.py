"""Check the arguments that users give to upstreams."""

from __future__ import annotations

from headrace.errors import UpstreamError


def check_text(name: str, value: object) -> str:
    """Return a text that is not empty and has no NUL. Raises `UpstreamError`."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise UpstreamError(f"Invalid {name} {value!r}: it is not a text.")
    return value


def check_seconds(name: str, value: object, low: float, high: float) -> float:
    """Return a number of seconds from `low` to `high`. Raises `UpstreamError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UpstreamError(f"Invalid {name} {value!r}.", hint=f"Use {low:g} to {high:,g} seconds.")
    return float(value)


def check_integer(name: str, value: object, low: int, high: int, unit: str = "") -> int:
    """Return an integer from `low` to `high`. Raises `UpstreamError`, which names the unit."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UpstreamError(f"Invalid {name} {value!r}.", hint=f"Use an integer from {low:,} to {high:,}{unit and f' ({unit})'}.")
    return value
