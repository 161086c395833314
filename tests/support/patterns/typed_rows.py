"""Random rows of typed columns, and random patterns on their values. The same seed gives the same rows and patterns."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.replay.raw_events import encoded_rows

_WORDS: Final = ("", "x", "X", "xß", "XSS", "\u212a", "k", "a_b%", "a\nb", "10.0.0.1", "10.0.0.01", "2001:db8::1")
_LIKE_JSON: Final = ("{}", '{"b":"x"}', "[1]", "true", "1", "1.5", "null")
TEXTS: Final = (*_WORDS, *_LIKE_JSON)
FLOATS: Final = (0.0, -0.0, 0.5, 1.0, -2.5, 1e300, 2.0**53, float("nan"), float("inf"), float("-inf"))
INTEGERS: Final = (0, 1, -1, 2, 127, -128)
LONGS: Final = (*INTEGERS, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
DAYS: Final = (dt.date(2026, 11, 21), dt.date(1, 1, 1), dt.date(9999, 12, 31))
TIMES: Final = (dt.datetime(2026, 11, 21, 7, 5, 3), dt.datetime(2026, 11, 21, 7, 5, 3, 120000), dt.datetime(1, 1, 1))
NANOS: Final = (1_763_700_000_123_456_789, 1_763_700_000_000_000_999, -1_001, 0)
_OBJECT: Final = pa.struct([("a", pa.string()), ("n", pa.int64()), ("in", pa.struct([("b", pa.string()), ("f", pa.float64())]))])
_LEG: Final = pa.struct([("a", pa.string()), ("n", pa.int64()), ("stops", pa.list_(pa.string())), ("in", pa.struct([("b", pa.string())]))])
SCHEMA: Final = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("Text", pa.large_string()),
        pa.field("a.b", pa.string()),
        pa.field("category", pa.dictionary(pa.int32(), pa.string())),
        pa.field("flag", pa.bool_()),
        pa.field("n8", pa.int8()),
        pa.field("u32", pa.uint32()),
        pa.field("n", pa.int64()),
        pa.field("f", pa.float64()),
        pa.field("f32", pa.float32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("exact", pa.decimal128(20, 9)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("nanos", pa.timestamp("ns", "UTC")),
        pa.field("stamps", pa.list_(pa.struct([("at", pa.timestamp("ns"))]))),
        pa.field("nothing", pa.null()),
        pa.field("bytes", pa.binary()),
        pa.field("map", pa.map_(pa.string(), pa.int64())),
        pa.field("o", _OBJECT),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("numbers", pa.large_list(pa.float64())),
        pa.field("grid", pa.list_(pa.list_(pa.int64()))),
        pa.field("legs", pa.list_(_LEG)),
        pa.field("routes", pa.list_(pa.list_(_LEG))),
    ]
)
NEVER_EXACT: Final = {"exact", "bytes", "map"}
"""Columns whose JSON Spark does not write."""


def table_of(count: int, seed: int) -> pa.Table:
    """Return rows of `SCHEMA`, numbered from 0."""
    chance = random.Random(seed)
    rows = [{field.name: _value(field.type, chance) for field in SCHEMA} | {"number": number} for number in range(count)]
    return pa.Table.from_pylist(rows, SCHEMA)


def events_of(table: pa.Table) -> list[bytes]:
    """Return the rows as the JSON that triggers receive."""
    return list(encoded_rows(table))


def patterns_on(events: Sequence[bytes], count: int, seed: int) -> list[Any]:
    """Return patterns on the values of events. Each has up to three fields, at the top or below one object."""
    chance = random.Random(seed)
    values: dict[tuple[str, ...], list[Any]] = {}
    for event in events:
        _collect(msgspec.json.decode(event), (), values)
    return [_pattern(values, chance) for _ in range(count)]


def _value(kind: pa.DataType, chance: random.Random) -> Any:
    if chance.random() < 0.15 or pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        return _value(kind.value_type, chance)
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, chance) for field in kind}
    if pa.types.is_map(kind):
        return [("k", 1)] if chance.random() < 0.5 else []
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(kind.value_type, chance) for _ in range(chance.randrange(4))]
    choices: Sequence[Any] = next(values for test, values in _CHOICES if test(kind))
    return chance.choice(choices)


_CHOICES: Final[tuple[tuple[Callable[[pa.DataType], bool], Sequence[Any]], ...]] = (
    (pa.types.is_boolean, (True, False)),
    (pa.types.is_int8, INTEGERS),
    (pa.types.is_uint32, (0, 1, 2**32 - 1)),
    (pa.types.is_int64, LONGS),
    (pa.types.is_floating, FLOATS),
    (lambda kind: pa.types.is_decimal(kind) and kind.scale == 2, (Decimal("0.00"), Decimal("-1.50"), Decimal("12.00"))),
    (pa.types.is_decimal, (Decimal("0E-9"), Decimal("1.5"))),
    (pa.types.is_date, DAYS),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "ns", NANOS),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, [time.replace(tzinfo=dt.UTC) for time in TIMES]),
    (pa.types.is_timestamp, TIMES),
    (pa.types.is_binary, (b"", b"ab")),
    (lambda _: True, TEXTS),
)


def _collect(node: Any, path: tuple[str, ...], values: dict[tuple[str, ...], list[Any]]) -> None:
    if isinstance(node, dict):
        for name, inner in node.items():
            _collect(inner, (*path, name), values)
    elif isinstance(node, list):
        for inner in node:
            _collect(inner, path, values)
    else:
        values.setdefault(path, []).append(node)


def _pattern(values: dict[tuple[str, ...], list[Any]], chance: random.Random) -> Any:
    if chance.random() < 0.15:
        return {"$or": [_pattern(values, chance) for _ in range(2)]}
    paths = [path for path in values if path != ("number",)]
    first = chance.choice(paths)
    beside = [path for path in paths if len(path) == len(first) and path[:-1] == first[:-1]] if len(first) > 1 else paths
    chosen = [first]
    for path in chance.sample(beside, min(len(beside), chance.randrange(3))):
        if not any(path[: len(other)] == other[: len(path)] for other in chosen):
            chosen.append(path)
    pattern: dict[str, Any] = {}
    for path in chosen:
        node = pattern
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = [_leaf(values[path], chance) for _ in range(chance.choice((1, 1, 2)))]
    if chance.random() < 0.1:
        pattern["missing"] = [{"exists": chance.random() < 0.3}]
    return pattern


def _leaf(known: list[Any], chance: random.Random) -> Any:
    value = chance.choice(known)
    kind = chance.randrange(12)
    if kind == 0:
        return {"exists": chance.random() < 0.6}
    if kind == 1:
        return chance.choice([None, True, 1, "x", 0.5, 10**30, 1e308, "1.50"])
    if isinstance(value, bool) or value is None or kind < 5:
        return value
    return _on_text(value, chance) if isinstance(value, str) else _on_number(value, chance)


def _on_number(value: float, chance: random.Random) -> Any:
    if chance.random() < 0.25:
        return {"anything-but": [value, 0]}
    bound = chance.choice([value, 0, 0.5, -0.0, 2**53 + 1, 10**30, -(10**300)])
    if chance.random() < 0.3 and bound < value:
        return {"numeric": [chance.choice([">", ">="]), bound, chance.choice(["<", "<="]), value]}
    return {"numeric": [chance.choice(["=", "<", "<=", ">", ">="]), bound]}


def _on_text(value: str, chance: random.Random) -> Any:
    cut = chance.randrange(len(value) + 1)
    beginning, end = value[:cut], value[cut:]
    escaped = end.replace("\\", r"\\").replace("*", r"\*")
    in_any_case = {"equals-ignore-case": chance.choice([value.upper(), value.lower(), "K", "xss"])}
    return chance.choice(
        [
            {"prefix": beginning},
            {"suffix": end},
            {"wildcard": f"*{escaped}"},
            {"wildcard": chance.choice(["*_*", "a*b*", "*%", "2026-*T*Z"])},
            in_any_case,
            {"prefix": in_any_case},
            {"suffix": in_any_case},
            {"anything-but": [value, "x"]},
            {"anything-but": {"prefix": beginning or "x"}},
            {"anything-but": {"suffix": end or "x"}},
            {"anything-but": {"wildcard": f"*{escaped}*"}} if escaped else {"anything-but": "k"},
            {"anything-but": {"equals-ignore-case": value or "k"}},
            {"cidr": chance.choice(["10.0.0.0/24", "10.0.0.1/32", "10.0.0.0/13", "0.0.0.0/0", "2001:db8::/32"])},
            {"exactly": value},
        ]
    )
