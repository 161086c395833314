"""Tables: a folder of Parquet files, one for each run of a pipeline.

A file's name depends on the run alone, and its metadata says which run it is and of which events. It is created once, whole. So a run's
rows are there wholly or not at all; a run that is there is not made again; and every reader of Parquet (`spark.read.parquet(table)`,
pandas, DuckDB) reads the table without options, and without a partition column that was not requested.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from headrace.durable_files import create, sync, sync_folder
from headrace.errors import PipelineError, RunConflict
from headrace.pipeline.runs.identity import RUN_KEY, Attempt, Origin, RunKey, Stored
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.column_types import check_names, widened
from headrace.pipeline.tables.rows import SMALL, Rows, computed
from headrace.pipeline.tables.schema import TableSchemas
from headrace.pipeline.tables.sink import new_staging, no_fence
from headrace.pipeline.tables.writers import TableWriters


class ParquetSink:
    """Writes the rows of each run of a scope once. `tables` is the folder that has a folder for each table."""

    def __init__(self, tables: Path, origin: Origin, fence: Callable[[], None] = no_fence) -> None:
        self._tables = tables
        self._origin = origin
        self._writers = TableWriters(tables)
        self._batches = TableBatches(tables, origin)
        self._fence = fence
        self._schemas = TableSchemas(tables)
        self._staging = new_staging(tables, self._origin)

    def stored(self, place: RunKey, digest: str) -> Stored | None:
        """Return the run's rows if the table has them."""
        self._writers.check(place.table, self._origin.writer)
        path = self._path(place)
        if not path.exists():
            return None
        try:
            found = pq.read_metadata(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise RunConflict(
                f"The file {path} cannot be read: {error}", hint="Restore it from a backup, or move it out of the table."
            ) from error
        self._make_durable(path.parent)  # the driver that created it may have died before it did so
        metadata = (found.metadata or {}).get(RUN_KEY.encode(), b"").decode()
        return Stored(self._origin.check(place, digest, metadata, f"The file {path}"), found.num_rows)

    def shut_out(self, places: Iterable[RunKey]) -> None:
        """Do nothing: `new_staging` has removed the drafts of earlier drivers, which they would move into the table."""

    def store(self, place: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Write the rows that came of so many events durably and then show them to readers; return how many they are."""
        check_names(rows.schema)
        folder = self._tables / place.table
        if (folder / "_delta_log").exists():
            raise PipelineError(f"{folder} holds a Delta table.", hint="Say format='delta' at the pipeline, or move it away.")
        path = self._path(place)
        staging = self._staging / place.table / path.name
        try:
            source = computed(rows, staging, small=events <= SMALL)
            self._writers.register(place.table, self._origin.writer)
            draft = self._draft(place, attempt, source, staging)
            sync(draft)
            self._batches.reserve(place.table, place.batch)
            self._fence()
            created = create(path, draft)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self._make_durable(folder)
        if not created:  # another driver was first
            stored = self.stored(place, attempt.digest)
            return stored.rows if stored is not None else 0
        return source.num_rows

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        """Return a batch after `batch`, and up to `until`, of which the table has a run of the pipeline; None where it has none."""
        batches = range(batch + 1, until + 1)
        return next((number for number in batches if self._path(RunKey(table, pipeline, number)).exists()), None)

    def _make_durable(self, folder: Path) -> None:
        """Write the names of the table's files to the disk: a run is reported as stored after this, and must survive a power loss."""
        sync_folder(folder)
        sync_folder(self._tables)

    def _draft(self, place: RunKey, attempt: Attempt, source: Rows, staging: Path) -> Path:
        """Write the rows with the types of their table, which gets the columns that it has not."""
        metadata = {RUN_KEY: self._origin.metadata(place, attempt)}
        draft = staging / "draft.parquet"
        while True:
            known = self._schemas.read(place.table)
            schema = widened(known.schema, source.schema, place.table)
            source.write(draft, schema, place.table, metadata)
            if known.version >= 0 and schema.equals(known.schema):
                return draft
            if self._schemas.add(place.table, known.version + 1, schema, staging / "schema.parquet"):
                return draft

    def _path(self, place: RunKey) -> Path:
        part = int(place.part) if place.part.isdecimal() else 0  # so that names ascend with positions
        name = f"{place.batch:09d}-{part:05d}-{self._origin.key(place.pipeline, place.batch, place.part)}.parquet"
        return self._tables / place.table / name
