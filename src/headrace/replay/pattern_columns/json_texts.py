"""Event patterns on JSON text, as conditions that are true for every event that matches, and for some others.

Spark parses each object of the patterns once, with all fields as text. So a text and the number or object that it spells are the same here,
as are an absent field and null; an array passes every leaf.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from headrace.core.matching.patterns.fields import FieldTree
from headrace.core.matching.patterns.operators import AnythingBut, Exists, Leaf, NumericRange, Operator, Path
from headrace.core.matching.patterns.parser import EventPattern
from headrace.replay.pattern_columns.bounds import Bounds, Condition, all_of, any_of, either, inverse
from headrace.replay.pattern_columns.plain_values import matches_null
from headrace.replay.pattern_columns.texts import passes_text_operator

_PARSED: Final = "headrace:parsed-"
_CORRUPT: Final = "headrace:corrupt"
_MAX_EXACT: Final = 2**53
"""Up to this value, each integer has its own double."""
_NOT_TEXT: Final = r"\A[\[{\-+.0-9tfnNI]"
"""The beginnings of the JSON of values that are not texts, also of numbers that only Spark reads."""


class JsonField(NamedTuple):
    """The columns of a field: its text, which is null if it is absent or null, the number that it spells, and the kind of its JSON."""

    text: Column
    number: Column
    is_object: Column
    is_array: Column
    may_be_json: Column
    """Whether the text begins as the JSON of a value that is not a text."""


@dataclass(slots=True)
class JsonObjects:
    """An object that patterns read, its fields, and the objects among them."""

    is_corrupt: Column
    fields: dict[str, JsonField]
    inner: dict[str, JsonObjects] = field(default_factory=dict)


def with_objects(events: DataFrame, text: Column, patterns: Iterable[EventPattern]) -> tuple[DataFrame, JsonObjects]:
    """Return the events with columns for each object that the patterns read, and these objects."""
    paths = dict.fromkeys(path for pattern in patterns for fields in pattern.alternatives for path, _ in fields)
    return _with_object(events, text, list(paths), f"{_PARSED}0")


def matches_pattern(pattern: EventPattern, event: JsonObjects) -> Condition:
    """Return a condition that every event which matches the pattern passes."""
    alternatives = [any_of([event.is_corrupt, _matches_object(FieldTree.of(fields), event)]) for fields in pattern.alternatives]
    return any_of(alternatives)


def _with_object(events: DataFrame, text: Column, paths: list[Path], name: str) -> tuple[DataFrame, JsonObjects]:
    names = list(dict.fromkeys(path[0] for path in paths))
    schema = st.StructType([st.StructField(one, st.StringType()) for one in [*names, _CORRUPT]])
    events = events.withColumn(name, sf.from_json(text, schema, {"columnNameOfCorruptRecord": _CORRUPT}))
    parsed = JsonObjects(_column(name).getField(_CORRUPT).isNotNull(), {})
    tests: dict[str, Column] = {}
    for number, one in enumerate(names):
        its_text = _column(name).getField(one)
        columns = JsonField(
            its_text, its_text.try_cast("double"), its_text.startswith("{"), its_text.startswith("["), its_text.rlike(_NOT_TEXT)
        )
        tests |= {f"{name}.{number}.{test}": column for test, column in columns._asdict().items()}
        parsed.fields[one] = JsonField(*(_column(f"{name}.{number}.{test}") for test in JsonField._fields))
    events = events.withColumns(tests)
    for number, (one, columns) in enumerate(parsed.fields.items()):
        inner = [path[1:] for path in paths if path[0] == one and len(path) > 1]
        if inner:
            object_text = sf.when(columns.is_object, columns.text)
            events, parsed.inner[one] = _with_object(events, object_text, inner, f"{name}.{number}")
    return events, parsed


def _column(name: str) -> Column:
    return sf.col(f"`{name}`")


def _matches_object(tree: FieldTree, parsed: JsonObjects) -> Condition:
    leaves = [_matches_leaf(leaf, parsed.fields[name]) for name, leaf in tree.leaves.items()]
    return all_of([*leaves, *(_matches_tree(inner, name, parsed) for name, inner in tree.trees.items())])


def _matches_tree(tree: FieldTree, name: str, parsed: JsonObjects) -> Condition:
    if tree.absent:
        return True
    columns, inner = parsed.fields[name], parsed.inner[name]
    return any_of([inner.is_corrupt, all_of([columns.is_object, _matches_object(tree, inner)]), columns.is_array])


def _matches_leaf(leaf: Leaf, columns: JsonField) -> Condition:
    null = columns.text.isNull()
    if leaf.absent:
        return null | columns.is_object | columns.is_array
    tests = either(_equals(leaf.values, columns), *(_passes(operator, columns) for operator in leaf.operators))
    return any_of([tests.upper, columns.is_array, *([null] if matches_null(leaf) else [])])


def _passes(operator: Operator, columns: JsonField) -> Bounds:
    match operator:
        case Exists():
            return Bounds(True, False)
        case AnythingBut(values, operators):
            return inverse(either(_equals(values, columns), *(_is_excluded(operator, columns) for operator in operators)))
        case NumericRange():
            return Bounds(_in_range(operator, columns.number), False)
    return Bounds(passes_text_operator(columns.text, operator).upper, False)


def _is_excluded(operator: Operator, columns: JsonField) -> Bounds:
    """Return the bounds of an operator that excludes texts. The lower one needs a beginning that only texts have."""
    bounds = passes_text_operator(columns.text, operator)
    return Bounds(bounds.upper, all_of([bounds.lower, ~columns.may_be_json]))


def _equals(keys: Any, columns: JsonField) -> Bounds:
    upper: list[Condition] = []
    lower: list[Condition] = []
    texts = [key for key in keys if isinstance(key, str)]
    if texts:
        upper.append(columns.text.isin(texts))
    surely = [one for one in texts if re.match(_NOT_TEXT, one) is None]
    if surely:
        lower.append(columns.text.isin(surely))
    for key in keys:
        if isinstance(key, tuple):
            upper.append(columns.text == str(key[0]).lower())
        elif isinstance(key, int | float):
            upper.append(_in_range(NumericRange((key, 0), (key, 0)), columns.number))
    return Bounds(any_of(upper), any_of(lower))


def _in_range(bounds: NumericRange, number: Column) -> Condition:
    """Return whether a number may be in a range, after it was rounded to a double."""
    (low, exclusive), (high, inclusive) = bounds.low, bounds.high
    least, greatest = _as_double(low), _as_double(high)
    bounds_of_number: list[Condition] = []
    if low != -math.inf:
        bounds_of_number.append(number > least if exclusive and abs(low) < _MAX_EXACT else number >= least)
    if high != math.inf:
        bounds_of_number.append(number < greatest if inclusive and abs(high) < _MAX_EXACT else number <= greatest)
    return all_of(bounds_of_number)


def _as_double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
