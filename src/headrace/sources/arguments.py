"""Check the arguments that users give to upstreams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.errors import UpstreamError


def check_text(name: str, value: object) -> str:
    """Return a text that is not empty and has no NUL and no lone surrogate. Raises `UpstreamError`."""
    if not isinstance(value, str) or not value or "\0" in value or not is_utf8(value):
        raise UpstreamError(f"Invalid {name} {value!r}: it is not a text in UTF-8.")
    return value


def is_utf8(text: str) -> bool:
    """Return whether a text has bytes in UTF-8: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_or_several(argument: str, names: object) -> tuple[Any, ...]:
    """Return a text, or the items of a list, as a tuple. The items may have any type. Raises `UpstreamError`."""
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Sequence) or isinstance(names, bytes | bytearray):
        raise UpstreamError(f"Invalid {argument} {names!r}.", hint="Give one name as a text, or several in a list.")
    return tuple(names)


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
