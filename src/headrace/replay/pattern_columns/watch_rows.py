"""The rows of an ordered history that match watches, as a Spark query without Python on the executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from headrace.core.matching.envelope import Envelope
from headrace.core.matching.paths import METADATA, METADATA_FIELD
from headrace.core.matching.patterns.parser import EventPattern
from headrace.replay.options import HistoryColumns
from headrace.replay.pattern_columns.bounds import ALWAYS, Bounds, Condition, any_of, column_of, either
from headrace.replay.pattern_columns.column_types import spark_type
from headrace.replay.pattern_columns.envelopes import lacks_a_field, surely_has_fields
from headrace.replay.pattern_columns.json_texts import matches_pattern, with_objects
from headrace.replay.pattern_columns.nested_values import Columns, matches_alternative
from headrace.replay.pattern_columns.work_limits import surely_within_limit
from headrace.replay.schemas import MARK, POSITION
from headrace.triggers.watch import WatchTrigger

MATCHED: Final = "headrace:matched"
"""The numbers of the watches that a row matches. For a watch that it may match, -1 minus the number."""
WITHIN_LIMIT: Final = "headrace:within-limit"
_VALID: Final = "headrace:valid-"
_ROW: Final = "headrace:row"
_CONF: Final = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
    # One method for all watches would be too long for the JVM to compile, and take tens of times as long.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}


@dataclass(frozen=True, slots=True)
class WatchRows:
    """A query of the rows that match: `POSITION`, `MATCHED`, `WITHIN_LIMIT` and a column for each envelope; `POSITION` only if undecided.

    `envelopes` has the number of each watch's envelope. The watches in `lacking` cannot fire, because no row has their fields.
    """

    rows: DataFrame
    envelopes: Sequence[int]
    is_undecided: bool
    lacking: frozenset[int] = frozenset()

    @staticmethod
    def valid(envelope: int) -> str:
        """Return the name of the column of the rows that surely have the fields of an envelope, or surely lack one."""
        return f"{_VALID}{envelope}"


def pattern_of(watch: WatchTrigger) -> EventPattern | None:
    """Return the pattern of a watch on events of a history, which have no metadata."""
    pattern = watch.pattern
    if pattern is not None and pattern.has_field(METADATA):
        return pattern.with_field_renamed(METADATA, METADATA_FIELD)
    return pattern


def watch_rows(spark: SparkSession, folder: Path, schema: pa.Schema, names: HistoryColumns, watches: Sequence[WatchTrigger]) -> WatchRows:
    """Return the rows of the ordered history in a folder that match some watch, in any order."""
    session = spark_session(spark)
    patterns = [pattern_of(watch) for watch in watches]
    uri = folder.absolute().as_uri()
    events = session.read.schema(spark_schema(schema)).parquet(uri)
    if names.raw is not None:
        return WatchRows(_json_rows(events, names.raw, patterns), [0] * len(watches), is_undecided=True)
    columns = {field.name: (_column(field.name), field.type) for field in schema if field.name not in {POSITION, MARK}}
    return _typed_rows(events, columns, patterns, [watch.envelope for watch in watches])


def spark_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application with the configuration that the Columns need."""
    session = spark.newSession()
    for name, value in _CONF.items():
        session.conf.set(name, value)
    return session


def spark_schema(schema: pa.Schema) -> st.StructType:
    """Return the columns that Spark can read."""
    fields = [(field.name, spark_type(field.type)) for field in schema]
    return st.StructType([st.StructField(name, its_type) for name, its_type in fields if its_type is not None])


def typed_conditions(patterns: Sequence[EventPattern | None], columns: Columns) -> list[Bounds]:
    """Return the condition of each pattern on typed columns. No pattern matches every row."""
    return [
        ALWAYS if pattern is None else either(*(matches_alternative(fields, columns) for fields in pattern.alternatives))
        for pattern in patterns
    ]


def json_conditions(events: DataFrame, text: Column, patterns: Sequence[EventPattern | None]) -> tuple[DataFrame, list[Condition]]:
    """Return the events with parsed objects, and a condition for each pattern that is true for every event that matches it."""
    events, parsed = with_objects(events, text, [pattern for pattern in patterns if pattern is not None])
    return events, [True if pattern is None else matches_pattern(pattern, parsed) for pattern in patterns]


def _typed_rows(events: DataFrame, columns: Columns, patterns: Sequence[EventPattern | None], envelopes: Sequence[Envelope]) -> WatchRows:
    conditions = typed_conditions(patterns, columns)
    distinct = list(dict.fromkeys(envelopes))
    matched = sf.array_compact(sf.array(*(_number(number, bounds) for number, bounds in enumerate(conditions))))
    rows = _where(events, any_of(bounds.upper for bounds in conditions)).select(
        POSITION,
        matched.alias(MATCHED),
        column_of(surely_within_limit([pattern for pattern in patterns if pattern is not None], columns)).alias(WITHIN_LIMIT),
        *(_is_decided(envelope, columns).alias(WatchRows.valid(number)) for number, envelope in enumerate(distinct)),
    )
    lacking = frozenset(number for number, envelope in enumerate(envelopes) if lacks_a_field(envelope, columns))
    return WatchRows(rows, [distinct.index(envelope) for envelope in envelopes], is_undecided=False, lacking=lacking)


def _is_decided(envelope: Envelope, columns: Columns) -> Column:
    return sf.lit(True) if lacks_a_field(envelope, columns) else column_of(surely_has_fields(envelope, columns))


def _json_rows(events: DataFrame, raw: str, patterns: Sequence[EventPattern | None]) -> DataFrame:
    if None in patterns:
        return events.select(POSITION)
    events, conditions = json_conditions(events, _column(raw), patterns)
    # Spark would parse the text again for each condition. It does not move a filter below a column that numbers the rows.
    numbered = events.withColumn(_ROW, sf.monotonically_increasing_id())
    return _where(numbered, any_of([*conditions, sf.col(f"`{_ROW}`") < 0])).select(POSITION)


def _where(events: DataFrame, condition: Condition) -> DataFrame:
    return events.where(sf.lit(condition) if isinstance(condition, bool) else condition)


def _number(number: int, bounds: Bounds) -> Column:
    """Return the entry of a watch in `MATCHED`, or null if the row does not match it."""
    if bounds.is_exact:
        return sf.when(column_of(bounds.upper), sf.lit(number))
    decided = sf.when(column_of(bounds.lower), sf.lit(number)).otherwise(sf.lit(-1 - number))
    return sf.when(column_of(bounds.upper), decided)


def _column(name: str) -> Column:
    return sf.col(f"`{name.replace('`', '``')}`")
