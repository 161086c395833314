"""An index of triggers by event pattern.

The index stores each alternative of a pattern under one of its fields, the one that it shares with the fewest others, in a tree of names.
An event is read along this tree; the other fields of an alternative are tested only if the event satisfies the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias, cast

from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.buckets import Bucket, with_entry, without_entry
from headrace.core.matching.patterns.field_index import FieldIndex
from headrace.core.matching.patterns.fields import matches_fields
from headrace.core.matching.patterns.operators import Leaf, Path
from headrace.core.matching.patterns.parser import EventPattern

Field: TypeAlias = tuple[Path, Leaf]
Fields: TypeAlias = tuple[Field, ...]


@dataclass(slots=True, eq=False)
class _Entry:
    """One alternative of patterns: the field under which it is stored, its other fields, and the triggers that have it."""

    pivot: Field
    others: Fields
    triggers: Bucket[int] = ()


_EMPTY: Final[FieldIndex[Any]] = FieldIndex()


class _Node:
    """The index of one path, and the nodes of the fields below it."""

    __slots__ = ("children", "index")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.index: FieldIndex[_Entry] = FieldIndex()

    def at(self, path: Path) -> _Node:
        """Return the node at a path below this one, which is created if it is missing."""
        node = self
        for name in path:
            child = node.children.get(name)
            if child is None:
                child = node.children[name] = _Node()
            node = child
        return node

    def cost(self, path: Path, leaf: Leaf) -> tuple[int, int]:
        """Return the cost to find an alternative by this leaf."""
        node: _Node | None = self
        for name in path:
            node = None if node is None else node.children.get(name)
        return (_EMPTY if node is None else node.index).cost(leaf)

    def prune(self, path: Path) -> None:
        """Remove the nodes on a path that have neither entries nor children."""
        nodes = [self]
        for name in path:
            nodes.append(nodes[-1].children[name])
        for name, parent, node in zip(reversed(path), reversed(nodes[:-1]), reversed(nodes[1:]), strict=True):
            if node.index or node.children:
                return
            del parent.children[name]


class MatchIndex:
    """An index of triggers by pattern. The cost of `matches` follows the event and the triggers that match, not their number."""

    def __init__(self) -> None:
        self._everything: dict[int, None] = {}
        self._root = _Node()
        self._absent: dict[Path, FieldIndex[_Entry]] = {}
        self._entries: dict[Fields, _Entry] = {}
        self._shared: dict[Field, list[Any]] = {}
        """Each field that is not a pivot, with the number of its entries: one object for all of them, which saves memory and lookups."""
        self._of: dict[int, tuple[_Entry, ...]] = {}
        self._repeated = 0
        """Number of entries and triggers that one value can find twice: with several operators for a field, or several alternatives."""

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, trigger_id: int) -> bool:
        return trigger_id in self._of

    def __iter__(self) -> Iterator[int]:
        return iter(self._of)

    def add(self, pattern: EventPattern | None, trigger_id: int) -> None:
        """Add a trigger with its pattern; None matches every raw event."""
        if trigger_id in self._of:
            raise ValueError(f"trigger {trigger_id} is in the index already")
        if pattern is None:
            self._everything[trigger_id] = None
            self._of[trigger_id] = ()
            return
        entries = tuple(dict.fromkeys(self._entry(fields) for fields in pattern.alternatives))
        for entry in entries:
            entry.triggers = with_entry(entry.triggers, trigger_id)
        self._repeated += len(entries) > 1
        self._of[trigger_id] = entries

    def remove(self, trigger_id: int) -> None:
        """Remove a trigger. An unknown one changes nothing."""
        entries = self._of.pop(trigger_id, None)
        if entries is None:
            return
        if not entries:
            del self._everything[trigger_id]
        self._repeated -= len(entries) > 1
        for entry in entries:
            entry.triggers = without_entry(entry.triggers, trigger_id)
            if not entry.triggers:
                self._drop(entry)

    def matches(self, event: Any) -> list[int]:
        """Return the ids of the triggers that match an event, each once.

        Raises:
            MalformedEvent: Its arrays or texts are so long that matching takes more than `MAX_REPEATED_STEPS`.
        """
        matched = list(self._everything)
        if not self._entries:
            return matched
        walk = _Walk()
        walk.visit(self._root, event)
        for path, index in self._absent.items():
            if not _has_value(event, path, walk.arrays):
                walk.buckets.append(index.absent)
        repeated = self._repeated or walk.repeated
        entries: Iterable[_Entry] = chain.from_iterable(walk.buckets)
        for entry in dict.fromkeys(entries) if repeated else entries:
            if not entry.others or matches_fields(_untested(entry, walk), event, walk.arrays):
                matched.extend(entry.triggers)
        return list(dict.fromkeys(matched)) if repeated else matched

    def _entry(self, fields: Fields) -> _Entry:
        key = _sorted(fields)
        entry = self._entries.get(key)
        if entry is None:
            pivot = self._choose_pivot(key)
            entry = _Entry(pivot, tuple(self._share(field) for field in key if field is not pivot))
            self._entries[_sorted((pivot, *entry.others))] = entry
            path, leaf = pivot
            index = self._root.at(path).index
            index.add(leaf, entry)
            self._repeated += _is_repeated(leaf)
            if leaf.absent:
                self._absent[path] = index
        return entry

    def _share(self, field: Field) -> Field:
        """Return the object of a field that all entries share."""
        shared = self._shared.setdefault(field, [field, 0])
        shared[1] += 1
        return cast("Field", shared[0])

    def _choose_pivot(self, fields: Fields) -> Field:
        """Return the field that the fewest others need with the same value. An absence is chosen only if there is nothing else."""

        def cost(field: Field) -> tuple[bool, int, int]:
            path, leaf = field
            return (leaf.absent, *self._root.cost(path, leaf))

        return min(fields, key=cost) if len(fields) > 1 else fields[0]

    def _drop(self, entry: _Entry) -> None:
        del self._entries[_sorted((entry.pivot, *entry.others))]
        for field in entry.others:
            shared = self._shared[field]
            shared[1] -= 1
            if not shared[1]:
                del self._shared[field]
        path, leaf = entry.pivot
        index = self._root.at(path).index
        index.remove(leaf, entry)
        self._repeated -= _is_repeated(leaf)
        if leaf.absent and not index.absent:
            del self._absent[path]
        self._root.prune(path)


class _Walk:
    """One pass over an event along the tree of an index."""

    __slots__ = ("arrays", "buckets", "has_arrays", "repeated")

    def __init__(self) -> None:
        self.arrays = Arrays()
        self.has_arrays = False
        """Whether a path of the index leads into an array."""
        self.buckets: list[Bucket[_Entry]] = []
        self.repeated = False
        """Whether several values were looked up at one path."""

    def visit(self, node: _Node, value: Any) -> None:
        """Look up a value at a node, and its fields below. Recurses into the index, not into the event."""
        kind = type(value)
        if kind is dict:
            children = node.children
            if len(value) < len(children):
                for name in value:
                    child = children.get(name)
                    if child is not None:
                        self.visit(child, value[name])
            else:
                for name, child in children.items():
                    if name in value:
                        self.visit(child, value[name])
        elif kind is list:
            self.has_arrays = True
            self._visit_all(node, [value])
        else:
            node.index.find(value, self.arrays, self.buckets)

    def _visit_all(self, node: _Node, values: list[Any]) -> None:
        """Look up many values at a node, each an element of an array or a field of one."""
        elements = _opened(values, self.arrays)
        plain = [element for element in elements if type(element) is not dict]
        if plain and node.index:
            self.repeated = True
            node.index.find_any(plain, self.arrays, self.buckets)
        children = node.children
        if not children:
            return
        below: dict[str, list[Any]] = {}
        for fields in elements:
            if type(fields) is dict:
                for name in fields if len(fields) < len(children) else children:
                    if name in fields and name in children:
                        below.setdefault(name, []).append(fields[name])
        for name, inner in below.items():
            self._visit_all(children[name], inner)


def _untested(entry: _Entry, walk: _Walk) -> Fields:
    """Return the fields of an entry to test: all if another field may need an element of the same array, else all but the pivot."""
    return (entry.pivot, *entry.others) if walk.has_arrays else entry.others


def _sorted(fields: Fields) -> Fields:
    return tuple(sorted(fields, key=lambda field: field[0])) if len(fields) > 1 else fields


def _has_value(event: Any, path: Path, arrays: Arrays) -> bool:
    """Return whether a value that is not an object is at a path, in any element of the arrays on the way."""
    nodes = [event]
    for name in path:
        nodes = [node[name] for node in _opened(nodes, arrays) if type(node) is dict and name in node]
    return any(type(node) is not dict for node in _opened(nodes, arrays))


def _opened(nodes: list[Any], arrays: Arrays) -> list[Any]:
    """Return `nodes` with every array replaced by its elements."""
    if not any(type(node) is list for node in nodes):
        return nodes
    return [element for node in nodes for element in (arrays.elements(node) if type(node) is list else (node,))]


def _is_repeated(leaf: Leaf) -> bool:
    return len(leaf.operators) + bool(leaf.values) > 1
