"""Histories as Spark reads them: folders of Parquet or of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import NumericType, StringType, TimestampNTZType, TimestampType

from headrace.core.paths import JsonPath
from headrace.errors import UsageError
from headrace.pipeline.failures import summary
from headrace.pipeline.replay.asked import Fields, Format, Names
from headrace.pipeline.replay.ordering import History
from headrace.pipeline.replay.schemas import ID, KEY, LEADER, OCCURRED

_SUFFIXES: Final[dict[str, Format]] = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".ndjson": "json"}
_LOOKED_AT: Final = 1_000
_MICROS: Final = 1_000_000


def read_paths(spark: SparkSession, paths: Sequence[Path], fields: Fields) -> tuple[History, Names]:
    """Return the history that files and folders hold. Raises `UsageError` where they cannot be read, or lack a field that was named."""
    files = files_of(paths)
    kinds = {_kind(file) for file in files}
    size = sum(file.stat().st_size for file in files)
    try:
        if kinds == {"parquet"}:
            return _parquet(spark.read.parquet(*map(_uri, paths)), fields, 2 * size)
        return _json(spark.read.option("recursiveFileLookup", "true").text([_uri(path) for path in paths]), fields, size)
    except AnalysisException as error:
        raise UsageError(f"The history cannot be read: {summary(error)}", hint="Do all the files have the same columns?") from error


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return all the files. Raises `UsageError` where there are none, or not all of one kind."""
    files = [file for path in paths for file in _files(path)]
    if len({_kind(file) for file in files}) > 1:
        raise UsageError("There is both Parquet and JSON among the files.", hint="Replay them one after the other, or convert some.")
    return files


def slim_columns(id: Column, follows: Column | None, occurred: Column | None, leader: Column | None = None) -> list[Column]:
    """Return SLIM. Keys are digests of `id` and of `follows`; `leader` says what to take for the digest where it is not `follows`."""
    led = follows if leader is None else leader
    return [
        *_digest(id, KEY),
        *_digest(sf.lit(None).cast("string") if led is None else led, LEADER),
        (sf.lit(None).cast("bigint") if occurred is None else occurred.cast("bigint")).alias(OCCURRED),
        id.cast("string").alias(ID),
    ]


def _digest(text: Column, names: tuple[str, str]) -> list[Column]:
    return [sf.when(text.isNotNull(), sf.xxhash64(sf.lit(half), text)).alias(name) for half, name in enumerate(names)]


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise UsageError(f"There is no {path}.", hint="Give files or folders of Parquet (.parquet) or JSON lines (.jsonl, .json, .ndjson).")
    found = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file() and not _hidden(file, path)]
    if not found:
        raise UsageError(f"The folder {path} has no files.")
    return found


def _hidden(file: Path, under: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(under).parts)


def _kind(file: Path) -> Format:
    kind = _SUFFIXES.get(next((suffix for suffix in reversed(file.suffixes) if suffix not in {".gz", ".zst", ".bz2"}), ""))
    if kind is None:
        raise UsageError(f"{file} is neither Parquet nor JSON lines, by its name.", hint=f"Known are: {', '.join(_SUFFIXES)}.")
    return kind


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


def _parquet(rows: DataFrame, fields: Fields, size: int) -> tuple[History, Names]:
    columns = {option: _column(rows, option, place) for option, place in fields.asked().items()}
    occurred = columns.get("occurred")
    given = [sf.col(f"`{name}`") for name in rows.columns if not name.startswith("_")]
    slim = slim_columns(_name(columns["id"]), _name_or_none(columns.get("follows")), None if occurred is None else _moment(rows, occurred))
    events = rows.select(*given, *slim)
    key = None
    if "key" in columns:
        key = "_ordering_key"
        events = rows.select(*given, *slim, columns["key"].alias(key))
    return History(events, size, key), Names(fields.id, fields.occurred, None)


def _column(rows: DataFrame, option: str, place: str) -> Column:
    path = ".".join(f"`{step}`" for step in JsonPath.parse(place).steps) if place.startswith("$") else f"`{place}`"
    column = sf.col(path)
    try:
        rows.select(column)
    except AnalysisException as error:
        raise UsageError(
            f"--{option}: the history has no column {place!r}. It has: {', '.join(rows.columns)}.", hint=_hint(option, rows.columns)
        ) from error
    return column


def _name(column: Column) -> Column:
    text = column.cast("string")
    return sf.when(text != "", text)


def _name_or_none(column: Column | None) -> Column | None:
    return None if column is None else _name(column)


def _moment(rows: DataFrame, column: Column) -> Column:
    """Return a moment in µs: of a timestamp, of seconds since 1970, or of a text as watches read it."""
    kind = rows.select(column).schema[0].dataType
    if isinstance(kind, TimestampType):
        return sf.unix_micros(column)
    if isinstance(kind, NumericType):
        return (column.cast("double") * _MICROS).cast("bigint")
    if isinstance(kind, TimestampNTZType | StringType):
        return _micros(column.cast("string"))
    raise UsageError(f"--occurred: a column of type {kind.simpleString()} is no moment.", hint="Name one of timestamps, seconds or texts.")


def _micros(text: Column) -> Column:
    seconds = text.try_cast("double")
    return sf.coalesce((seconds * _MICROS).cast("bigint"), sf.unix_micros(text.try_cast("timestamp")))


def _json(lines: DataFrame, fields: Fields, size: int) -> tuple[History, Names]:
    lines = lines.where(sf.length(sf.trim("value")) > 0)
    places = {option: place if place.startswith("$") else f"$['{place}']" for option, place in fields.asked().items()}
    _check_json(lines, fields)
    found = {option: _name(sf.get_json_object("value", place)) for option, place in places.items()}
    occurred = _micros(found["occurred"]) if "occurred" in found else None
    given = [
        found["id"].alias("id"),
        found.get("follows", sf.lit(None).cast("string")).alias("follows"),
        found.get("subject", sf.lit(None).cast("string")).alias("subject"),
        (sf.lit(None).cast("timestamp") if occurred is None else sf.timestamp_micros(occurred)).alias("occurred"),
        sf.col("value").alias("payload"),
    ]
    key = "_ordering_key" if "key" in found else None
    extra = [found["key"].alias(key)] if key is not None else []
    events = lines.select(*given, *slim_columns(found["id"], found.get("follows"), occurred), *extra)
    return History(events, size, key), Names("id", "occurred", "payload")


def _check_json(lines: DataFrame, fields: Fields) -> None:
    """Raise `UsageError` when a field is in none of the first lines."""
    values = [value for row in lines.limit(_LOOKED_AT).collect() if (value := _value(row["value"])) is not None]
    if not values:
        raise UsageError("The files have no JSON object among their first lines.", hint="JSON lines have one object in each line.")
    known = list(dict.fromkeys(name for value in values for name in value))
    for option, place in fields.asked().items():
        path = JsonPath.parse(place) if place.startswith("$") else None
        if not any(place in value if path is None else path.find(value) is not None for value in values):
            raise UsageError(
                f"--{option}: none of the first {len(values):,} events has {place!r}. They have: {', '.join(known)}.",
                hint=_hint(option, known),
            )


def _value(line: str) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _hint(option: str, known: Iterable[str]) -> str:
    example = next(iter(known), "name")
    return f"Name one of these, for example --{option} {example}, or let a watch say it: --project project.py --watch NAME."
