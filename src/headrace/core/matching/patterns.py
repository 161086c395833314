"""Patterns of declared watches, and an index of the watches that match a raw event.

A pattern has the exact-value form of EventBridge, an object whose leaves are lists of values:
`{"carrier": ["UA"], "origin": {"country": ["US"]}}`. Every field must match (one of the values of its list); an array in the event
matches if any of its elements does. A watch without a pattern matches every raw event.

The index stores each pattern under the values of one of its fields, its pivot, and checks a pattern only if the event has one of them.

No function recurses into an event. One pass over an event is linear in its size. Repeated passes over its arrays, for other patterns, are
counted, and the count is limited.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from headrace.core.values.limits import MAX_JSON_DEPTH
from headrace.errors import MalformedEvent, ProjectError

Pattern: TypeAlias = Mapping[str, Any]
_Path: TypeAlias = tuple[str, ...]

MAX_REPEATED_STEPS: Final = 1_000_000
"""Limit of array elements of one event in repeated passes; about 0.1 s of the event loop."""

_HINT = 'Write it like {"carrier": ["UA", "DL"], "origin": {"country": ["US"]}}.'


def leaves(pattern: Pattern) -> dict[tuple[str, ...], frozenset[Hashable]]:
    """Return the values of every field of `pattern`, by its path. Raises `ProjectError` if it is invalid."""
    return dict(_leaves(pattern, ()))


@dataclass(slots=True, eq=False)
class _Entry:
    """One pattern, and all the triggers that have it."""

    fields: dict[_Path, frozenset[Hashable]]
    tree: Mapping[str, Any]
    pivot: _Path
    triggers: dict[int, None] = field(default_factory=dict)


class MatchIndex:
    """An index of triggers by pattern. The cost of `matches` depends on the candidates, not on the number of triggers."""

    def __init__(self) -> None:
        self._everything: dict[int, None] = {}
        self._pivots: dict[_Path, dict[Hashable, dict[_Entry, None]]] = {}
        self._entries: dict[frozenset[tuple[_Path, frozenset[Hashable]]], _Entry] = {}
        self._of: dict[int, _Entry | None] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, trigger_id: int) -> bool:
        return trigger_id in self._of

    def __iter__(self) -> Iterator[int]:
        return iter(self._of)

    def add(self, pattern: Pattern | None, trigger_id: int) -> None:
        """Add a trigger with its pattern; None matches every raw event. Raises `ProjectError` if the pattern is invalid."""
        if trigger_id in self._of:
            raise ValueError(f"trigger {trigger_id} is in the index already")
        entry = None if pattern is None else self._entry(pattern)
        (self._everything if entry is None else entry.triggers)[trigger_id] = None
        self._of[trigger_id] = entry

    def remove(self, trigger_id: int) -> None:
        """Remove a trigger. An unknown one changes nothing."""
        if trigger_id not in self._of:
            return
        entry = self._of.pop(trigger_id)
        if entry is None:
            del self._everything[trigger_id]
            return
        del entry.triggers[trigger_id]
        if not entry.triggers:
            self._drop(entry)

    def matches(self, value: Any) -> list[int]:
        """Return the ids of the triggers that match `value`, each once.

        Raises:
            MalformedEvent: Its arrays are so long that matching takes more than `MAX_REPEATED_STEPS`.
        """
        matched = list(self._everything)
        arrays: _Arrays | None = None
        for path, buckets in self._pivots.items():
            event_keys = _plain_at(value, path)
            if event_keys is None:
                arrays = arrays or _Arrays()
                event_keys = _at(value, path, arrays)
            for entry in buckets.get(event_keys[0], ()) if len(event_keys) == 1 else _candidates(buckets, event_keys):
                if len(entry.fields) > 1:
                    arrays = arrays or _Arrays()
                    if not _matches(entry.tree, value, arrays):
                        continue
                matched.extend(entry.triggers)
        return matched

    def _entry(self, pattern: Pattern) -> _Entry:
        fields = leaves(pattern)
        key = frozenset(fields.items())
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(fields, _tree(pattern), self._choose_pivot(fields))
            buckets = self._pivots.setdefault(entry.pivot, {})
            for value in fields[entry.pivot]:
                buckets.setdefault(value, {})[entry] = None
        return entry

    def _choose_pivot(self, fields: dict[_Path, frozenset[Hashable]]) -> _Path:
        """Return the field whose values are shared with the fewest patterns, so that few patterns are checked in vain."""

        def crowd(path: _Path) -> tuple[int, bool, _Path]:
            buckets = self._pivots.get(path, {})
            return max(len(buckets.get(value, ())) for value in fields[path]), path not in self._pivots, path

        return min(fields, key=crowd)

    def _drop(self, entry: _Entry) -> None:
        del self._entries[frozenset(entry.fields.items())]
        buckets = self._pivots[entry.pivot]
        for value in entry.fields[entry.pivot]:
            del buckets[value][entry]
            if not buckets[value]:
                del buckets[value]
        if not buckets:
            del self._pivots[entry.pivot]


def _leaves(pattern: Any, path: _Path) -> Iterator[tuple[_Path, frozenset[Hashable]]]:
    where = ".".join(path) or "the pattern"
    if len(path) >= MAX_JSON_DEPTH:
        raise ProjectError(f"The pattern in match= is nested deeper than {MAX_JSON_DEPTH} levels.", hint=_HINT)
    if not isinstance(pattern, Mapping) or not pattern:
        raise ProjectError(f"In match=, {where} must be a list of values, or fields with lists of values.", hint=_HINT)
    for name, values in pattern.items():
        if not isinstance(name, str):
            raise ProjectError(f"In match=, {where} has a field {name!r} that is not a text.", hint=_HINT)
        if isinstance(values, list | tuple):
            yield (*path, name), _values(values, ".".join((*path, name)))
        else:
            yield from _leaves(values, (*path, name))


def _values(values: list[Any] | tuple[Any, ...], where: str) -> frozenset[Hashable]:
    if not values:
        raise ProjectError(f"In match=, {where} has an empty list, so nothing could ever match.", hint=_HINT)
    for value in values:
        if not (value is None or isinstance(value, str | int | float)):
            raise ProjectError(f"In match=, {where} has {value!r}: a value is a text, a number, true, false or null.", hint=_HINT)
    return frozenset(map(_key, values))


def _tree(pattern: Pattern) -> Mapping[str, Any]:
    return {name: frozenset(map(_key, node)) if isinstance(node, list | tuple) else _tree(node) for name, node in pattern.items()}


def _key(value: Any) -> Hashable:
    """Return the comparison key of a value: True equals 1 in Python, and not in JSON."""
    return (value,) if isinstance(value, bool) else value


class _Arrays:
    """The elements of an event's arrays, with nested arrays flattened. Each array is flattened once."""

    __slots__ = ("_elements", "_keys", "_steps")

    def __init__(self) -> None:
        self._elements: dict[int, list[Any]] = {}
        self._keys: dict[int, frozenset[Hashable]] = {}
        self._steps = 0

    def elements(self, array: list[Any]) -> list[Any]:
        """Return the elements, none of which is an array."""
        # The event outlives this object, so that no other array gets the id of this one.
        elements = self._elements.get(id(array))
        if elements is None:
            elements = self._elements[id(array)] = _spread(array)
            return elements
        self._steps += len(elements)
        if self._steps > MAX_REPEATED_STEPS:
            raise MalformedEvent(f"Its arrays are too long to match: that takes more than {MAX_REPEATED_STEPS:,} steps.")
        return elements

    def keys(self, array: list[Any]) -> frozenset[Hashable]:
        """Return the keys of the plain values among the elements."""
        keys = self._keys.get(id(array))
        if keys is None:
            keys = self._keys[id(array)] = frozenset([_key(element) for element in self.elements(array) if type(element) is not dict])
        return keys


