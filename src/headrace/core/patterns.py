"""Patterns: which raw events a declared watch wants, and an index that finds the watches that want one.

A pattern has the exact-value form of EventBridge, an object whose leaves are lists of values:
`{"carrier": ["UA"], "origin": {"country": ["US"]}}`. Every field must match (one of the values of its list); an array in the event
matches if any of its elements does. No pattern wants everything.

The index keeps each pattern under the values of one of its fields, its pivot, and looks at a pattern only when the event has one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.errors import ProjectError

Pattern: TypeAlias = Mapping[str, Any]
_Path: TypeAlias = tuple[str, ...]

_HINT = 'Write it like {"carrier": ["UA", "DL"], "origin": {"country": ["US"]}}.'


def leaves(pattern: Pattern) -> dict[tuple[str, ...], frozenset[Hashable]]:
    """Return the wanted values of every field of `pattern`, by its path. Raises `ProjectError` where it is no pattern."""
    return dict(_leaves(pattern, ()))


@dataclass(slots=True, eq=False)
class _Entry:
    """One pattern, and all the triggers that have it."""

    fields: dict[_Path, frozenset[Hashable]]
    tree: Mapping[str, Any]
    pivot: _Path
    triggers: dict[int, None] = field(default_factory=dict)


class MatchIndex:
    """Which triggers want a raw event. The cost of `matches` follows those that might, not those that are there."""

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
        """Add a trigger that wants what `pattern` matches, or everything. Raises `ProjectError` where it is no pattern."""
        if trigger_id in self._of:
            raise ValueError(f"trigger {trigger_id} is in the index already")
        entry = None if pattern is None else self._entry(pattern)
        (self._everything if entry is None else entry.triggers)[trigger_id] = None
        self._of[trigger_id] = entry

    def remove(self, trigger_id: int) -> None:
        """Remove a trigger; one that is not there changes nothing."""
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
        """Return the ids of the triggers that want `value`, each once."""
        matched = list(self._everything)
        for path, buckets in self._pivots.items():
            found = _at(value, path)
            for entry in buckets.get(found[0], ()) if len(found) == 1 else {entry: None for key in found for entry in buckets.get(key, ())}:
                if len(entry.fields) == 1 or _wanted(entry.tree, value):
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
        """The field whose values are shared with the fewest patterns, so that few patterns are looked at in vain."""

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
    if not isinstance(pattern, Mapping) or not pattern:
        raise ProjectError(f"In match=, {where} must be a list of values, or fields with lists of values.", hint=_HINT)
    for name, wanted in pattern.items():
        if not isinstance(name, str):
            raise ProjectError(f"In match=, {where} has a field {name!r} that is not a text.", hint=_HINT)
        if isinstance(wanted, list | tuple):
            yield (*path, name), _values(wanted, ".".join((*path, name)))
        else:
            yield from _leaves(wanted, (*path, name))


def _values(wanted: list[Any] | tuple[Any, ...], where: str) -> frozenset[Hashable]:
    if not wanted:
        raise ProjectError(f"In match=, {where} has an empty list, so nothing could ever match.", hint=_HINT)
    for value in wanted:
        if not (value is None or isinstance(value, str | int | float)):
            raise ProjectError(f"In match=, {where} has {value!r}: a value is a text, a number, true, false or null.", hint=_HINT)
    return frozenset(map(_key, wanted))


def _tree(pattern: Pattern) -> Mapping[str, Any]:
    return {name: frozenset(map(_key, node)) if isinstance(node, list | tuple) else _tree(node) for name, node in pattern.items()}


def _key(value: Any) -> Hashable:
    """What a value is compared by: Python's True equals 1, JSON's does not."""
    return (value,) if isinstance(value, bool) else value


def _at(value: Any, path: _Path) -> list[Hashable]:
    """The keys of the plain values at `path`, through any arrays on the way."""
    node = value
    for name in path:
        if type(node) is not dict or name not in node:
            break
        node = node[name]
    else:
        if not isinstance(node, list | dict):
            return [_key(node)]
    nodes = [value]
    for name in path:
        inside = _spread(nodes)
        nodes = [node[name] for node in inside if isinstance(node, dict) and name in node]
    return [_key(node) for node in _spread(nodes) if not isinstance(node, dict)]


def _spread(nodes: list[Any]) -> list[Any]:
    """`nodes` with every array replaced by its elements."""
    if not any(isinstance(node, list) for node in nodes):
        return nodes
    return [element for node in nodes for element in (_spread(node) if isinstance(node, list) else (node,))]


def _wanted(tree: Mapping[str, Any] | frozenset[Hashable], value: Any) -> bool:
    """Whether `value` matches, all fields of one object together."""
    if isinstance(value, list):
        return any(_wanted(tree, element) for element in value)
    if isinstance(tree, frozenset):
        return not isinstance(value, dict) and _key(value) in tree
    return isinstance(value, dict) and all(name in value and _wanted(node, value[name]) for name, node in tree.items())
