"""Match all fields of one alternative of a pattern with an event, so that the fields of one array element belong together.

An array matches if one of its elements does, and an object within an array must match all fields that the pattern has below it. If these
fields are all absences, no element may have them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.operators import Leaf, Path, value_key

_MISSING: Final = object()


@dataclass(slots=True)
class FieldTree:
    """The fields of an alternative as a tree of names."""

    trees: dict[str, FieldTree] = field(default_factory=dict)
    leaves: dict[str, Leaf] = field(default_factory=dict)
    absent: bool = True
    """Whether all leaves below are absences."""

    @classmethod
    def of(cls, fields: Iterable[tuple[Path, Leaf]]) -> FieldTree:
        """Return the tree of these fields."""
        root = cls()
        for path, leaf in fields:
            tree = root
            tree.absent &= leaf.absent
            for name in path[:-1]:
                tree = tree.trees.setdefault(name, cls())
                tree.absent &= leaf.absent
            tree.leaves[path[-1]] = leaf
        return root


def matches_fields(fields: Iterable[tuple[Path, Leaf]], event: Any, arrays: Arrays) -> bool:
    """Return whether an event matches all fields. Recurses into the pattern, not into the event."""
    for path, leaf in fields:
        node = event
        for name in path:
            if type(node) is dict:
                node = node.get(name, _MISSING)
            elif type(node) is list:
                break
            else:
                node = _MISSING
                break
        if type(node) is list:
            return _matches_tree(FieldTree.of(fields), event, arrays)
        if not _matches_leaf(leaf, node, arrays):
            return False
    return True


def _matches_tree(tree: FieldTree, value: Any, arrays: Arrays) -> bool:
    if type(value) is list:
        elements = arrays.elements(value)
        if tree.absent:
            return all(_matches_tree(tree, element, arrays) for element in elements)
        return any(type(element) is dict and _matches_tree(tree, element, arrays) for element in elements)
    if type(value) is not dict:
        return tree.absent
    return all(_matches_leaf(leaf, value.get(name, _MISSING), arrays) for name, leaf in tree.leaves.items()) and all(
        _matches_tree(inner, value.get(name, _MISSING), arrays) for name, inner in tree.trees.items()
    )


def _matches_leaf(leaf: Leaf, value: Any, arrays: Arrays) -> bool:
    kind = type(value)
    if kind is dict or value is _MISSING:
        return leaf.absent
    if kind is not list:
        if leaf.values and value_key(value) in leaf.values:
            return True
        return bool(leaf.operators) and _passes(leaf, value, arrays)
    if leaf.absent:
        return all(type(element) is dict for element in arrays.elements(value))
    if leaf.values and not arrays.keys(value).isdisjoint(leaf.values):
        return True
    return bool(leaf.operators) and any(_passes(leaf, element, arrays) for element in arrays.elements(value) if type(element) is not dict)


def _passes(leaf: Leaf, value: Any, arrays: Arrays) -> bool:
    """Return whether a value passes one of the operators of a leaf."""
    arrays.count_text(value)
    return any(operator.matches(value) for operator in leaf.operators)
