"""Patterns as Columns in a real session have the meaning of the index, or decide less than it, but never otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace import Memory
from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import EventPattern, parse_pattern
from headrace.errors import MalformedEvent
from headrace.replay.options import HistoryColumns
from headrace.replay.pattern_columns.bounds import Condition, column_of
from headrace.replay.pattern_columns.watch_rows import json_conditions, spark_schema, spark_session, typed_conditions, watch_rows
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger
from support.patterns.corpus import cases
from support.patterns.typed_rows import NEVER_EXACT, SCHEMA, events_of, patterns_on, table_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROWS, PATTERNS = 200, 200


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = spark_session(spark)
    # Spark would compile one method for all patterns first, and then discard it as too long.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    return session


def parsed_of(patterns: Sequence[Any]) -> list[EventPattern]:
    return [parse_pattern(pattern) for pattern in patterns]


def matched_by_index(patterns: Sequence[EventPattern], events: Sequence[bytes]) -> list[set[int]]:
    """Return the numbers of the patterns that each event matches; none if it is not a JSON object."""
    index = MatchIndex()
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
    matched = []
    for event in events:
        try:
            value = RawEvent(event, "lane", 1).value
            matched.append(set(index.matches(value)) if isinstance(value, dict) else set())
        except MalformedEvent:
            matched.append(set())
    return matched


def numbers_of(conditions: Sequence[Condition]) -> Column:
    return sf.array_compact(sf.array(*(sf.when(column_of(condition), sf.lit(number)) for number, condition in enumerate(conditions))))


def matched_by_spark(rows: DataFrame, *bounds: Sequence[Condition]) -> list[list[set[int]]]:
    """Return, for each row by number, the numbers of the conditions that are true, for each list of conditions."""
    columns = [numbers_of(conditions).alias(f"{number}") for number, conditions in enumerate(bounds)]
    found = sorted(rows.select(sf.col("number").alias("row"), *columns).collect(), key=lambda row: row["row"])
    return [[set(row[f"{number}"]) for number in range(len(bounds))] for row in found]


def test_columns_of_types_have_the_meaning_of_the_index(session: SparkSession, tmp_path: Path) -> None:
    table = table_of(ROWS, seed=20261127)
    events = events_of(table)
    patterns = [*patterns_on(events, PATTERNS, seed=1), {"n": [{"numeric": [">", -(10**400)]}]}, {"f": [{"numeric": ["<", 10**400]}]}]
    parsed = parsed_of(patterns)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50)
    rows = session.read.schema(spark_schema(SCHEMA)).parquet(str(tmp_path / "rows.parquet"))
    conditions = typed_conditions(parsed, {field.name: (sf.col(f"`{field.name}`"), field.type) for field in SCHEMA})
    expected = matched_by_index(parsed, events)
    exact = {number for number, bounds in enumerate(conditions) if bounds.is_exact}
    lower_of_others = [bounds.lower if not bounds.is_exact else False for bounds in conditions]
    found = matched_by_spark(rows, [bounds.upper for bounds in conditions], lower_of_others)
    for number, ((upper, lower), index) in enumerate(zip(found, expected, strict=True)):
        lower |= upper & exact
        assert lower <= index <= upper, explained(patterns, events[number], lower, index, upper)
    inexact = [pattern for pattern, bounds in zip(patterns, conditions, strict=True) if not bounds.is_exact]
    assert all(needs_the_driver(pattern) for pattern in inexact), [pattern for pattern in inexact if not needs_the_driver(pattern)]
    assert len(inexact) < PATTERNS / 3
    assert sum(map(len, expected)) > PATTERNS * ROWS / 20


def needs_the_driver(pattern: Any) -> bool:
    """Return whether a pattern has an operator or a column that Spark evaluates for some values only."""
    text = msgspec.json.encode(pattern).decode()
    return any(f'"{name}":' in text for name in (*NEVER_EXACT, "equals-ignore-case")) or "2001:db8::/32" in text


def explained(patterns: Sequence[Any], event: bytes, lower: set[int], index: set[int], upper: set[int]) -> str:
    wrong = sorted((lower - index) | (index - upper))
    return f"{event.decode()} and {[patterns[number] for number in wrong]}"


def test_comparisons_are_pushed_to_parquet(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of(10, seed=1)
    table = table.append_column("position", table.column("number"))
    pq.write_table(table, tmp_path / "part-0.parquet")
    patterns: list[Any] = [
        {"text": ["x"], "n": [{"numeric": [">", 1, "<=", 9]}]},
        {"o": {"in": {"b": [{"prefix": "x"}]}}, "price": ["12.00"], "day": ["2026-11-21", "0001-01-01"]},
        {"flag": [True], "f": [0, 2.5], "Text": [{"anything-but": ["y"]}]},
    ]
    watches = [WatchTrigger(upstream=Memory("rows"), match=pattern) for pattern in patterns]
    rows = watch_rows(spark, tmp_path, table.schema, HistoryColumns("number", None, None), watches).rows
    rows.sparkSession.conf.set("spark.sql.maxMetadataStringLength", "10000")
    rows.explain()
    plan = capsys.readouterr().out
    pushed = plan[plan.index("PushedFilters: [") :]
    for one in ("EqualTo(text,x)", "GreaterThanOrEqual(n,2)", "LessThanOrEqual(n,9)", "StringStartsWith(o.in.b,x)"):
        assert one in pushed, pushed
    read = plan[plan.index("ReadSchema") :]
    assert "in:struct<b:string>" in read
    assert not any(f"{name}:" in read for name in ("tags", "legs", "at", "number"))


@pytest.mark.parametrize("leaf", [[0], [{"numeric": [">=", 0]}], [{"numeric": ["<=", -0.0]}], [{"numeric": ["=", 0]}]])
def test_both_zeros_of_parquet_match_zero(session: SparkSession, tmp_path: Path, leaf: list[Any]) -> None:
    """Row groups with one zero only must not be skipped by a comparison with the other one."""
    table = pa.table({"number": range(20), "f": [0.0] * 10 + [-0.0] * 10})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=10)
    rows = session.read.schema(spark_schema(table.schema)).parquet(str(tmp_path / "rows.parquet"))
    (bounds,) = typed_conditions(parsed_of([{"f": leaf}]), {"f": (sf.col("f"), pa.float64())})
    assert rows.where(column_of(bounds.upper)).count() == 20
    assert not isinstance(bounds.upper, bool)
    assert rows.where(bounds.upper).count() == 20


HOSTILE = (
    b"not json",
    b'{"text": "x"} trailing',
    b'{"text": "y", "text": "x"}',
    b'{"text": "x", "text": "y"}',
    b' {"\\u0074ext" : "\\u0078"} ',
    b"{'text': 'x'}",
    b'[{"text": "x"}]',
    b'"text"',
    b"null",
    b"",
    b'{"n": 9007199254740993, "f": 1E0, "text": "\\ud83d\\ude00"}',
    b'{"n": 123456789012345678901234567890, "f": NaN}',
    b'{"n": 01}',
    b'{"f": -0, "n": 1.0}',
    b'{"o": "{\\"a\\":\\"x\\"}"}',
    b'{"o": {"a": "x", "a": {"b": 1}}}',
    b'{"o": [[{"a": "x"}], {"in": [{"b": "x"}]}]}',
    b'{"o": {"in": {"b": "x"}, "a": null}, "tags": "x", "text": ["x", ["X"]]}',
    b'{"text": "' + b"x" * 100_000 + b'"}',
    b'{"o": ' + b"[" * 190 + b"]" * 190 + b"}",
    b'{"o": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    b'{"n": ' + b"1" * 4_000 + b"}",
)


def test_columns_of_json_text_are_true_for_every_event_that_matches(session: SparkSession) -> None:
    events = [*events_of(table_of(ROWS, seed=5)), *HOSTILE]
    check_json(session, [*patterns_on(events[:ROWS], PATTERNS, seed=6), {"n": [int("1" * 4_000)]}], events, most_of=3)


def test_columns_of_json_text_pass_the_corpus(session: SparkSession) -> None:
    objects = [case for case in cases() if isinstance(case.event, dict)]
    patterns = {msgspec.json.encode(case.pattern): case.pattern for case in objects}
    check_json(session, list(patterns.values()), list({msgspec.json.encode(case.event): None for case in objects}), most_of=3)


def check_json(session: SparkSession, patterns: Sequence[Any], events: Sequence[bytes], most_of: int) -> None:
    """Check that conditions miss no match, and that they pass at most `most_of` times as many."""
    parsed = parsed_of(patterns)
    expected = matched_by_index(parsed, events)
    texts = session.createDataFrame([(number, event.decode()) for number, event in enumerate(events)], "number long, event string")
    rows, conditions = json_conditions(texts, sf.col("event"), parsed)
    found = [upper for (upper,) in matched_by_spark(rows, conditions)]
    for event, index, upper in zip(events, expected, found, strict=True):
        assert index <= upper, (event, [patterns[number] for number in index - upper])
    assert sum(map(len, found)) < most_of * sum(map(len, expected))
