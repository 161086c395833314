"""Which values JSON gives back as they are: what is written down and read again in another process must be the same. Pure."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from headrace.core.limits import MAX_JSON_DEPTH
from headrace.core.texts import describe_value, is_storable

_INT64: Final = range(-(2**63), 2**63)
_SHOWN_CHARS: Final = 100


def why_not_plain(value: Any) -> str | None:
    """Return where `value` has something that JSON does not give back, and what; None: it has nothing. Nothing recurses."""
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting:
        path, one, depth = waiting.pop()
        if depth > MAX_JSON_DEPTH:
            return f"{path[:_SHOWN_CHARS]}… is nested deeper than {MAX_JSON_DEPTH} levels, or contains itself"
        if isinstance(one, dict):
            odd = next((key for key in one if not isinstance(key, str) or not is_storable(key)), None)
            if odd is not None:
                return f"{path or 'it'} has the key {_shown(odd)}: keys are texts, without NUL"
            waiting.extend((f"{path}.{key}" if path else key, part, depth + 1) for key, part in one.items())
        elif isinstance(one, list):
            waiting.extend((f"{path}[{number}]", part, depth + 1) for number, part in enumerate(one))
        elif (what := _odd(one)) is not None:
            return f"{path or 'it'} is {what}"
    return None


def _odd(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if is_storable(value) else f"{_shown(value)}: a text has no NUL and no half of a surrogate pair"
    if isinstance(value, int):
        return None if value in _INT64 else f"{_shown(value)}: a number has at most 64 bits"
    if isinstance(value, float):
        return None if isfinite(value) else f"{value}, which JSON has not"
    return f"{_shown(value)}, a {type(value).__name__}"


def _shown(value: Any) -> str:
    return describe_value(value)[:_SHOWN_CHARS]
