"""The rows of a run, computed on the driver or by executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import PipelineError, TypeConflict
from headrace.pipeline.tables.column_types import canonical, conformed

MAX_DRIVER_EVENTS: Final = 100_000
"""Up to this many events, the driver collects and writes the rows: Spark's own writer takes twice the CPU time."""

_STREAM_PARTITIONS: Final = 32
"""Partitions in which the driver receives the rows of a large run."""
_PART_ROWS: Final = 131_072
_PART_BYTES: Final = 64 * 1024 * 1024


class Rows:
    """The computed rows of a run: in memory, or in a file that an executor wrote."""

    def __init__(self, table: pa.Table | None, file: Path | None, schema: pa.Schema) -> None:
        self._table = table
        self._file = file
        self.schema = schema
        """The schema in a table's form."""
        self.num_rows: int = table.num_rows if table is not None else pq.read_metadata(file).num_rows

    def parts(self, schema: pa.Schema, table: str) -> Iterator[pa.Table]:
        """Yield the rows with the columns and types of a table, up to 64 MiB at a time if they are in a file."""
        if self._table is not None:
            yield conformed(self._table, schema, table)
            return
        with pq.ParquetFile(self._file) as file:
            groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
            size = sum(group.total_byte_size for group in groups)
            batch_rows = min(_PART_ROWS, max(1, file.metadata.num_rows * _PART_BYTES // max(size, 1)))
            for batch in file.iter_batches(batch_rows):
                yield conformed(pa.Table.from_batches([batch]), schema, table)

    def write(self, path: Path, schema: pa.Schema, table: str, metadata: Mapping[str, str]) -> None:
        """Write the rows to a Parquet file with this metadata."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, schema.with_metadata(metadata)) as writer:
            for part in self.parts(schema, table):
                writer.write_table(part.replace_schema_metadata(metadata))


def computed(rows: DataFrame, staging: Path, *, small: bool, shared: bool = True) -> Rows:
    """Compute the rows: in memory if `small`, else in a file under `staging`, which executors write if they have the folder too."""
    table = collected(rows) if small else None
    if table is not None:
        return Rows(table, None, canonical(table.schema))
    if not shared:
        return _streamed(rows, staging)
    rows.coalesce(1).write.mode("overwrite").parquet((staging / "spark").absolute().as_uri())
    parts = list((staging / "spark").glob("part-*.parquet"))
    if len(parts) != 1:
        raise PipelineError(
            f"The executors wrote rows to {staging}, and the driver does not see them there.",
            hint="Put the folder of --tables on a volume that the driver and all executors have under this path.",
        )
    return Rows(None, parts[0], _arrow_schema(rows) or canonical(pq.read_schema(parts[0])))


def _streamed(rows: DataFrame, folder: Path) -> Rows:
    """Receive the rows from the executors, a partition after the other, in a file of the driver.

    Raises:
        TypeConflict: They have a type that only Spark can write.
    """
    schema = _arrow_schema(rows)
    if schema is None:
        raise TypeConflict(
            "its rows have a type that only Spark can write, and the driver writes tables in a bucket.",
            hint="Convert the column in the pipeline, for example to string; then redrive its dead letter.",
        )

    def encoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow  # here, since executors run this function without the module of Headrace

        for batch in batches:
            with pyarrow.BufferOutputStream() as buffer:
                with pyarrow.ipc.new_stream(buffer, batch.schema) as stream:
                    stream.write_batch(batch)
                yield pyarrow.record_batch({"batch": pyarrow.array([buffer.getvalue().to_pybytes()], pyarrow.binary())})

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rows.parquet"
    # A result may have one partition of any size, and the JVM of the driver holds one whole.
    parts = rows.repartition(_STREAM_PARTITIONS).mapInArrow(encoded, "batch binary").toLocalIterator(prefetchPartitions=False)
    with pq.ParquetWriter(file, schema) as writer:
        for part in parts:
            batch = pa.ipc.open_stream(part.batch).read_all()
            writer.write_table(batch.cast(schema))
    return Rows(None, file, schema)


def collected(rows: DataFrame) -> pa.Table | None:
    """Return the rows as Arrow, or None if they have a type that only Spark can write."""
    try:
        return rows.toArrow()
    except PySparkTypeError:
        return None


def _arrow_schema(rows: DataFrame) -> pa.Schema | None:
    try:
        return canonical(to_arrow_schema(rows.schema, timezone="UTC"))
    except PySparkTypeError:
        return None
