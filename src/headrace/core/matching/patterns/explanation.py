"""Why an event does not match a pattern: the first field that fails, the values that it has, and the values that the pattern needs."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.fields import matches_fields
from headrace.core.matching.patterns.operators import (
    AnythingBut,
    Equals,
    Exists,
    Leaf,
    Network,
    NumericRange,
    Operator,
    Path,
    Prefix,
    Suffix,
    Wildcard,
    address_bits,
)
from headrace.core.matching.patterns.parser import EventPattern

_MAX_VALUES: Final = 3
"""Most values of a field that an explanation has."""
_MAX_VALUE_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One alternative of a pattern that an event does not match, and the number of its fields that pass before the first that fails."""

    reason: str
    passed: int


def explain(pattern: EventPattern, event: Any) -> list[Mismatch]:
    """Return why each alternative of a pattern fails, the nearest first. The list is empty if the event matches."""
    mismatches: list[Mismatch] = []
    for fields in pattern.alternatives:
        mismatch = _mismatch(fields, event)
        if mismatch is None:
            return []
        mismatches.append(mismatch)
    return sorted(mismatches, key=lambda mismatch: -mismatch.passed)


def _mismatch(fields: tuple[tuple[Path, Leaf], ...], event: Any) -> Mismatch | None:
    for passed, (path, leaf) in enumerate(fields):
        if not matches_fields([(path, leaf)], event, Arrays()):
            return Mismatch(f"{'.'.join(path)} {_state(path, event)}; the pattern needs {_needs(leaf)}", passed)
    if matches_fields(fields, event, Arrays()):
        return None
    names = ", ".join(".".join(path) for path, _ in fields)
    return Mismatch(f"each of {names} passes, but no single element of an array has all of them", len(fields))


def _state(path: Path, event: Any) -> str:
    values = list(_values(path, event, Arrays()))
    plain = [value for value in values if type(value) is not dict]
    if not plain:
        return "is an object" if values else "is absent"
    texts = ", ".join(map(_json, plain[:_MAX_VALUES]))
    return f"is {texts}" if len(plain) == 1 else f"has the values {texts}{', …' if len(plain) > _MAX_VALUES else ''}"


def _values(path: Path, event: Any, arrays: Arrays) -> Iterator[Any]:
    nodes = [event]
    for name in path:
        nodes = [node[name] for node in _elements(nodes, arrays) if type(node) is dict and name in node]
    return _elements(nodes, arrays)


def _elements(nodes: list[Any], arrays: Arrays) -> Iterator[Any]:
    for node in nodes:
        yield from arrays.elements(node) if type(node) is list else (node,)


def _needs(leaf: Leaf) -> str:
    if leaf.absent:
        return "its absence"
    needs = [*(value[0] if isinstance(value, tuple) else value for value in leaf.values), *map(_described, leaf.operators)]
    return _json(needs[0]) if len(needs) == 1 else f"one of {_json(needs)}"


def _described(operator: Operator) -> dict[str, Any]:
    """Return an operator in the form of a pattern. Texts in any case are folded."""
    match operator:
        case Equals(folded):
            return {"equals-ignore-case": folded}
        case Prefix(text, ignore_case):
            return {"prefix": {"equals-ignore-case": text} if ignore_case else text}
        case Suffix(text, ignore_case):
            return {"suffix": {"equals-ignore-case": text} if ignore_case else text}
        case Wildcard(parts):
            return {"wildcard": "*".join(part.replace("\\", r"\\").replace("*", r"\*") for part in parts)}
        case NumericRange((low, exclusive), (high, inclusive)):
            lower = [] if low == -math.inf else [">" if exclusive else ">=", low]
            return {"numeric": lower + ([] if high == math.inf else ["<" if inclusive else "<=", high])}
        case Network(family, bits, prefix):
            length = address_bits(family)
            return {"cidr": f"{socket.inet_ntop(family, (prefix << (length - bits)).to_bytes(length // 8))}/{bits}"}
        case Exists():
            return {"exists": True}
        case AnythingBut(values, operators):
            excluded = [*values, *map(_described, operators)]
            return {"anything-but": excluded[0] if len(excluded) == 1 else excluded}


def _json(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]} …"
