"""The entries of an index at one path, by the value that they need there."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from headrace.core.matching.patterns.arrays import Arrays
from headrace.core.matching.patterns.buckets import Bucket, with_entry, without_entry
from headrace.core.matching.patterns.networks import NetworkTable
from headrace.core.matching.patterns.operators import (
    AnythingBut,
    Equals,
    Exists,
    Leaf,
    Network,
    NumericRange,
    Operator,
    Prefix,
    Suffix,
    Wildcard,
    value_key,
)
from headrace.core.matching.patterns.ranges import RangeTable
from headrace.core.matching.patterns.texts import AffixTable, EqualsTable, WildcardTable

_T = TypeVar("_T")


class TestedTable(Generic[_T]):
    """Entries by an operator that most values pass, so that each different operator is tested."""

    def __init__(self) -> None:
        self._entries: dict[AnythingBut | Exists, Bucket[_T]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, operator: AnythingBut | Exists, entry: _T) -> None:
        """Add an entry."""
        self._entries[operator] = with_entry(self._entries.get(operator, ()), entry)
        self._size += 1

    def remove(self, operator: AnythingBut | Exists, entry: _T) -> None:
        """Remove an entry that was added."""
        self._entries[operator] = without_entry(self._entries[operator], entry)
        self._size -= 1
        if not self._entries[operator]:
            del self._entries[operator]

    def crowd(self, operator: AnythingBut | Exists) -> int:
        """Return the number of entries that an event probably has in common with this one: all."""
        del operator
        return self._size

    def find(self, value: Any, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries whose operator a value passes."""
        for operator, bucket in self._entries.items():
            arrays.count_text(value)
            if operator.matches(value):
                buckets.append(bucket)

    def find_any(self, values: Collection[Any], arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries whose operator one of many values passes. The first value is free, because nearly every operator passes it."""
        for operator, bucket in self._entries.items():
            for tests, value in enumerate(values):
                arrays.count_text(value)
                if operator.matches(value):
                    arrays.count(tests)
                    buckets.append(bucket)
                    break
            else:
                arrays.count(len(values) - 1)


_TABLES: Final[dict[tuple[type[Operator], bool], tuple[int, Any]]] = {
    (Equals, False): (1, EqualsTable),
    (Network, False): (2, NetworkTable),
    (Prefix, False): (3, partial(AffixTable, suffixes=False)),
    (Prefix, True): (3, partial(AffixTable, suffixes=False, ignore_case=True)),
    (Suffix, False): (3, partial(AffixTable, suffixes=True)),
    (Suffix, True): (3, partial(AffixTable, suffixes=True, ignore_case=True)),
    (Wildcard, False): (4, WildcardTable),
    (NumericRange, False): (5, RangeTable),
    (AnythingBut, False): (6, TestedTable),
    (Exists, False): (6, TestedTable),
}
"""The table of each operator and `ignore_case`, and its rank: of two equally crowded fields, the one with the lower rank is looked up."""


class FieldIndex(Generic[_T]):
    """Entries by the leaf of one path. `find` costs the number of different kinds of operators, and the entries that it returns."""

    __slots__ = ("_exact", "_tables", "absent")

    def __init__(self) -> None:
        self.absent: Bucket[_T] = ()
        """The entries that need the absence of the field."""
        self._exact: dict[Hashable, Bucket[_T]] = {}
        self._tables: dict[tuple[type[Operator], bool], Any] = {}

    def __bool__(self) -> bool:
        return bool(self.absent or self._exact or self._tables)

    def add(self, leaf: Leaf, entry: _T) -> None:
        """Add an entry under each value and operator of a leaf."""
        if leaf.absent:
            self.absent = with_entry(self.absent, entry)
        for value in leaf.values:
            self._exact[value] = with_entry(self._exact.get(value, ()), entry)
        for operator in leaf.operators:
            kind = _kind(operator)
            table = self._tables.get(kind)
            if table is None:
                table = self._tables[kind] = _TABLES[kind][1]()
            table.add(operator, entry)

    def remove(self, leaf: Leaf, entry: _T) -> None:
        """Remove an entry that was added with this leaf."""
        if leaf.absent:
            self.absent = without_entry(self.absent, entry)
        for value in leaf.values:
            self._exact[value] = without_entry(self._exact[value], entry)
            if not self._exact[value]:
                del self._exact[value]
        for operator in leaf.operators:
            kind = _kind(operator)
            self._tables[kind].remove(operator, entry)
            if not self._tables[kind]:
                del self._tables[kind]

    def cost(self, leaf: Leaf) -> tuple[int, int]:
        """Return the number of entries that an event which satisfies the leaf probably finds too, and a rank among equal numbers."""
        crowds = [0, *(len(self._exact.get(value, ())) for value in leaf.values)]
        ranks = [0]
        for operator in leaf.operators:
            kind = _kind(operator)
            table = self._tables.get(kind)
            crowds.append(0 if table is None else table.crowd(operator))
            ranks.append(_TABLES[kind][0])
        return max(crowds), max(ranks)

    def find(self, value: Any, arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries that a value satisfies."""
        bucket = self._exact.get(value_key(value))
        if bucket is not None:
            buckets.append(bucket)
        for table in self._tables.values():
            table.find(value, arrays, buckets)

    def find_any(self, values: Collection[Any], arrays: Arrays, buckets: list[Bucket[_T]]) -> None:
        """Append the entries that one of many values satisfies; an entry may be in several buckets."""
        keys = {value_key(value): value for value in values}
        buckets += [self._exact[key] for key in self._exact.keys() & keys.keys()]
        for table in self._tables.values():
            if isinstance(table, TestedTable):
                table.find_any(keys.values(), arrays, buckets)
                continue
            unique: dict[int, Bucket[_T]] = {}
            for value in keys.values():
                again: list[Bucket[_T]] = []
                table.find(value, arrays, again)
                size = len(unique)
                unique.update((id(bucket), bucket) for bucket in again)
                arrays.count(len(again) - (len(unique) - size))
            buckets += unique.values()


def _kind(operator: Operator) -> tuple[type[Operator], bool]:
    return type(operator), getattr(operator, "ignore_case", False)
