"""Open the sinks of the tables that pipelines write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from headrace.errors import PipelineError
from headrace.pipeline.runs.identity import Origin
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.sink import TableSink, no_fence
from headrace.pipeline.tables.writers import TableWriters
from headrace.pipeline_declaration import TableFormat


class Writer(Protocol):
    """A pipeline or an open run: the table for its rows, and the table's format."""

    @property
    def table(self) -> str | None:
        """The table, or None."""

    @property
    def format(self) -> TableFormat:
        """The table's format."""


def open_sinks(
    writers: Iterable[Writer], tables: Path, origin: Origin, fence: Callable[[], None] = no_fence
) -> Mapping[TableFormat, TableSink]:
    """Return a sink for each format of the writers, for the runs of one origin.

    A sink calls `fence` before it makes rows visible. `fence` raises if this driver has lost its scope.

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
            from headrace.pipeline.tables.delta.sink import DeltaSink
        except ModuleNotFoundError as error:
            raise PipelineError(
                "A pipeline writes a Delta table, and deltalake is missing.", hint="pip install 'headrace[delta]'"
            ) from error
        sinks[each] = DeltaSink(tables, origin, fence)
    return sinks
