"""Copies of raw events, one for each reader: what one changes in its own no other sees, nor is it spilled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.core.values.limits import MAX_JSON_DEPTH
from headrace.triggers.raw_event import RawEvent

_CHANGEABLE: Final = frozenset({dict, list, tuple, set, bytearray})


def copier(raw: Any) -> Callable[[Any], Any] | None:
    """Return what copies raw events of this kind, or None if it is not changeable, or of a class that only its author can copy."""
    kind = type(raw)
    if kind is dict:
        return dict.copy if _CHANGEABLE.isdisjoint(map(type, raw.values())) else copied
    if kind in _CHANGEABLE:
        return copied
    if isinstance(raw, RawEvent):
        return RawEvent.unread_copy
    return None


def copied(value: Any, depth: int = 0) -> Any:
    """Return a copy of a value made of dicts, lists, tuples, sets and bytearrays; what else is in it, or too deep, is the same object."""
    kind = type(value)
    if kind not in _CHANGEABLE or depth > MAX_JSON_DEPTH:
        return value
    if kind is dict:
        # Most of what is in a raw event cannot change: it is not worth a call.
        return {key: copied(one, depth + 1) if type(one) in _CHANGEABLE else one for key, one in value.items()}
    if kind is list:
        return [copied(one, depth + 1) if type(one) in _CHANGEABLE else one for one in value]
    if kind is tuple:
        return tuple([copied(one, depth + 1) if type(one) in _CHANGEABLE else one for one in value])
    return value.copy()
