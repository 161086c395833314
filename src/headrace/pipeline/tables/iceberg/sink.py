"""Iceberg tables: each run is one commit, which appends its rows or replaces rows. Needs `headrace[iceberg]`, and no jar.

A property of the table has the newest runs of each pipeline. The commit of a run sets it, and requires that the table has not
changed since it was loaded. So a run that is executed again is not stored again. If two drivers store one run, one of them
fails and looks again. Readers of Iceberg (Spark, Trino, DuckDB, …) see all rows of a run or none.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Final
from urllib.parse import quote_plus

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame

from headrace.errors import PipelineError, TypeConflict
from headrace.pipeline.runs.identity import RUN_KEY, Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.column_types import check_declared, check_names, check_rows, fitting, widened
from headrace.pipeline.tables.iceberg.catalog import IcebergTables
from headrace.pipeline.tables.iceberg.errors import iceberg_errors
from headrace.pipeline.tables.iceberg.history import ROWS_KEY, changes_of, has_whole_history
from headrace.pipeline.tables.iceberg.replacement import Replacement
from headrace.pipeline.tables.iceberg.runs import PipelineRuns, StoredEntry
from headrace.pipeline.tables.iceberg.schemas import iceberg_schema, is_local, partition_columns, required, table_schema
from headrace.pipeline.tables.iceberg.transaction import OneAttempt, expire_old, removed_on_conflict, write_files
from headrace.pipeline.tables.partitions import check_folder_names, check_partition_columns, check_partitioning
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS, Rows, computed
from headrace.pipeline.tables.sink import new_staging, no_fence
from headrace.pipeline.tables.table_runs import Compute
from headrace.pipeline.tables.writers import TableWriters
from headrace.pipeline_declaration import TableOptions

COMMIT_ATTEMPTS: Final = 5
"""Attempts at a commit that conflicts with other commits to the table."""


class IcebergSink:
    """Stores the rows of each run of a scope once. `tables` is the folder with one folder for each table."""

    def __init__(
        self,
        tables: Path,
        origin: Origin,
        fence: Callable[[], None] = no_fence,
        options: Mapping[str, TableOptions] = MappingProxyType({}),
    ) -> None:
        self._tables = tables
        self._origin = origin
        self._writers = TableWriters(tables)
        self._batches = TableBatches(tables, origin)
        self._fence = fence
        self._options = options
        self._staging = new_staging(tables, self._origin)
        self._iceberg = IcebergTables(tables)
        self._loaded: dict[tuple[str, str], Table] = {}  # tables as the pipelines last loaded them, for the next runs

    def stored(self, key: RunKey, digest: str) -> StoredRun | None:
        """Return the run's rows if the table has them."""
        self._writers.check(key.table, self._origin.writer)
        table = self._iceberg.open(key.table)
        if table is None:
            return None
        self._loaded[key.table, key.pipeline] = table
        return self._stored(table, key, digest)

    def shut_out(self, keys: Iterable[RunKey]) -> None:
        """Commit a snapshot without changes to the tables of these runs, so that commits in flight fail."""
        for name in sorted({key.table for key in keys}):
            for number in range(1, COMMIT_ATTEMPTS + 1):
                table = self._iceberg.open(name)
                if table is None:
                    break  # no commit of rows is in flight
                transaction = OneAttempt(table)
                try:
                    with iceberg_errors(f"Older drivers were not shut out of the Iceberg table {name!r}"):
                        with transaction.update_snapshot().fast_append():
                            pass
                        transaction.commit_transaction()
                    break
                except CommitFailedException as error:
                    if number == COMMIT_ATTEMPTS:
                        raise _busy(name) from error

    def store(self, key: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Append the rows that were computed from `events` events in one durable commit; return their number."""
        check_names(rows.schema)
        with self._staged(key) as staging:
            source = computed(rows, staging, small=events <= MAX_DRIVER_EVENTS)

            def append(table: Table) -> int:
                known, added = table_schema(table.schema()), iceberg_schema(source.schema, key.table)
                what, options = _what(key.table), self._options_of(key.table)
                check_partitioning(what, options.partition_by, partition_columns(table))
                schema = fitting(known, added, what, key.table, required(table.schema()), evolve=options.evolve)
                transaction = OneAttempt(table)
                if schema != known:
                    with transaction.update_schema() as update:
                        update.union_by_name(schema)
                rows = _reader(source, schema, key.table, partition_columns(table) if is_local(table) else [])
                files = write_files(table.io, transaction.table_metadata, rows) if source.num_rows else []
                with removed_on_conflict(table.io, CommitFailedException, files):
                    self._commit(transaction, key, attempt, source.num_rows, files, [])
                return source.num_rows

            return self._store(key, attempt, source.schema, append)

    def replace(self, key: RunKey, attempt: Attempt, keys: pa.Table, columns: pa.Schema, compute: Compute) -> int:
        """Replace the table's rows of these keys by the result of `compute`, in one durable commit; return their number.

        `keys` has a row for each key, with the types of `columns`, the declared columns of the table. `compute` receives the table's
        present rows of the keys. It is called again if the commit conflicts with another one.

        Raises:
            TypeConflict: The declared columns do not fit the table, or the rows do not fit them. Nothing was written.
            PipelineError: A row has another key. Nothing was written.
            RunConflict: As for `stored`.
        """
        stored_columns = iceberg_schema(columns, key.table)

        def upsert(table: Table) -> int:
            if not table.spec().is_unpartitioned():
                raise _partitioned(key.table)
            added = check_declared(key.table, table_schema(table.schema()), stored_columns)
            replacement = Replacement(table, keys, key.table)
            rows = check_rows(compute(replacement.present(columns)), keys, columns, key.table)
            transaction = OneAttempt(table)
            if added:
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema(added))
            written: list[DataFile] = []
            with removed_on_conflict(table.io, CommitFailedException, written):
                for part in replacement.rewritten(rows, transaction.table_metadata.schema()):
                    written += write_files(table.io, transaction.table_metadata, part)
                self._commit(transaction, key, attempt, rows.num_rows, written, replacement.files)
            return int(rows.num_rows)

        return self._store(key, attempt, columns, upsert)

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        """Return a batch after `batch`, up to `until`, of which the table has a run of the pipeline, or None."""
        opened = self._iceberg.open(table)
        last = -1 if opened is None else PipelineRuns.of(opened.properties, self._property(pipeline)).last
        return last if batch < last <= until else None

    def _store(self, key: RunKey, attempt: Attempt, columns: pa.Schema, commit: Callable[[Table], int]) -> int:
        """Commit a run to the newest version of its table, which is created with these columns if it does not exist."""
        self._writers.register(key.table, self._origin.writer)
        for number in range(1, COMMIT_ATTEMPTS + 1):
            table = self._loaded.pop((key.table, key.pipeline), None) or self._iceberg.open(key.table)
            table = table or self._create(key.table, iceberg_schema(columns, key.table))
            self._iceberg.mark(key.table)  # the folder of tables may be newer than the catalog
            stored = self._stored(table, key, attempt.digest)
            if stored is not None:  # another driver was first
                return stored.rows
            try:
                rows = commit(table)
            except CommitFailedException as error:
                if number == COMMIT_ATTEMPTS:
                    raise _busy(key.table) from error
                continue
            self._iceberg.sync()
            return rows
        raise AssertionError("not reached")

    def _create(self, name: str, rows: pa.Schema) -> Table:
        partition_by = self._options_of(name).partition_by
        check_partition_columns(_what(name), partition_by, rows)
        return self._iceberg.create(name, widened(pa.schema([]), rows, name), partition_by)

    def _commit(
        self, transaction: OneAttempt, key: RunKey, attempt: Attempt, rows: int, added: Iterable[DataFile], removed: Iterable[DataFile]
    ) -> None:
        """Commit the files of a run to the table as it was loaded, with the run's identity. pyiceberg has synced the files."""
        name = self._property(key.pipeline)
        runs = PipelineRuns.of(transaction.table_metadata.properties, name)
        entry = StoredEntry(key.batch, key.part, attempt.digest, attempt.number, rows)
        self._batches.reserve(key.table, key.batch)
        self._fence()
        with iceberg_errors(f"The rows were not stored in the Iceberg table {key.table!r}"):
            update = transaction.update_snapshot({RUN_KEY: self._origin.metadata(key, attempt), ROWS_KEY: f"{rows}"})
            with update.overwrite() if removed else update.merge_append() as snapshot:
                for file in removed:
                    snapshot.delete_data_file(file)
                for file in added:
                    snapshot.append_data_file(file)
            transaction.set_properties({name: runs.with_run(entry).to_property()})
            expire_old(transaction)
            transaction.commit_transaction()

    def _stored(self, table: Table, key: RunKey, digest: str) -> StoredRun | None:
        runs = PipelineRuns.of(table.properties, self._property(key.pipeline))
        entry = runs.find(key.batch, key.part)
        if entry is None and not runs.has_all_of(key.batch):
            entry = self._of_history(table, key)
        if entry is None:
            return None
        metadata = self._origin.metadata(key, Attempt(entry.digest, entry.attempt))
        number = self._origin.check(key, digest, metadata, f"The Iceberg table {key.table!r}")
        self._iceberg.sync()  # the driver that committed it may have died before it synced
        return StoredRun(number, entry.rows)

    def _of_history(self, table: Table, key: RunKey) -> StoredEntry | None:
        """Return a run that is older than those of the property, from the table's snapshots."""
        for change in changes_of(table):
            run = change.run
            if run is not None and self._origin.is_of(key, json.dumps(asdict(run))):
                return StoredEntry(run.batch, run.part, run.digest, run.attempt, change.rows)
        if has_whole_history(table):
            return None  # the table has later runs, and this one failed before those
        raise PipelineError(
            f"The table {key.table!r} has later runs of {key.pipeline!r} than batch {key.batch}, whose snapshots were removed.",
            hint="Reset the scope with: "
            f"headrace scopes reset {quote(self._origin.scope)} --from SEQ (the first event that the table does not have).",
        )

    @contextmanager
    def _staged(self, key: RunKey) -> Iterator[Path]:
        """Return a folder for the drafts of a run, which is removed at the end."""
        staging = self._staging / self._origin.key(key.table, key.pipeline, key.part)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _options_of(self, name: str) -> TableOptions:
        return self._options.get(name, TableOptions())

    def _property(self, pipeline: str) -> str:
        return f"headrace.runs.{self._origin.key(pipeline)}"


def _reader(source: Rows, schema: pa.Schema, table: str, folders: Sequence[str]) -> pa.RecordBatchReader:
    """Return the rows. Raises `TypeConflict` if a value of a column of `folders` is too long for the name of a folder."""

    def batches() -> Iterator[pa.RecordBatch]:
        for part in source.parts(schema, table):
            check_folder_names(_what(table), folders, part, _folder_name)
            yield from part.to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _folder_name(column: str, value: str) -> str:
    return f"{quote_plus(column)}={quote_plus(value, safe='')}"


def _what(name: str) -> str:
    return f"Iceberg table {name!r}"


def _busy(table: str) -> PipelineError:
    return PipelineError(
        f"The Iceberg table {table!r} was not changed: other programs committed to it concurrently, {COMMIT_ATTEMPTS} times.",
        hint="Compact it when less is written. Tables with many writers need a table for each pipeline.",
    )


def _partitioned(table: str) -> TypeConflict:
    return TypeConflict(
        f"its columns do not fit the table {table!r}: the table is partitioned, which a keyed table is not.",
        hint="Give the pipeline another table; then redrive its dead letter.",
    )
