"""The compaction of a table, by its format."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from headrace.errors import PipelineError
from headrace.pipeline.table_storage.tables import Tables
from headrace.pipeline.tables.compaction.small_files import Compaction
from headrace.pipeline.tables.parquet.compaction import Exclusion, ParquetCompaction
from headrace.pipeline_declaration import TableFormat


class FormatCompaction(Protocol):
    """Compacts one table."""

    def run(self, at_least: int | None = None) -> Compaction | None:
        """Merge the small files if there are `at_least` of them, or all files below the target size if None.

        Return None if there are fewer, or if it is stopped.

        Raises:
            TableBusy: Another compaction or pipelines use the table. Try again later.
            CompactionUnsupported: The table cannot be compacted where it is.
            PipelineError: The table cannot be read or written.
        """

    def vacuum(self, keep_hours: int | None = None, *, dry_run: bool = False) -> Sequence[str]:
        """Remove the files that were replaced more than `keep_hours` ago; return them. None stands for the retention of the table."""


def open_compaction(
    tables: Tables, table: str, format: TableFormat, *, stop: threading.Event | None = None, exclude: Exclusion | None = None
) -> FormatCompaction:
    """Return the compaction of a table in the folder `tables`, which is on a disk for other formats than Delta.

    Once `stop` is set, a compaction of a Parquet table ends without an effect.

    Raises:
        PipelineError: The library of the format is missing.
    """
    try:
        if format == "delta" or not isinstance(tables, Path):
            from headrace.pipeline.tables.delta.compaction import DeltaCompaction

            return DeltaCompaction(tables, table)
        if format == "iceberg":
            from headrace.pipeline.tables.iceberg.maintenance import IcebergCompaction

            return IcebergCompaction(tables, table)
    except ModuleNotFoundError as error:
        hint = f"pip install 'headrace[{format}]'"
        raise PipelineError(f"The table {table!r} has the format {format}, and {error.name} is missing.", hint=hint) from error
    return ParquetCompaction(tables, table, stop or threading.Event(), exclude)
