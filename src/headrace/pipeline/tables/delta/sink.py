"""Delta tables: each run of a pipeline is one commit, which appends rows or replaces them. Needs `headrace[delta]`, and no jar.

Delta's application transactions record which runs a table has. So a run that is executed again is not appended again,
and if two drivers append one run, one of them fails. Readers of Delta (Spark, DuckDB, Trino, …) see all rows of a run
or none.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, SchemaMismatchError
from pyspark.sql import DataFrame

from headrace.errors import PipelineError, TablesUnavailable, TypeConflict
from headrace.pipeline.runs.identity import RUN_KEY, Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.table_storage.tables import Tables, files_in
from headrace.pipeline.tables.batches import TableBatches
from headrace.pipeline.tables.column_types import canonical, check_names, check_rows, fitting, unfit, widened
from headrace.pipeline.tables.delta.bucket_tables import BucketDeltaTables
from headrace.pipeline.tables.delta.local_tables import LocalDeltaTables
from headrace.pipeline.tables.delta.log import commits, each, stored_rows
from headrace.pipeline.tables.delta.merge import check_columns, merge, rows_of_keys
from headrace.pipeline.tables.partitions import check_folder_names, check_partition_columns, check_partitioning
from headrace.pipeline.tables.rows import MAX_DRIVER_EVENTS, Rows, computed
from headrace.pipeline.tables.sink import new_staging, no_fence
from headrace.pipeline.tables.table_runs import Compute
from headrace.pipeline.tables.writers import TableWriters
from headrace.pipeline_declaration import TableOptions

COMMIT_ATTEMPTS: Final = 5
"""Attempts at a commit that conflicts with other commits to the table."""
CLEANUP_INTERVAL: Final = 100
"""Commits between two removals of the log's expired files."""


