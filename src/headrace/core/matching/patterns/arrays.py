"""The arrays of one event, read once for all patterns, and the limit of repeated work on one event."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from headrace.core.matching.patterns.operators import value_key
from headrace.errors import MalformedEvent

MAX_REPEATED_STEPS: Final = 1_000_000
"""Limit of array elements, and of `CHARS_PER_STEP` characters of texts, of one event in repeated passes; about 0.1 s of the event loop."""
CHARS_PER_STEP: Final = 16
_LONG_TEXT_CHARS: Final = 1_000
"""Texts up to this length are not counted, because a test costs more than their characters."""


class Arrays:
    """The elements of an event's arrays, with nested arrays flattened. Each array is flattened once.

    The first pass over an array or text is free, so that the cost is linear in the size of the event. Further passes, for other patterns,
    are counted.
    """

    __slots__ = ("_elements", "_keys", "_steps", "_texts")

    def __init__(self) -> None:
        # The event outlives this object, so that no other array or text gets an id of its parts. Most events have neither.
        self._elements: dict[int, list[Any]] | None = None
        self._keys: dict[int, frozenset[Hashable]] | None = None
        self._texts: set[int] | None = None
        self._steps = 0

    def elements(self, array: list[Any]) -> list[Any]:
        """Return the elements, none of which is an array."""
        if self._elements is None:
            self._elements = {}
        elements = self._elements.get(id(array))
        if elements is None:
            elements = self._elements[id(array)] = _flattened(array)
        else:
            self.count(len(elements))
        return elements

    def keys(self, array: list[Any]) -> frozenset[Hashable]:
        """Return the keys of the plain values among the elements."""
        if self._keys is None:
            self._keys = {}
        keys = self._keys.get(id(array))
        if keys is None:
            keys = self._keys[id(array)] = frozenset([value_key(element) for element in self.elements(array) if type(element) is not dict])
        return keys

    def count_text(self, value: Any) -> None:
        """Count a pass over a value, if it is a long text."""
        if type(value) is not str or len(value) <= _LONG_TEXT_CHARS:
            return
        if self._texts is None:
            self._texts = set()
        elif id(value) in self._texts:
            self.count(len(value) // CHARS_PER_STEP)
        self._texts.add(id(value))

    def count(self, steps: int) -> None:
        """Count repeated work. Raises `MalformedEvent` above `MAX_REPEATED_STEPS`."""
        self._steps += steps
        if self._steps > MAX_REPEATED_STEPS:
            raise MalformedEvent(f"Its arrays or texts are too long to match: that takes more than {MAX_REPEATED_STEPS:,} steps.")


def _flattened(array: list[Any]) -> list[Any]:
    elements: list[Any] = []
    arrays = [array]
    while arrays:
        inner = arrays.pop()
        if list in set(map(type, inner)):
            for element in inner:
                (arrays if type(element) is list else elements).append(element)
        else:
            elements += inner
    return elements
