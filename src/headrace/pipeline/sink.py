"""Tables: a folder of Parquet files, one for each run of a pipeline.

The file's name says which batch and run it holds, and it comes into being by one rename. So a run's rows are there wholly or not at all;
one that is there is kept and not run again; and every reader of Parquet (`spark.read.parquet(table)`, pandas, DuckDB) reads the table
without options, and without a partition column that nobody asked for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.pipeline.ordering_file import sync_folder
from headrace.project import TableFormat

SMALL: Final = 100_000
"""Up to so many events, the rows come to the driver and are written here: Spark's own way of writing takes twice the processor time."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A run's rows that a table has: the attempt that made them, and how many."""

    attempt: int
    rows: int


@dataclass(frozen=True, slots=True)
class Place:
    """Which run the rows are of."""

    table: str
    pipeline: str
    batch: int
    part: str = ""


class TableSink(Protocol):
    """Where the rows of each run go, once."""

    def stored(self, place: Place) -> Stored | None:
        """Return the run's rows if the table has them."""

    def store(self, place: Place, attempt: int, rows: DataFrame, events: int) -> int:
        """Write the rows that came of so many events durably, then show them to readers all at once; return how many they are."""


def open_sinks(
    formats: Iterable[TableFormat], tables: Path, query_id: str, fence: Callable[[], None] = lambda: None
) -> Mapping[TableFormat, TableSink]:
    """Return a sink for each format, which calls `fence` before it shows rows to readers.

    Raises:
        PipelineError: A package that a format needs is not installed.
    """
    sinks: dict[TableFormat, TableSink] = {}
    for each in formats:
        if each == "parquet":
            sinks[each] = ParquetSink(tables, query_id, fence)
            continue
        try:
            from headrace.pipeline.delta_sink import DeltaSink
        except ModuleNotFoundError as error:
            raise PipelineError(
                "A pipeline writes a Delta table, and deltalake is missing.", hint="pip install 'headrace[delta]'"
            ) from error
        sinks[each] = DeltaSink(tables, query_id, fence)
    return sinks


class ParquetSink:
    """Writes the rows of each run of a query once. `tables` is the folder that has a folder for each table."""

    def __init__(self, tables: Path, query_id: str, fence: Callable[[], None] = lambda: None) -> None:
        self._tables = tables
        self._fence = fence
        self._query = query_id[:8]
        # A folder of its own: tasks of a driver that was killed may write for a while longer.
        self._staging = tables / ".staging" / f"{self._query}-{uuid4().hex[:8]}"
        for left in self._staging.parent.glob(f"{self._query}-*"):
            shutil.rmtree(left, ignore_errors=True)

    def stored(self, place: Place) -> Stored | None:
        """Return the run's rows if the table has them."""
        for path in (self._tables / place.table).glob(f"{self._stem(place)}-*.parquet"):
            return Stored(int(path.stem.rsplit("-", 1)[1]), pq.read_metadata(path).num_rows)
        return None

    def store(self, place: Place, attempt: int, rows: DataFrame, events: int) -> int:
        """Write the rows that came of so many events durably and then show them to readers; return how many they are."""
        folder = self._tables / place.table
        if (folder / "_delta_log").exists():
            raise PipelineError(f"{folder} holds a Delta table.", hint="Say format='delta' at the pipeline, or move it away.")
        name = f"{self._stem(place)}-{attempt}.parquet"
        staging = self._staging / place.table / name
        part = _written(rows, staging, small=events <= SMALL)
        count: int = pq.read_metadata(part).num_rows
        folder.mkdir(parents=True, exist_ok=True)
        sync(part)
        self._fence()
        part.rename(folder / name)
        sync_folder(folder)
        shutil.rmtree(staging)
        return count

    def _stem(self, place: Place) -> str:
        part = f".{place.part}" if place.part else ""
        return f"{self._query}-{place.batch:09d}{part}-{place.pipeline}"


def _written(rows: DataFrame, staging: Path, *, small: bool) -> Path:
    """Write the rows as one file under `staging`."""
    table = collected(rows) if small else None
    if table is None:
        rows.coalesce(1).write.mode("overwrite").parquet(staging.absolute().as_uri())
        parts = list(staging.glob("part-*.parquet"))
        if len(parts) != 1:
            raise PipelineError(
                f"The executors wrote rows to {staging}, and the driver does not see them there.",
                hint="Put --home on a volume that the driver and all executors have under this path.",
            )
        return parts[0]
    staging.mkdir(parents=True)
    path = staging / "part-0.parquet"
    pq.write_table(table, path)
    return path


def collected(rows: DataFrame) -> pa.Table | None:
    """Return the rows as Arrow; None where they have a type that only Spark can write, or refuse."""
    try:
        table = rows.toArrow()
    except PySparkTypeError:
        return None
    return None if any(pa.types.is_null(kind) for kind in table.schema.types) else table


def sync(path: Path) -> None:
    """Bring a file's contents to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
