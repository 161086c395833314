"""Operators of an event pattern: each tests one value of an event that is not an object or array.

Texts are compared by code point. `ignore_case` compares texts after `str.casefold`. Numbers compare by value, so that 1 equals 1.0.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str, ...]
"""The names of the fields from the event to a value."""

_MAX_TUPLE: Final = 8
"""Most values for which a search in a tuple is cheaper than a hash set, in time and memory."""
_MAX_ADDRESS_CHARS: Final = 45


@dataclass(frozen=True, slots=True)
class Equals:
    """A text that is equal, in any case. Equality with the case is not an operator but a value of a `Leaf`."""

    folded: str

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes."""
        return type(value) is str and value.casefold() == self.folded


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a text; `text` is folded if `ignore_case`."""

    text: str
    ignore_case: bool = False

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes."""
        return type(value) is str and (value.casefold() if self.ignore_case else value).startswith(self.text)


@dataclass(frozen=True, slots=True)
class Suffix:
    """The end of a text; `text` is folded if `ignore_case`."""

    text: str
    ignore_case: bool = False

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes."""
        return type(value) is str and (value.casefold() if self.ignore_case else value).endswith(self.text)


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A text with any text between each two of the `parts`, of which there are at least two."""

    parts: tuple[str, ...]

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes."""
        if type(value) is not str:
            return False
        first, last = self.parts[0], self.parts[-1]
        at, end = len(first), len(value) - len(last)
        if at > end or not value.startswith(first) or not value.endswith(last):
            return False
        for part in self.parts[1:-1]:
            at = value.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


@dataclass(frozen=True, slots=True)
class NumericRange:
    """Numbers between two bounds. A bound is a number, and 1 if it is exclusive (low) or -1 (high), else 0."""

    low: tuple[float, int]
    high: tuple[float, int]

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes."""
        return type(value) in {int, float} and self.low <= (value, 0) <= self.high


@dataclass(frozen=True, slots=True)
class Network:
    """Texts that are addresses of an IP network."""

    family: int
    bits: int
    prefix: int
    """The first `bits` bits of the addresses, as a number."""

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes."""
        address = parse_address(value)
        return address is not None and address[0] == self.family and address[1] >> (address_bits(self.family) - self.bits) == self.prefix


@dataclass(frozen=True, slots=True)
class Exists:
    """Any value."""

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes: each does."""
        del value
        return True


@dataclass(frozen=True, slots=True)
class AnythingBut:
    """Any value that is not in `values` and passes none of `operators`."""

    values: Collection[Hashable]
    operators: tuple[Operator, ...] = ()

    def matches(self, value: Any) -> bool:
        """Return whether a value of an event passes."""
        if self.values and value_key(value) in self.values:
            return False
        return not any(operator.matches(value) for operator in self.operators)


Operator: TypeAlias = Equals | Prefix | Suffix | Wildcard | NumericRange | Network | Exists | AnythingBut


@dataclass(frozen=True, slots=True)
class Leaf:
    """The alternatives for one field: exact values by their key, operators, or the absence of the field (`absent`, then nothing else)."""

    values: Collection[Hashable] = ()
    operators: tuple[Operator, ...] = ()
    absent: bool = field(default=False)

    def matches(self, value: Any) -> bool:
        """Return whether a value that is there passes."""
        if self.values and value_key(value) in self.values:
            return True
        return any(operator.matches(value) for operator in self.operators)


def value_key(value: Any) -> Hashable:
    """Return the comparison key of a value: True equals 1 in Python, and not in JSON."""
    return (value,) if isinstance(value, bool) else value


def value_keys(values: Collection[Any]) -> Collection[Hashable]:
    """Return the keys of values, each once, in a collection that is fast to search."""
    keys = tuple(dict.fromkeys(map(value_key, values)))
    return keys if len(keys) <= _MAX_TUPLE else frozenset(keys)


def parse_address(value: Any) -> tuple[int, int] | None:
    """Return the family of an IP address and the address as a number, or None if the value is not the text of an address."""
    if type(value) is not str or len(value) > _MAX_ADDRESS_CHARS:
        return None
    family = socket.AF_INET6 if ":" in value else socket.AF_INET
    try:
        return family, int.from_bytes(socket.inet_pton(family, value))
    except (OSError, ValueError):
        return None


def address_bits(family: int) -> int:
    """Return the length of the addresses of a family, in bits."""
    return 128 if family == socket.AF_INET6 else 32
