"""A sink: what each table format does with the rows of a run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from pyspark.sql import DataFrame

from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, Stored
from headrace.pipeline.tables.batches import Later


class TableSink(Later, Protocol):
    """Where the rows of each run go, once."""

    def stored(self, place: RunKey, digest: str) -> Stored | None:
        """Return the run's rows if the table has them.

        Raises:
            RunConflict: The table has rows of other events for the run, or rows of this scope name from another log.
        """

    def shut_out(self, places: Iterable[RunKey]) -> None:
        """Fence earlier drivers that were paused: they store no rows of these runs. Call it before looking for the rows."""

    def store(self, place: RunKey, attempt: Attempt, rows: DataFrame, events: int) -> int:
        """Write the rows that came of so many events durably, then show them to readers all at once; return how many they are.

        Raises:
            TypeConflict: The rows do not fit the table. Nothing was written.
            RunConflict: As for `stored`.
        """


def no_fence() -> None:
    """Allow every driver to write."""


def new_staging(tables: Path, origin: Origin) -> Path:
    """Return a folder for the drafts of one sink, and remove those of the origin's earlier drivers.

    It is a folder of its own: tasks of a driver that was killed may write for a while longer.
    """
    folder = tables / ".staging"
    prefix = origin.key("staging")[:16]
    for left in folder.glob(f"{prefix}-*"):
        shutil.rmtree(left, ignore_errors=True)
    return folder / f"{prefix}-{uuid4().hex[:8]}"
