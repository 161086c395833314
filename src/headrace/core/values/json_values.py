"""A check that values survive a round trip through JSON unchanged, as between processes. Pure."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

import msgspec

from headrace.core.values.limits import MAX_JSON_DEPTH
from headrace.core.values.text import describe_value, is_storable

_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**63 - 1
_PREVIEW_CHARS: Final = 100
_MAX_QUICK_BYTES: Final = 65_536
_NUL: Final = rb"\u0000"
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
"""A number that may have more than 64 bits. One pattern for both takes twice as long."""


def why_not_plain(value: Any) -> str | None:
    """Return the path and the kind of a part of `value` that JSON does not preserve, or None if there is none. Not recursive."""
    return None if _is_surely_plain(value) else _why_not_plain(value)


def _is_surely_plain(value: Any) -> bool:
    """Return True if C code alone can decide that `value` is plain. That takes a tenth of the time, for up to 100,000 triggers."""
    try:
        text = msgspec.json.encode(value)
        if len(text) > _MAX_QUICK_BYTES or text.count(b"[") + text.count(b"{") > MAX_JSON_DEPTH:
            return False
        if _NUL in text or _LONG_NUMBER.search(text):
            return False
        return bool(msgspec.json.decode(text) == value)
    except Exception:  # a user's value may raise anything; the full check reports its path
        return False


def _why_not_plain(value: Any) -> str | None:
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting:
        path, one, depth = waiting.pop()
        if depth > MAX_JSON_DEPTH:
            return f"{path[:_PREVIEW_CHARS]}… is nested deeper than {MAX_JSON_DEPTH} levels, or contains itself"
        if isinstance(one, dict):
            odd = next((key for key in one if not isinstance(key, str) or not is_storable(key)), None)
            if odd is not None:
                return f"{path or 'it'} has the key {_preview(odd)}: keys are texts, without NUL"
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
        return None if is_storable(value) else f"{_preview(value)}: a text has no NUL and no half of a surrogate pair"
    if isinstance(value, int):
        return None if _MIN_INT <= value <= _MAX_INT else f"{_preview(value)}: a number has at most 64 bits"
    if isinstance(value, float):
        return None if isfinite(value) else f"{value}, which JSON has not"
    return f"{_preview(value)}, a {type(value).__name__}"


def _preview(value: Any) -> str:
    return describe_value(value)[:_PREVIEW_CHARS]
