"""Tables: a folder of Parquet files, one for each batch of a pipeline.

The file's name says which batch it holds, and it comes into being by one rename. So a batch is there wholly or not at all; one that is
there is kept and not run again; and every reader of Parquet (`spark.read.parquet(table)`, pandas, DuckDB) reads the table without
options, and without a partition column that nobody asked for.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch that a table has: the attempt that made it, and how many rows."""

    attempt: int
    rows: int


class TableSink:
    """Writes each (pipeline, query, batch) once. `tables` is the folder that has a folder for each table."""

    def __init__(self, tables: Path, query_id: str) -> None:
        self._tables = tables
        self._query = query_id[:8]

    def stored(self, table: str, pipeline: str, batch: int) -> Stored | None:
        """Return the batch if the table has it."""
        for path in (self._tables / table).glob(f"{self._stem(pipeline, batch)}-*.parquet"):
            return Stored(int(path.stem.rsplit("-", 1)[1]), pq.read_metadata(path).num_rows)
        return None

    def store(self, table: str, pipeline: str, batch: int, attempt: int, rows: DataFrame) -> int:
        """Write the rows durably and then show them to readers; return how many they are."""
        name = f"{self._stem(pipeline, batch)}-{attempt}.parquet"
        staging = self._tables / ".staging" / table / name
        rows.coalesce(1).write.mode("overwrite").parquet(staging.absolute().as_uri())
        (part,) = staging.glob("part-*.parquet")
        count: int = pq.read_metadata(part).num_rows
        folder = self._tables / table
        folder.mkdir(parents=True, exist_ok=True)
        _sync(part)
        part.rename(folder / name)
        _sync(folder)
        shutil.rmtree(staging)
        return count

    def _stem(self, pipeline: str, batch: int) -> str:
        return f"{self._query}-{batch:09d}-{pipeline}"


def _sync(path: Path) -> None:
    """Bring a file's or a folder's contents to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