def _spread(array: list[Any]) -> list[Any]:
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


def _candidates(buckets: Mapping[Hashable, Mapping[_Entry, None]], event_keys: list[Hashable]) -> Iterable[_Entry]:
    """Return the patterns under any of these keys, each once."""
    if len(event_keys) > len(buckets):
        keys = set(event_keys)
        event_keys = [key for key in buckets if key in keys]
    return {entry: None for key in event_keys for entry in buckets.get(key, ())}


def _plain_at(value: Any, path: _Path) -> list[Hashable] | None:
    """Return the key of the plain value at `path`, or None if there may be an array on the way."""
    node = value
    for name in path:
        if type(node) is not dict or name not in node:
            return [] if type(node) is dict else None
        node = node[name]
    return None if isinstance(node, list | dict) else [_key(node)]


def _at(value: Any, path: _Path, arrays: _Arrays) -> list[Hashable]:
    """Return the keys of the plain values at `path`, through arrays on the way."""
    nodes = [value]
    for name in path:
        nodes = [node[name] for node in _opened(nodes, arrays) if isinstance(node, dict) and name in node]
    if len(nodes) == 1 and type(nodes[0]) is list:
        return list(arrays.keys(nodes[0]))
    return [_key(node) for node in _opened(nodes, arrays) if not isinstance(node, dict)]


def _opened(nodes: list[Any], arrays: _Arrays) -> list[Any]:
    """Return `nodes` with every array replaced by its elements."""
    if not any(type(node) is list for node in nodes):
        return nodes
    return [element for node in nodes for element in (arrays.elements(node) if type(node) is list else (node,))]


def _matches(tree: Mapping[str, Any] | frozenset[Hashable], value: Any, arrays: _Arrays) -> bool:
    """Whether one object of `value` matches all fields. Recurses into the pattern, not into the event."""
    if isinstance(tree, frozenset):
        if type(value) is list:
            return not tree.isdisjoint(arrays.keys(value))
        return not isinstance(value, dict) and _key(value) in tree
    for element in arrays.elements(value) if type(value) is list else (value,):
        if isinstance(element, dict):
            for name, node in tree.items():
                if name not in element or not _matches(node, element[name], arrays):
                    break
            else:
                return True
    return False
