"""Delta tables: one commit for each run of a pipeline. Needs `headrace[delta]`, and no jar.

Delta's application transactions record which runs a table has. So a run that is executed again is not appended again,
and if two drivers append one run, one of them fails. Readers of Delta (Spark, DuckDB, Trino, …) see all rows of a run
or none.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError, TableNotFoundError
from pyspark.sql import DataFrame

from headrace.durable_files import sync, sync_folder
from headrace.errors import PipelineError, TypeConflict
from headrace.pipeline.runs.identity import RUN_KEY, Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.column_types import canonical, check_names, type_name, widened
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS, Rows, computed
from headrace.pipeline.tables.sink import new_staging, no_fence
from headrace.pipeline.tables.writers import TableWriters

COMMIT_ATTEMPTS: Final = 5
"""Attempts at a commit that conflicts with other commits to the table."""
CLEANUP_INTERVAL: Final = 100
"""Commits between two removals of the log's expired files."""
UNSYNCED_COMMITS: Final = 64
"""Newest commits of a table that drivers which died may not have synced to the disk."""


class DeltaSink:
    """Appends the rows of each run of a scope once. `tables` is the folder with one folder for each table."""

    def __init__(self, tables: Path, origin: Origin, fence: Callable[[], None] = no_fence) -> None:
        self._tables = tables
        self._origin = origin
        self._writers = TableWriters(tables)
        self._batches = TableBatches(tables, origin)
        self._fence = fence
        self._staging = new_staging(tables, self._origin)
        self._loaded: dict[tuple[str, str], DeltaTable] = {}  # tables as the pipelines last loaded them, for the next runs
        self._durable: dict[str, int] = {}  # the version up to which this process synced a table's log to the disk

    def stored(self, key: RunKey, digest: str) -> StoredRun | None:
        """Return the run's rows if the table has them."""
        self._writers.check(key.table, self._origin.writer)
        table = self._open(key.table)
        if table is None:
            return None
        self._loaded[key.table, key.pipeline] = table
        return self._stored(table, key, digest)

    def shut_out(self, keys: Iterable[RunKey]) -> None:
        """Commit the application transactions of these runs again, without rows, so that a commit of the same runs in flight fails."""
        apps: dict[str, dict[str, int]] = {}
        for key in keys:
            before = apps.setdefault(key.table, {}).get(self._app(key), key.batch)
            apps[key.table][self._app(key)] = min(before, key.batch)
        for name, batches in apps.items():
            table = self._open(name)
            if table is None:
                continue  # no commit of rows is in flight
            known = {app: table.transaction_version(app) for app in batches}
            again = [Transaction(app, batches[app] - 1 if last is None else last) for app, last in known.items()]
            # Not synced: after a power loss no commit is in flight either.
            table.create_write_transaction([], "append", table.schema(), commit_properties=CommitProperties(app_transactions=again))

    def store(self, key: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Append the rows that were computed from `events` events in one durable commit; return their number."""
        check_names(rows.schema)
        staging = self._staging / self._origin.key(key.table, key.pipeline, key.part)
        try:
            source = computed(rows, staging, small=events <= MAX_DRIVER_EVENTS)
            self._writers.register(key.table, self._origin.writer)
            for number in range(1, COMMIT_ATTEMPTS + 1):
                table = self._loaded.pop((key.table, key.pipeline), None) or self._open(key.table)
                table = table or self._create(key.table, source.schema)
                stored = self._stored(table, key, attempt.digest)
                if stored is not None:  # another driver was first
                    return stored.rows
                try:
                    self._append(table, key, attempt, source)
                    return source.num_rows
                except CommitFailedError:
                    if number == COMMIT_ATTEMPTS:
                        raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        raise AssertionError("not reached")

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        """Return a batch after `batch`, up to `until`, of which the table has a run of the pipeline, or None."""
        opened = self._open(table)
        last = None if opened is None else opened.transaction_version(self._app(RunKey(table, pipeline, batch)))
        return last if last is not None and batch < last <= until else None

    def _create(self, name: str, rows: pa.Schema) -> DeltaTable:
        """Create the table without rows. If two drivers created it with their first rows, Delta would append both."""
        folder = self._tables / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return DeltaTable.create(folder, widened(pa.schema([]), rows, name), mode="error")
        except DeltaError:
            created = self._open(name)  # by another driver
            if created is None:
                raise
            return created

    def _append(self, table: DeltaTable, key: RunKey, attempt: Attempt, source: Rows) -> None:
        """Commit the rows to the table as it was loaded."""
        before = table.version() or -1  # version 0 has no rows; this driver created it, or one that may have died since
        schema = _fitting(key.table, table, source.schema)
        parts = _Batches(source, schema, key.table)
        self._batches.reserve(key.table, key.batch)
        self._fence()
        try:
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(schema, iter(parts)),
                mode="append",
                commit_properties=CommitProperties(
                    custom_metadata={RUN_KEY: self._origin.metadata(key, attempt)},
                    app_transactions=[Transaction(self._app(key), max(key.batch, table.transaction_version(self._app(key)) or 0))],
                ),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=_cleans_up(table.version() + 1)),
            )
        except SchemaMismatchError as error:
            raise _unfit(key.table, str(error)) from error
        except Exception as error:
            raise parts.failure or error from error
        self._make_durable(key, before + 1)

    def _make_durable(self, key: RunKey, version: int) -> None:
        """Sync the table's log from `version` on, and the files of this run's commits, to the disk.

        The run is reported as stored after this. Earlier commits that this process has not synced are included, because
        readers need all of them.
        """
        folder = self._tables / key.table
        log = folder / "_delta_log"
        known = self._durable.get(key.table, version - UNSYNCED_COMMITS)
        for number in count(max(0, min(known + 1, version))):
            entry = log / f"{number:020}.json"
            if not entry.exists():
                if number < version:
                    continue  # expired
                break
            actions = _actions(entry)
            if any(txn["appId"] == self._app(key) for txn in _each(actions, "txn")):
                for added in _each(actions, "add"):
                    sync(folder / unquote(added["path"]))
            sync(entry)
            known = number
        sync_folder(log)
        sync_folder(folder)
        sync_folder(folder.parent)
        self._durable[key.table] = max(known, self._durable.get(key.table, -1))

    def _stored(self, table: DeltaTable, key: RunKey, digest: str) -> StoredRun | None:
        done = table.transaction_version(self._app(key))
        if done is None or done < key.batch:
            return None
        oldest = 0
        for version, actions in _commits(self._tables / key.table, table.version()):
            oldest = version
            info = next(_each(actions, "commitInfo"), {})
            if self._origin.is_of(key, info.get(RUN_KEY)):
                number = self._origin.check(key, digest, info.get(RUN_KEY), f"Version {version} of the table {key.table!r}")
                self._make_durable(key, version)  # the driver that committed it may have died before it synced
                return StoredRun(number, int(info["operationMetrics"]["num_added_rows"]))
        if oldest == 0:
            return None  # the table has a later run, and this one failed before that
        raise PipelineError(
            f"The table {key.table!r} has later runs of {key.pipeline!r} than batch {key.batch}, whose history was deleted.",
            hint="Delta deletes history after 30 days (delta.logRetentionDuration). Reset the scope with: "
            f"headrace scopes reset {quote(self._origin.scope)} --from SEQ (the first event that the table does not have).",
        )

    def _open(self, name: str) -> DeltaTable | None:
        folder = self._tables / name
        if (folder / "_delta_log").exists():
            try:
                return DeltaTable(folder)
            except TableNotFoundError:
                return None  # its first commit is pending
        if any(folder.glob("*.parquet")):
            raise PipelineError(
                f"{folder} holds a table of plain Parquet files, and the pipeline writes Delta.",
                hint=f"Make it one (`from deltalake import convert_to_deltalake; convert_to_deltalake({str(folder)!r})`) or move it away.",
            )
        return None

    def _app(self, key: RunKey) -> str:
        return f"headrace-{self._origin.key(key.pipeline, key.part)}"


class _Batches:
    """The rows as batches of one schema. `failure` is the original error, which Delta's writer replaces by its own."""

    def __init__(self, source: Rows, schema: pa.Schema, table: str) -> None:
        self._source = source
        self._schema = schema
        self._table = table
        self.failure: TypeConflict | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for part in self._source.parts(self._schema, self._table):
                yield from part.to_batches()
        except TypeConflict as error:
            self.failure = error
            raise


def _fitting(name: str, table: DeltaTable, rows: pa.Schema) -> pa.Schema:
    """Return the schema of the table, if rows of this schema fit it."""
    fields = pa.schema(table.schema().to_arrow())
    known = canonical(fields)
    both = widened(known, rows, name)
    more = [f"{field.name!r} ({type_name(field.type)})" for field in both if field not in known]
    if more:
        raise _unfit(name, f"it has not the columns or fields of {', '.join(more)}")
    missing = [field.name for field in fields if not field.nullable and field.name not in rows.names]
    if missing:
        raise _unfit(name, f"the rows have not its column {missing[0]!r}, which is never null")
    return known


def _cleans_up(version: int) -> bool | None:
    """Return whether the commit removes the log's expired files, for which it lists all of them, or None for the table's default."""
    return None if version % CLEANUP_INTERVAL == 0 else False


def _unfit(name: str, reason: str) -> TypeConflict:
    return TypeConflict(
        f"its rows do not fit the Delta table {name!r}: {reason}.",
        hint="Change the table (ALTER TABLE … ADD COLUMN), or give the pipeline another table; then redrive its dead letter.",
    )


def _commits(folder: Path, version: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the version and actions of each commit, newest first, as far as the table's log goes back."""
    for number in range(version, -1, -1):
        try:
            yield number, _actions(folder / "_delta_log" / f"{number:020}.json")
        except FileNotFoundError:
            return


def _actions(entry: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.read_text().splitlines()]


def _each(actions: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    return (action[kind] for action in actions if kind in action)
