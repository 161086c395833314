"""Histories that Spark reads: folders of Parquet or of JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.core.matching.paths import JsonPath
from headrace.errors import UsageError
from headrace.pipeline.spark.errors import summary
from headrace.replay.inputs.history import History
from headrace.replay.inputs.parquet import ParquetParts, hint, parquet_parts
from headrace.replay.options import Fields, Format, HistoryColumns
from headrace.replay.schemas import KEY, LEADER, OCCURRED, ORDERING_KEY

_SUFFIXES: Final[dict[str, Format]] = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".ndjson": "json"}
_CHECKED_LINES: Final = 1_000
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HistoryFiles:
    """The files of a history, inspected before a session is opened. `parts` is set for Parquet."""

    paths: Sequence[Path]
    bytes: int
    parts: ParquetParts | None


def find_files(paths: Sequence[Path], fields: Fields, cores: int) -> HistoryFiles:
    """Inspect the files of a history.

    Raises `UsageError` if there are none, if their formats differ, or if Parquet files lack a given field.
    """
    files = files_of(paths)
    if any(_kind(file) == "json" for file, _ in files):
        return HistoryFiles(paths, sum(file.stat().st_size for file, _ in files), None)
    parts = parquet_parts(files, fields, cores)
    return HistoryFiles(paths, parts.bytes, parts)


def read_files(spark: SparkSession, files: HistoryFiles, fields: Fields) -> tuple[History, HistoryColumns]:
    """Return the history in these files. Raises `UsageError` if they cannot be read, or if JSON lacks a given field."""
    if files.parts is not None:
        return History(files.parts, files.bytes, fields.id, keyed=fields.key is not None), HistoryColumns(fields.id, fields.occurred, None)
    try:
        lines = spark.read.option("recursiveFileLookup", "true").text([_uri(path) for path in files.paths])
        return _json(lines, fields, files.bytes)
    except AnalysisException as error:
        raise UsageError(f"The history cannot be read: {summary(error)}") from error


def files_of(paths: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return all files, each with its root folder. Raises `UsageError` if there are none, or if their formats differ."""
    files = [entry for path in paths for entry in _files(path)]
    if len({_kind(file) for file, _ in files}) > 1:
        raise UsageError("There is both Parquet and JSON among the files.", hint="Replay them one after the other, or convert some.")
    return files


def slim_columns(id: Column, follows: Column | None, occurred: Column | None) -> list[Column]:
    """Return the columns of SLIM."""
    return [
        id.alias(KEY),
        (sf.lit(None).cast("string") if follows is None else follows).alias(LEADER),
        (sf.lit(None).cast("bigint") if occurred is None else occurred.cast("bigint")).alias(OCCURRED),
    ]


def _files(path: Path) -> list[tuple[Path, Path]]:
    if not path.exists():
        raise UsageError(f"There is no {path}.", hint="Give files or folders of Parquet (.parquet) or JSON lines (.jsonl, .json, .ndjson).")
    if path.is_file():
        return [(path, path.parent)]
    entries = sorted(Path(folder) / name for folder, _, names in os.walk(path, onerror=_unreadable) for name in names)
    visible = [(file, path) for file in entries if not _hidden(file, path)]
    if not visible:
        raise UsageError(f"The folder {path} has no files.", hint="Hidden ones, whose names begin with a dot or _, are not read.")
    return visible


def _unreadable(error: OSError) -> None:
    raise UsageError(f"The folder {error.filename} cannot be read: {error.strerror}.", hint="May you read it?") from error


def _hidden(file: Path, under: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.relative_to(under).parts)


def _kind(file: Path) -> Format:
    kind = _SUFFIXES.get(next((suffix for suffix in reversed(file.suffixes) if suffix not in {".gz", ".zst", ".bz2"}), ""))
    if kind is None:
        raise UsageError(f"{file} is neither Parquet nor JSON lines, by its name.", hint=f"Known are: {', '.join(_SUFFIXES)}.")
    return kind


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


def _non_empty(column: Column) -> Column:
    return sf.when(column != "", column)


def _micros(text: Column) -> Column:
    seconds = text.try_cast("double")
    return sf.coalesce((seconds * _MICROS).cast("bigint"), sf.unix_micros(text.try_cast("timestamp")))


def _json(lines: DataFrame, fields: Fields, size: int) -> tuple[History, HistoryColumns]:
    lines = lines.where(sf.length(sf.trim("value")) > 0)
    paths = {option: path if path.startswith("$") else f"$['{path}']" for option, path in fields.paths().items()}
    _check_json(lines, fields)
    columns = {option: _non_empty(sf.get_json_object("value", path)) for option, path in paths.items()}
    occurred = _micros(columns["occurred"]) if "occurred" in columns else None
    selected = [
        columns["id"].alias("id"),
        columns.get("follows", sf.lit(None).cast("string")).alias("follows"),
        columns.get("subject", sf.lit(None).cast("string")).alias("subject"),
        (sf.lit(None).cast("timestamp") if occurred is None else sf.timestamp_micros(occurred)).alias("occurred"),
        sf.col("value").alias("payload"),
    ]
    extra = [columns["key"].alias(ORDERING_KEY)] if "key" in columns else []
    events = lines.select(*selected, *slim_columns(columns["id"], columns.get("follows"), occurred), *extra)
    return History(events, size, "id", keyed=bool(extra)), HistoryColumns("id", "occurred", "payload")


def _check_json(lines: DataFrame, fields: Fields) -> None:
    """Raise `UsageError` if a field is in none of the first lines."""
    values = [value for row in lines.limit(_CHECKED_LINES).collect() if (value := _value(row["value"])) is not None]
    if not values:
        raise UsageError("The files have no JSON object among their first lines.", hint="JSON lines have one object in each line.")
    known = list(dict.fromkeys(name for value in values for name in value))
    for option, path in fields.paths().items():
        json_path = JsonPath.parse(path) if path.startswith("$") else None
        if not any(path in value if json_path is None else json_path.find(value) is not None for value in values):
            raise UsageError(
                f"--{option}: none of the first {len(values):,} events has {path!r}. They have: {', '.join(known)}.",
                hint=hint(option, known),
            )


def _value(line: str) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
