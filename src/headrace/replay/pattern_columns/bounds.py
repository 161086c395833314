"""Conditions on rows, each between two Columns: one that is true for every row that passes, and one that is true for such rows only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as sf

Condition: TypeAlias = Column | bool
"""A Column of booleans in which null means false, or the same value for all rows."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A condition: `upper` is true for every row that passes, and `lower` only for rows that pass. Both are one object if it is exact."""

    upper: Condition
    lower: Condition

    @property
    def is_exact(self) -> bool:
        """Whether the Column is true for exactly the rows that pass."""
        return self.upper is self.lower


def exact(condition: Condition) -> Bounds:
    """Return a condition that Spark evaluates exactly."""
    return Bounds(condition, condition)


ALWAYS: Final = exact(True)
NEVER: Final = exact(False)
UNKNOWN: Final = Bounds(True, False)
"""A condition that Spark cannot evaluate."""


def both(*parts: Bounds) -> Bounds:
    """Return the condition that all parts pass."""
    return _joined(parts, all_of)


def either(*parts: Bounds) -> Bounds:
    """Return the condition that one of the parts passes."""
    return _joined(parts, any_of)


def inverse(part: Bounds) -> Bounds:
    """Return the condition that a part does not pass. It is null where the part is."""
    if part.is_exact:
        return exact(_inverse(part.upper))
    return Bounds(_inverse(part.lower), _inverse(part.upper))


def any_element(array: Column, test: Callable[[Column], Bounds]) -> Bounds:
    """Return the condition that one element of an array passes a test."""
    return _quantified(array, test, sf.exists)


def all_elements(array: Column, test: Callable[[Column], Bounds]) -> Bounds:
    """Return the condition that all elements of an array pass a test."""
    return _quantified(array, test, sf.forall)


def any_of(conditions: Iterable[Condition]) -> Condition:
    """Return whether one of the conditions is true. The Column is a balanced tree, because Spark recurses into it."""
    return _reduced(conditions, False, lambda left, right: left | right)


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Return whether all conditions are true."""
    return _reduced(conditions, True, lambda left, right: left & right)


def column_of(condition: Condition) -> Column:
    """Return a condition as a Column without nulls."""
    return sf.lit(condition) if isinstance(condition, bool) else sf.coalesce(condition, sf.lit(False))


def _joined(parts: Iterable[Bounds], join: Callable[[Iterable[Condition]], Condition]) -> Bounds:
    parts = list(parts)
    upper = join(part.upper for part in parts)
    if all(part.is_exact for part in parts):
        return exact(upper)
    return Bounds(upper, join(part.lower for part in parts))


def _inverse(condition: Condition) -> Condition:
    return not condition if isinstance(condition, bool) else ~condition


def _quantified(
    array: Column, test: Callable[[Column], Bounds], quantifier: Callable[[Column, Callable[[Column], Column]], Column]
) -> Bounds:
    tests: list[Bounds] = []

    def upper(element: Column) -> Column:
        tests.append(test(element))
        return column_of(tests[-1].upper)

    over = quantifier(array, upper)
    if tests[-1].is_exact:
        return exact(over)
    return Bounds(over, quantifier(array, lambda element: column_of(test(element).lower)))


def _reduced(conditions: Iterable[Condition], neutral: bool, join: Callable[[Column, Column], Column]) -> Condition:
    columns: list[Column] = []
    for condition in conditions:
        if not isinstance(condition, bool):
            columns.append(condition)
        elif condition is not neutral:
            return condition
    while len(columns) > 1:
        columns = [join(*pair) if len(pair) == 2 else pair[0] for pair in (columns[at : at + 2] for at in range(0, len(columns), 2))]
    return columns[0] if columns else neutral
