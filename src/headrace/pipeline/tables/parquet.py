"""Tables: a folder of Parquet files, one for each run of a pipeline.

A file's name depends on the run alone, and its metadata says which run it is and of which events. It is created once, whole. So a run's
rows are there wholly or not at all; a run that is there is not made again; and every reader of Parquet (`spark.read.parquet(table)`,
pandas, DuckDB) reads the table without options, and without a partition column that nobody asked for.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.durable_files import create, sync, sync_folder
from headrace.errors import PipelineError, RunConflict
from headrace.pipeline.runs.identity import RUN_KEY, Attempt, Origin, Place, Stored
from headrace.pipeline.tables.batches import Later, TableBatches
from headrace.pipeline.tables.column_types import canonical, check_names, conformed, widened
from headrace.pipeline.tables.schema import TableSchemas
from headrace.pipeline.tables.writers import TableWriters
from headrace.project import TableFormat

SMALL: Final = 100_000
"""Up to so many events, the rows come to the driver and are written here: Spark's own way of writing takes twice the processor time."""

_PART_ROWS: Final = 131_072
_PART_BYTES: Final = 64 * 1024 * 1024


class TableSink(Later, Protocol):
    """Where the rows of each run go, once."""

    def stored(self, place: Place, digest: str) -> Stored | None:
        """Return the run's rows if the table has them.

        Raises:
            RunConflict: The table has rows of other events for the run, or rows of this scope name from another log.
        """

    def shut_out(self, places: Iterable[Place]) -> None:
        """Let an earlier driver that was paused store no rows of these runs any more; to be called before this driver looks for them."""

    def store(self, place: Place, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Write the rows that came of so many events durably, then show them to readers all at once; return how many they are.

        Raises:
            TypeConflict: The rows do not fit the table. Nothing was written.
            RunConflict: As for `stored`.
        """


class Writer(Protocol):
    """A pipeline, or an open run of one: the table that gets its rows, and the table's format."""

    @property
    def table(self) -> str | None:
        """The table; None where it has none."""

    @property
    def format(self) -> TableFormat:
        """The table's format."""


def no_fence() -> None:
    """Let every driver write."""


def open_sinks(
    writers: Iterable[Writer], tables: Path, origin: Origin, fence: Callable[[], None] = no_fence
) -> Mapping[TableFormat, TableSink]:
    """Return a sink for each format that the writers have, for the runs of one origin.

    A sink calls `fence` before it shows rows to readers; `fence` raises where this driver has lost its scope.

    Raises:
        PipelineError: A library that the format needs is not installed.
        RunConflict: A table of the writers has rows of the origin's scope from another log.
    """
    outputs = [(writer.table, writer.format) for writer in writers if writer.table is not None]
    for table in sorted({table for table, _ in outputs}):
        TableWriters(tables).check(table, origin.writer)
    sinks: dict[TableFormat, TableSink] = {}
    for each in sorted({format for _, format in outputs}):
        if each == "parquet":
            sinks[each] = ParquetSink(tables, origin, fence)
            continue
        try:
            from headrace.pipeline.tables.delta import DeltaSink
        except ModuleNotFoundError as error:
            raise PipelineError(
                "A pipeline writes a Delta table, and deltalake is missing.", hint="pip install 'headrace[delta]'"
            ) from error
        sinks[each] = DeltaSink(tables, origin, fence)
    return sinks


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

    def stored(self, place: Place, digest: str) -> Stored | None:
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

    def shut_out(self, places: Iterable[Place]) -> None:
        """Do nothing: `new_staging` has removed the drafts of earlier drivers, which they would move into the table."""

    def store(self, place: Place, attempt: Attempt, rows: DataFrame, events: int) -> int:
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
        return next((number for number in batches if self._path(Place(table, pipeline, number)).exists()), None)

    def _make_durable(self, folder: Path) -> None:
        """Write the names of the table's files to the disk: a run is reported as stored after this, and must survive a power loss."""
        sync_folder(folder)
        sync_folder(self._tables)

    def _draft(self, place: Place, attempt: Attempt, source: Rows, staging: Path) -> Path:
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

    def _path(self, place: Place) -> Path:
        part = int(place.part) if place.part.isdecimal() else 0  # so that names ascend with positions
        name = f"{place.batch:09d}-{part:05d}-{self._origin.key(place.pipeline, place.batch, place.part)}.parquet"
        return self._tables / place.table / name


class Rows:
    """The rows of a run, computed: in memory, or in a file that an executor wrote."""

    def __init__(self, table: pa.Table | None, file: Path | None, schema: pa.Schema) -> None:
        self._table = table
        self._file = file
        self.schema = schema
        """As a table has it."""
        self.num_rows: int = table.num_rows if table is not None else pq.read_metadata(file).num_rows

    def parts(self, schema: pa.Schema, table: str) -> Iterator[pa.Table]:
        """Yield the rows with the columns and types of a table; at most 64 MiB at a time where they are in a file."""
        if self._table is not None:
            yield conformed(self._table, schema, table)
            return
        with pq.ParquetFile(self._file) as file:
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            size = sum(group.total_byte_size for group in groups)
            at_once = min(_PART_ROWS, max(1, file.metadata.num_rows * _PART_BYTES // max(size, 1)))
            for batch in file.iter_batches(at_once):
                yield conformed(pa.Table.from_batches([batch]), schema, table)

    def write(self, path: Path, schema: pa.Schema, table: str, metadata: Mapping[str, str]) -> None:
        """Write the rows to a Parquet file with this metadata."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, schema.with_metadata(metadata)) as writer:
            for part in self.parts(schema, table):
                writer.write_table(part.replace_schema_metadata(metadata))


def computed(rows: DataFrame, staging: Path, *, small: bool) -> Rows:
    """Compute the rows: few of them here, more of them in a file under `staging`."""
    table = collected(rows) if small else None
    if table is not None:
        return Rows(table, None, canonical(table.schema))
    rows.coalesce(1).write.mode("overwrite").parquet((staging / "spark").absolute().as_uri())
    parts = list((staging / "spark").glob("part-*.parquet"))
    if len(parts) != 1:
        raise PipelineError(
            f"The executors wrote rows to {staging}, and the driver does not see them there.",
            hint="Put the folder of --tables on a volume that the driver and all executors have under this path.",
        )
    return Rows(None, parts[0], _arrow_schema(rows) or canonical(pq.read_schema(parts[0])))


def collected(rows: DataFrame) -> pa.Table | None:
    """Return the rows as Arrow; None where they have a type that only Spark can write, or refuse."""
    try:
        return rows.toArrow()
    except PySparkTypeError:
        return None


def new_staging(tables: Path, origin: Origin) -> Path:
    """Return a folder for the drafts of one sink, and remove those of the origin's earlier drivers.

    It is a folder of its own: tasks of a driver that was killed may write for a while longer.
    """
    folder = tables / ".staging"
    prefix = origin.key("staging")[:16]
    for left in folder.glob(f"{prefix}-*"):
        shutil.rmtree(left, ignore_errors=True)
    return folder / f"{prefix}-{uuid4().hex[:8]}"


def _arrow_schema(rows: DataFrame) -> pa.Schema | None:
    try:
        return canonical(to_arrow_schema(rows.schema, timezone="UTC"))
    except PySparkTypeError:
        return None
