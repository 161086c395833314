"""The protocol of sinks, which store the rows of runs in one table format."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from pyspark.sql import DataFrame

from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.batches import Later

ICEBERG_MARK: Final = "_iceberg"
"""The file in a table's folder that says that it is an Iceberg table. Its files may be elsewhere."""


class TableSink(Later, Protocol):
    """Stores the rows of each run once."""

    def stored(self, key: RunKey, digest: str) -> StoredRun | None:
        """Return the run's rows if the table has them.

        Raises:
            RunConflict: The table has rows of other events for the run, or rows of this scope name from another log.
        """

    def shut_out(self, keys: Iterable[RunKey]) -> None:
        """Fence earlier drivers that were paused, so that they store no rows of these runs. Call it before looking for the rows."""

    def store(self, key: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Write the rows that were computed from `events` events durably, then make them visible atomically; return their number.

        Raises:
            TypeConflict: The rows do not fit the table. Nothing was written.
            RunConflict: As for `stored`.
        """


def no_fence() -> None:
    """Allow every driver to write."""


def new_staging(tables: Path, origin: Origin) -> Path:
    """Return a folder for the drafts of one sink, and remove those of the origin's earlier drivers.

    It is unique, because tasks of a driver that was killed may write for a while longer.
    """
    folder = tables / ".staging"
    prefix = origin.key("staging")[:16]
    for left in folder.glob(f"{prefix}-*"):
        shutil.rmtree(left, ignore_errors=True)
    return folder / f"{prefix}-{uuid4().hex[:8]}"
