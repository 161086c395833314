"""Delta tables: one commit for each run of a pipeline. Needs `headrace[delta]`, and no jar.

Delta's own application transactions say which runs a table has, so a run that is executed again is not appended again, and of two
drivers that append one run one fails; readers of Delta (Spark, DuckDB, Trino, …) see a run's rows wholly or not at all.
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
from headrace.pipeline.runs.identity import RUN_KEY, Attempt, Origin, RunKey, Stored
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.column_types import canonical, check_names, type_name, widened
from headrace.pipeline.tables.rows import SMALL, Rows, computed
from headrace.pipeline.tables.sink import new_staging, no_fence
from headrace.pipeline.tables.writers import TableWriters

COMMIT_ATTEMPTS: Final = 5
"""Attempts at a commit that others' commits to the table get in the way of."""
CLEANUP_INTERVAL: Final = 100
"""Commits from one removal of the log's expired files to the next."""
UNSYNCED_COMMITS: Final = 64
"""The newest commits of a table that drivers which died may not have written to the disk."""


class DeltaSink:
    """Appends the rows of each run of a scope once. `tables` is the folder that has a folder for each table."""

    def __init__(self, tables: Path, origin: Origin, fence: Callable[[], None] = no_fence) -> None:
        self._tables = tables
        self._origin = origin
        self._writers = TableWriters(tables)
        self._batches = TableBatches(tables, origin)
        self._fence = fence
        self._staging = new_staging(tables, self._origin)
        self._loaded: dict[tuple[str, str], DeltaTable] = {}  # a table as a pipeline last saw it, for the run that comes next
        self._durable: dict[str, int] = {}  # the version up to which this process wrote a table's log to the disk

    def stored(self, place: RunKey, digest: str) -> Stored | None:
        """Return the run's rows if the table has them."""
        self._writers.check(place.table, self._origin.writer)
        table = self._open(place.table)
        if table is None:
            return None
        self._loaded[place.table, place.pipeline] = table
        return self._stored(table, place, digest)

    def shut_out(self, places: Iterable[RunKey]) -> None:
        """Commit the application transactions of these runs once more, without rows: a commit of the same ones that is under way fails."""
        apps: dict[str, dict[str, int]] = {}
        for place in places:
            before = apps.setdefault(place.table, {}).get(self._app(place), place.batch)
            apps[place.table][self._app(place)] = min(before, place.batch)
        for name, batches in apps.items():
            table = self._open(name)
            if table is None:
                continue  # then no commit of rows is under way
            known = {app: table.transaction_version(app) for app in batches}
            again = [Transaction(app, batches[app] - 1 if last is None else last) for app, last in known.items()]
            # Not made durable: after a power loss no commit is under way either.
            table.create_write_transaction([], "append", table.schema(), commit_properties=CommitProperties(app_transactions=again))

    def store(self, place: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Append the rows that came of so many events in one durable commit; return how many they are."""
        check_names(rows.schema)
        staging = self._staging / self._origin.key(place.table, place.pipeline, place.part)
        try:
            source = computed(rows, staging, small=events <= SMALL)
            self._writers.register(place.table, self._origin.writer)
            for number in range(1, COMMIT_ATTEMPTS + 1):
                table = self._loaded.pop((place.table, place.pipeline), None) or self._open(place.table)
                table = table or self._create(place.table, source.schema)
                stored = self._stored(table, place, attempt.digest)
                if stored is not None:  # another driver was first
                    return stored.rows
                try:
                    self._append(table, place, attempt, source)
                    return source.num_rows
                except CommitFailedError:
                    if number == COMMIT_ATTEMPTS:
                        raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        raise AssertionError("not reached")

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        """Return a batch after `batch`, and up to `until`, of which the table has a run of the pipeline; None where it has none."""
        opened = self._open(table)
        last = None if opened is None else opened.transaction_version(self._app(RunKey(table, pipeline, batch)))
        return last if last is not None and batch < last <= until else None

    def _create(self, name: str, rows: pa.Schema) -> DeltaTable:
        """Create the table without rows: of two drivers that create it with their first rows, Delta would let both append theirs."""
        folder = self._tables / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return DeltaTable.create(folder, widened(pa.schema([]), rows, name), mode="error")
        except DeltaError:
            created = self._open(name)  # by another driver
            if created is None:
                raise
            return created

    def _append(self, table: DeltaTable, place: RunKey, attempt: Attempt, source: Rows) -> None:
        """Commit the rows to the table as it was loaded."""
        before = table.version() or -1  # version 0 has no rows; it is this driver's own, or that of one that may have died since
        schema = _fitting(place.table, table, source.schema)
        parts = _Batches(source, schema, place.table)
        self._batches.reserve(place.table, place.batch)
        self._fence()
        try:
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(schema, iter(parts)),
                mode="append",
                commit_properties=CommitProperties(
                    custom_metadata={RUN_KEY: self._origin.metadata(place, attempt)},
                    app_transactions=[Transaction(self._app(place), max(place.batch, table.transaction_version(self._app(place)) or 0))],
                ),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=_cleans_up(table.version() + 1)),
            )
        except SchemaMismatchError as error:
            raise _unfit(place.table, str(error)) from error
        except Exception as error:
            raise parts.failure or error from error
        self._make_durable(place, before + 1)

    def _make_durable(self, place: RunKey, version: int) -> None:
        """Write the table's log from `version` on, and the files of this run's commits, to the disk.

        The run is reported as stored after this. Earlier commits that this process has not written count too: readers need them all.
        """
        folder = self._tables / place.table
        log = folder / "_delta_log"
        known = self._durable.get(place.table, version - UNSYNCED_COMMITS)
        for number in count(max(0, min(known + 1, version))):
            entry = log / f"{number:020}.json"
            if not entry.exists():
                if number < version:
                    continue  # expired
                break
            actions = _actions(entry)
            if any(txn["appId"] == self._app(place) for txn in _each(actions, "txn")):
                for added in _each(actions, "add"):
                    sync(folder / unquote(added["path"]))
            sync(entry)
            known = number
        sync_folder(log)
        sync_folder(folder)
        sync_folder(folder.parent)
        self._durable[place.table] = max(known, self._durable.get(place.table, -1))

    def _stored(self, table: DeltaTable, place: RunKey, digest: str) -> Stored | None:
        done = table.transaction_version(self._app(place))
        if done is None or done < place.batch:
            return None
        oldest = 0
        for version, actions in _commits(self._tables / place.table, table.version()):
            oldest = version
            info = next(_each(actions, "commitInfo"), {})
            if self._origin.is_of(place, info.get(RUN_KEY)):
                number = self._origin.check(place, digest, info.get(RUN_KEY), f"Version {version} of the table {place.table!r}")
                self._make_durable(place, version)  # the driver that committed it may have died before it did so
                return Stored(number, int(info["operationMetrics"]["num_added_rows"]))
        if oldest == 0:
            return None  # a later run is there, and this one failed before that
        raise PipelineError(
            f"The table {place.table!r} has later runs of {place.pipeline!r} than batch {place.batch}, whose history was deleted.",
            hint="Delta deletes history after 30 days (delta.logRetentionDuration). Reset the scope with: "
            f"headrace scopes reset {quote(self._origin.scope)} --from SEQ (the first event that the table does not have).",
        )

    def _open(self, name: str) -> DeltaTable | None:
        folder = self._tables / name
        if (folder / "_delta_log").exists():
            try:
                return DeltaTable(folder)
            except TableNotFoundError:
                return None  # its first commit is still to come
        if any(folder.glob("*.parquet")):
            raise PipelineError(
                f"{folder} holds a table of plain Parquet files, and the pipeline writes Delta.",
                hint=f"Make it one (`from deltalake import convert_to_deltalake; convert_to_deltalake({str(folder)!r})`) or move it away.",
            )
        return None

    def _app(self, place: RunKey) -> str:
        return f"headrace-{self._origin.key(place.pipeline, place.part)}"


class _Batches:
    """The rows as batches of one schema. `failure` is the error that they ended with: Delta's writer gives another in its place."""

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
    """Return whether the commit removes the log's expired files, for which it lists them all. None: the table's properties decide."""
    return None if version % CLEANUP_INTERVAL == 0 else False


def _unfit(name: str, reason: str) -> TypeConflict:
    return TypeConflict(
        f"its rows do not fit the Delta table {name!r}: {reason}.",
        hint="Change the table (ALTER TABLE … ADD COLUMN), or give the pipeline another table; then redrive its dead letter.",
    )


def _commits(folder: Path, version: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the actions of each commit, the newest first, as far as the table's log goes back."""
    for number in range(version, -1, -1):
        try:
            yield number, _actions(folder / "_delta_log" / f"{number:020}.json")
        except FileNotFoundError:
            return


def _actions(entry: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.read_text().splitlines()]


def _each(actions: list[dict[str, Any]], kind: str) -> Iterator[dict[str, Any]]:
    return (action[kind] for action in actions if kind in action)
