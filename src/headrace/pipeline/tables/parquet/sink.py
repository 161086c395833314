"""The sink of Parquet tables: a folder of files. Each run of a pipeline adds one, and compactions merge them.

A file's name depends on the run alone, and its metadata identifies the run and its events. It is created once,
atomically. The index of merged runs has the names of files that were merged. So a run's rows are stored completely or
not at all, a stored run is not stored again, and every reader of Parquet (`spark.read.parquet(table)`, pandas, DuckDB)
reads the table without options, and without a partition column that was not requested.
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
from headrace.pipeline.runs.identity import RUN_KEY, Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.column_types import check_names, widened
from headrace.pipeline.tables.compaction.table_lock import writer_lock
from headrace.pipeline.tables.parquet.run_index import RunIndex
from headrace.pipeline.tables.parquet.schema import TableSchemas
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS, Rows, computed
from headrace.pipeline.tables.sink import ICEBERG_MARK, new_staging, no_fence
from headrace.pipeline.tables.writers import TableWriters


class ParquetSink:
    """Writes the rows of each run of a scope once. `tables` is the folder with one folder for each table."""

    def __init__(self, tables: Path, origin: Origin, fence: Callable[[], None] = no_fence) -> None:
        self._tables = tables
        self._origin = origin
        self._writers = TableWriters(tables)
        self._batches = TableBatches(tables, origin)
        self._fence = fence
        self._schemas = TableSchemas(tables)
        self._index = RunIndex(tables)
        self._staging = new_staging(tables, self._origin)

    def stored(self, key: RunKey, digest: str) -> StoredRun | None:
        """Return the run's rows if the table has them."""
        self._writers.check(key.table, self._origin.writer)
        if not (self._tables / key.table).exists():
            return None
        with writer_lock(self._tables, key.table):
            return self._stored(key, digest)

    def shut_out(self, keys: Iterable[RunKey]) -> None:
        """Do nothing: `new_staging` has removed the drafts of earlier drivers, which they would move into the table."""

    def store(self, key: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Write the rows that were computed from `events` events durably, then make them visible; return their number."""
        check_names(rows.schema)
        folder = self._tables / key.table
        if (folder / "_delta_log").exists():
            raise PipelineError(f"{folder} holds a Delta table.", hint="Say format='delta' at the pipeline, or move it away.")
        if (folder / ICEBERG_MARK).exists():
            raise PipelineError(f"{folder} holds an Iceberg table.", hint="Say format='iceberg' at the pipeline, or move it away.")
        staging = self._staging / key.table / self._path(key).name
        try:
            return self.append(key, attempt, computed(rows, staging, small=events <= MAX_DRIVER_EVENTS))
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def append(self, key: RunKey, attempt: Attempt, rows: Rows) -> int:
        """Write computed rows durably, then make them visible; return their number. Raises as `store`."""
        path = self._path(key)
        staging = self._staging / key.table / path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with writer_lock(self._tables, key.table):
            try:
                self._writers.register(key.table, self._origin.writer)
                draft = self._draft(key, attempt, rows, staging)
                sync(draft)
                self._batches.reserve(key.table, key.batch)
                self._fence()
                created = self._index.find(key.table, path.name) is None and create(path, draft)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            self._make_durable(path.parent)
            if not created:  # another driver was first
                stored = self._stored(key, attempt.digest)
                return stored.rows if stored is not None else 0
        return rows.num_rows

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        """Return a batch after `batch`, up to `until`, of which the table has a run of the pipeline, or None."""
        if not (self._tables / table).exists():
            return None
        with writer_lock(self._tables, table):
            paths = ((number, self._path(RunKey(table, pipeline, number))) for number in range(batch + 1, until + 1))
            return next((number for number, path in paths if path.exists() or self._index.find(table, path.name)), None)

    def _stored(self, key: RunKey, digest: str) -> StoredRun | None:
        """Return the run's rows if the table has them. The caller holds the table's lock."""
        path = self._path(key)
        where = f"The file {path}"
        if path.exists():
            try:
                footer = pq.read_metadata(path)
            except (OSError, pa.ArrowInvalid) as error:
                raise RunConflict(
                    f"The file {path} cannot be read: {error}", hint="Restore it from a backup, or move it out of the table."
                ) from error
            rows, metadata = footer.num_rows, (footer.metadata or {}).get(RUN_KEY.encode(), b"").decode()
        elif merged := self._index.find(key.table, path.name):
            rows, metadata = merged.rows, merged.run
            where += ", which was merged,"
        else:
            return None
        self._make_durable(path.parent)  # the driver that created it may have died before it synced
        return StoredRun(self._origin.check(key, digest, metadata, where), rows)

    def _make_durable(self, folder: Path) -> None:
        """Sync the names of the table's files to the disk. The run is reported as stored after this, and must survive a power loss."""
        sync_folder(folder)
        sync_folder(self._tables)

    def _draft(self, key: RunKey, attempt: Attempt, source: Rows, staging: Path) -> Path:
        """Write the rows with the types of their table, to which new columns are added."""
        metadata = {RUN_KEY: self._origin.metadata(key, attempt)}
        draft = staging / "draft.parquet"
        while True:
            known = self._schemas.read(key.table)
            schema = widened(known.schema, source.schema, key.table)
            source.write(draft, schema, key.table, metadata)
            if known.version >= 0 and schema.equals(known.schema):
                return draft
            if self._schemas.add(key.table, known.version + 1, schema, staging / "schema.parquet"):
                return draft

    def _path(self, key: RunKey) -> Path:
        part = int(key.part) if key.part.isdecimal() else 0  # so that names ascend with positions
        name = f"{key.batch:09d}-{part:05d}-{self._origin.key(key.pipeline, key.batch, key.part)}.parquet"
        return self._tables / key.table / name