class DeltaTables(Protocol):
    """The Delta tables of one folder."""

    def open(self, name: str) -> DeltaTable | None:
        """Return a table, or None if it does not exist. Raises `PipelineError` if it is a table of another format."""

    def create(self, name: str, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        """Create a table without rows, durably. Raises `DeltaError` if it exists."""

    def make_durable(self, name: str, app: str, version: int) -> None:
        """Make the table's commits from `version` on durable, with the files of commits that have this application transaction."""

    def requests(self) -> AbstractContextManager[None]:
        """Describe errors of the storage in the block, in which the table itself is read or written."""


class DeltaSink:
    """Stores the rows of each run of a scope once. `tables` is the folder with one folder for each table."""

    def __init__(
        self,
        tables: Tables,
        origin: Origin,
        fence: Callable[[], None] = no_fence,
        options: Mapping[str, TableOptions] = MappingProxyType({}),
    ) -> None:
        self._tables = tables
        self._delta: DeltaTables = LocalDeltaTables(tables) if isinstance(tables, Path) else BucketDeltaTables(tables)
        self._files = files_in(tables)
        self._origin = origin
        self._writers = TableWriters(tables)
        self._batches = TableBatches(tables, origin)
        self._fence = fence
        self._options = options
        self._staging = new_staging(tables, self._origin) if isinstance(tables, Path) else None
        self._loaded: dict[tuple[str, str], DeltaTable] = {}  # tables as the pipelines last loaded them, for the next runs

    def stored(self, key: RunKey, digest: str) -> StoredRun | None:
        """Return the run's rows if the table has them."""
        self._writers.check(key.table, self._origin.writer)
        table = self._delta.open(key.table)
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
            table = self._delta.open(name)
            if table is None:
                continue  # no commit of rows is in flight
            known = {app: table.transaction_version(app) for app in batches}
            again = [Transaction(app, batches[app] - 1 if last is None else last) for app, last in known.items()]
            # Not synced: after a power loss no commit is in flight either.
            with self._delta.requests():
                table.create_write_transaction([], "append", table.schema(), commit_properties=CommitProperties(app_transactions=again))

    def store(self, key: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Append the rows that were computed from `events` events in one durable commit; return their number."""
        check_names(rows.schema)
        with self._staged(key) as staging:
            source = computed(rows, staging, small=events <= MAX_DRIVER_EVENTS, shared=isinstance(self._tables, Path))

            def append(table: DeltaTable) -> int:
                options = self._options_of(key.table)
                evolve = options.evolve
                fields = pa.schema(table.schema().to_arrow())
                never_null = [field.name for field in fields if not field.nullable]
                schema = fitting(canonical(fields), source.schema, _what(key.table), key.table, never_null, evolve=evolve)
                partition_by = table.metadata().partition_columns
                check_partitioning(_what(key.table), options.partition_by, partition_by)
                parts = _Batches(source, schema, key.table, partition_by, on_disk=isinstance(self._tables, Path))
                try:
                    self._commit(
                        table,
                        key,
                        attempt,
                        lambda **options: write_deltalake(
                            table,
                            pa.RecordBatchReader.from_batches(schema, iter(parts)),
                            mode="append",
                            schema_mode="merge" if evolve else None,
                            **options,
                        ),
                    )
                except SchemaMismatchError as error:
                    raise unfit(_what(key.table), str(error)) from error
                except Exception as error:
                    if parts.failure is None:
                        raise
                    raise parts.failure from error
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

        def upsert(table: DeltaTable) -> int:
            added = check_columns(key.table, table, columns)
            with self._delta.requests():
                present = rows_of_keys(table, keys, columns, key.table)
            rows = check_rows(compute(present), keys, columns, key.table)
            if added:
                with self._delta.requests():
                    table.alter.add_columns(added)
            self._commit(table, key, attempt, lambda **options: merge(table, keys, rows, **options))
            return int(rows.num_rows)

        return self._store(key, attempt, columns, upsert)

    def _store(self, key: RunKey, attempt: Attempt, columns: pa.Schema, commit: Callable[[DeltaTable], int]) -> int:
        """Commit a run to the newest version of its table, which is created with these columns if it does not exist."""
        self._writers.register(key.table, self._origin.writer)
        for number in range(1, COMMIT_ATTEMPTS + 1):
            table = self._loaded.pop((key.table, key.pipeline), None) or self._delta.open(key.table)
            table = table or self._create(key.table, columns)
            stored = self._stored(table, key, attempt.digest)
            if stored is not None:  # another driver was first
                return stored.rows
            try:
                return commit(table)
            except (CommitFailedError, TablesUnavailable):  # an object store may have the commit although its answer was lost
                if number == COMMIT_ATTEMPTS:
                    raise
        raise AssertionError("not reached")

    @contextmanager
    def _staged(self, key: RunKey) -> Iterator[Path]:
        """Return a folder for the drafts of a run, which is removed at the end. It is beside tables on a disk, else of the driver alone."""
        if self._staging is None:
            with TemporaryDirectory(prefix="headrace-") as folder:
                yield Path(folder)
            return
        staging = self._staging / self._origin.key(key.table, key.pipeline, key.part)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def later(self, table: str, pipeline: str, batch: int, until: int) -> int | None:
        """Return a batch after `batch`, up to `until`, of which the table has a run of the pipeline, or None."""
        opened = self._delta.open(table)
        last = None if opened is None else opened.transaction_version(self._app(RunKey(table, pipeline, batch)))
        return last if last is not None and batch < last <= until else None

    def _create(self, name: str, rows: pa.Schema) -> DeltaTable:
        """Create the table without rows. If two drivers created it with their first rows, Delta would append both."""
        partition_by = self._options_of(name).partition_by
        check_partition_columns(_what(name), partition_by, rows)
        try:
            return self._delta.create(name, widened(pa.schema([]), rows, name), partition_by)
        except DeltaError:
            created = self._delta.open(name)  # by another driver
            if created is None:
                raise
            return created

    def _commit(self, table: DeltaTable, key: RunKey, attempt: Attempt, write: Callable[..., object]) -> None:
        """Call `write`, which commits to the table as it was loaded, with the properties of the run's commit."""
        before = table.version() or -1  # version 0 has no rows; this driver created it, or one that may have died since
        last = table.transaction_version(self._app(key)) or 0
        self._batches.reserve(key.table, key.batch)
        self._fence()
        with self._delta.requests():
            write(
                commit_properties=CommitProperties(
                    custom_metadata={RUN_KEY: self._origin.metadata(key, attempt)},
                    app_transactions=[Transaction(self._app(key), max(key.batch, last))],
                ),
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=_cleans_up(table.version() + 1)),
            )
        self._delta.make_durable(key.table, self._app(key), before + 1)

    def _stored(self, table: DeltaTable, key: RunKey, digest: str) -> StoredRun | None:
        done = table.transaction_version(self._app(key))
        if done is None or done < key.batch:
            return None
        oldest = 0
        for version, actions in commits(self._files, key.table, table.version()):
            oldest = version
            info = next(each(actions, "commitInfo"), {})
            if self._origin.is_of(key, info.get(RUN_KEY)):
                number = self._origin.check(key, digest, info.get(RUN_KEY), f"Version {version} of the table {key.table!r}")
                self._delta.make_durable(key.table, self._app(key), version)  # the driver that committed it may have died before it synced
                return StoredRun(number, stored_rows(info))
        if oldest == 0:
            return None  # the table has a later run, and this one failed before that
        raise PipelineError(
            f"The table {key.table!r} has later runs of {key.pipeline!r} than batch {key.batch}, whose history was deleted.",
            hint="Delta deletes history after 30 days (delta.logRetentionDuration). Reset the scope with: "
            f"headrace scopes reset {shlex.quote(self._origin.scope)} --from SEQ (the first event that the table does not have).",
        )

    def _options_of(self, name: str) -> TableOptions:
        return self._options.get(name, TableOptions())

    def _app(self, key: RunKey) -> str:
        return f"headrace-{self._origin.key(key.pipeline, key.part)}"


class _Batches:
    """The rows as batches of one schema. `failure` is the original error, which Delta's writer replaces by its own."""

    def __init__(self, source: Rows, schema: pa.Schema, table: str, partition_by: Sequence[str], *, on_disk: bool) -> None:
        self._source = source
        self._schema = schema
        self._table = table
        self._texts = [name for name in partition_by if pa.types.is_string(schema.field(name).type)]
        self._on_disk = on_disk
        self.failure: TypeConflict | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for part in self._source.parts(self._schema, self._table):
                self._check_texts(part)
                yield from part.to_batches()
        except TypeConflict as error:
            self.failure = error
            raise

    def _check_texts(self, rows: pa.Table) -> None:
        """Raise `TypeConflict` if a partition column has a text that is too long, or an empty one, which Delta would return as null."""
        if self._on_disk:
            check_folder_names(_what(self._table), self._texts, rows, _folder_name)
        for name in self._texts:
            if pc.any(pc.equal(rows.column(name), "")).as_py():
                reason = f"the column {name!r} partitions it and has an empty text, which Delta stores as null"
                hint = "Replace the empty text in the pipeline, for example by null; then redrive its dead letter."
                raise unfit(_what(self._table), reason, hint)


def _folder_name(column: str, value: str) -> str:
    return f"{column}={quote(value, safe='')}"


def _cleans_up(version: int) -> bool | None:
    """Return whether the commit removes the log's expired files, for which it lists all of them, or None for the table's default."""
    return None if version % CLEANUP_INTERVAL == 0 else False


def _what(name: str) -> str:
    return f"Delta table {name!r}"
