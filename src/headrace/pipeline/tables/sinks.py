"""Open the sinks of the tables that pipelines write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from headrace.core.values.locations import TableLocation
from headrace.errors import PipelineError
from headrace.pipeline.runs.identity import Origin
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.table_storage.tables import Tables
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.sink import TableSink, no_fence
from headrace.pipeline.tables.writers import TableWriters
from headrace.pipeline_declaration import Pipeline, TableFormat, TableOptions


class Writer(Protocol):
    """A pipeline or an open run: the table for its rows, and the table's format."""

    @property
    def table(self) -> str | None:
        """The table, or None."""

    @property
    def format(self) -> TableFormat:
        """The table's format."""


def check_formats(writers: Collection[Writer], tables: Path | ObjectFolder | TableLocation) -> None:
    """Raise `PipelineError` if a table in a bucket has another format than Delta."""
    other = sorted((writer.table, writer.format) for writer in writers if writer.table is not None and writer.format != "delta")
    if other and not isinstance(tables, Path):
        table, format = other[0]
        reason = {
            "parquet": "A commit to a Parquet table needs the atomic link of a file, which a bucket lacks.",
            "iceberg": "The catalog of Iceberg decides where its tables are: see the guide Pipelines.",
        }[format]
        raise PipelineError(
            f"The table {table!r} has the format {format.capitalize()}, and the tables are in {tables}.",
            hint=f"Declare it with format='delta'. {reason}",
        )


def open_sinks(
    writers: Collection[Writer], tables: Tables, origin: Origin, fence: Callable[[], None] = no_fence
) -> Mapping[TableFormat, TableSink]:
    """Return a sink for each format of the writers, for the runs of one origin.

    A sink calls `fence` before it makes rows visible. `fence` raises if this driver has lost its scope.

    Raises:
        PipelineError: A library that the format needs is not installed, or tables in a bucket cannot have the format.
        RunConflict: A table of the writers has rows of the origin's scope from another log.
    """
    outputs = [(writer.table, writer.format) for writer in writers if writer.table is not None]
    check_formats(writers, tables)
    for table in sorted({table for table, _ in outputs}):
        TableWriters(tables).check(table, origin.writer)
    options = {writer.table: writer.options for writer in writers if isinstance(writer, Pipeline) and writer.table is not None}
    return {each: _open(each, tables, origin, fence, options) for each in sorted({format for _, format in outputs})}


def _open(format: TableFormat, tables: Tables, origin: Origin, fence: Callable[[], None], options: Mapping[str, TableOptions]) -> TableSink:
    """Return the sink of a format."""
    try:
        if format == "delta" or not isinstance(tables, Path):
            from headrace.pipeline.tables.delta.sink import DeltaSink

            return DeltaSink(tables, origin, fence, options)
        if format == "iceberg":
            from headrace.pipeline.tables.iceberg.sink import IcebergSink

            return IcebergSink(tables, origin, fence, options)
    except ModuleNotFoundError as error:
        library = "deltalake" if format == "delta" else "pyiceberg"
        a_table = "a Delta table" if format == "delta" else "an Iceberg table"
        raise PipelineError(f"A pipeline writes {a_table}, and {library} is missing.", hint=f"pip install 'headrace[{format}]'") from error
    return ParquetSink(tables, origin, fence)
