"""Limits of one raw event, event or text, for all entry points."""

from __future__ import annotations

from itertools import accumulate
from math import isfinite
from typing import Any, Final

import msgspec

MAX_JSON_DEPTH: Final = 200
"""The deepest nesting of arrays and objects in JSON. Code that walks a value may recurse this often: Python allows about 1,000 calls."""

FLAT_JSON_BYTES: Final = 2 * MAX_JSON_DEPTH
"""No JSON of this length can be nested too deep: each level takes two brackets."""

MAX_RAW_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a raw event of a user's producer, which is sent between processes."""

_AS_ARRAYS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_NEEDED: Final = bytes(set(range(256)) - set(b'[]{}"'))
_OPENED: Final = ord("[")


def is_too_deep(json: bytes) -> bool:
    """Return whether a JSON text is nested deeper than `MAX_JSON_DEPTH`.

    The result is exact for JSON, and undefined for other text. Short texts are not scanned. Not recursive.
    """
    if len(json) <= 2 * MAX_JSON_DEPTH or json.count(b"[") + json.count(b"{") <= MAX_JSON_DEPTH:
        return False
    if b"\\" in json:
        json = json.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A string without brackets leaves a pair of quotes. Without these pairs, every second part is still inside a string.
    brackets = json.translate(_AS_ARRAYS, _NOT_NEEDED).replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    # Each pass removes the innermost level. The passes stop when they remove little, so that their cost together is linear.
    for removed in range(1, MAX_JSON_DEPTH + 1):
        outer = brackets.replace(b"[]", b"")
        if not outer:
            return False
        gain = len(brackets) - len(outer)
        brackets = outer
        if gain * 8 < len(outer):
            return removed + max(accumulate(1 if bracket == _OPENED else -1 for bracket in brackets)) > MAX_JSON_DEPTH
    return True


def has_non_finite(value: Any, encoded: bytes) -> bool:
    """Return whether a value has a NaN or an Infinity, which became null in the JSON `encoded` that msgspec made of it."""
    if b"null" not in encoded:
        return False
    try:
        waiting = [msgspec.to_builtins(value, str_keys=True)]  # dataclasses and the like become dicts, floats stay floats
    except TypeError:  # a part of it is already encoded JSON
        waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float):
            if not isfinite(one):
                return True
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            waiting.extend(one)
    return False
