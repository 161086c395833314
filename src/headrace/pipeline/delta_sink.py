"""Delta tables: one commit for each run of a pipeline. Needs `headrace[delta]`, and no jar.

Delta's own application transactions say which batch of a run a table has, so a batch that comes again is not appended again; readers of
Delta (Spark, DuckDB, Trino, …) see a run's rows wholly or not at all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import SchemaMismatchError
from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.pipeline.ordering_file import sync_folder
from headrace.pipeline.sink import SMALL, Place, Stored, collected, sync

_ATTEMPT: Final = "headrace.attempt"
_APP: Final = "headrace.run"


class DeltaSink:
    """Appends the rows of each run of a query once. `tables` is the folder that has a folder for each table."""

    def __init__(self, tables: Path, query_id: str, fence: Callable[[], None] = lambda: None) -> None:
        self._tables = tables
        self._fence = fence
        self._query = query_id

    def stored(self, place: Place) -> Stored | None:
        """Return the run's rows if the table has them."""
        table = self._open(place.table)
        done = None if table is None else table.transaction_version(self._app(place))
        if table is None or done is None or done < place.batch:
            return None
        for commit in table.history():
            if commit.get(_APP) == f"{self._app(place)}/{place.batch}":
                return Stored(int(commit[_ATTEMPT]), commit["operationMetrics"]["num_added_rows"])
        raise PipelineError(
            f"The table {place.table!r} has batch {place.batch} of {place.pipeline!r}, but its history of that is gone.",
            hint="Delta forgets history after 30 days (delta.logRetentionDuration); begin anew with --reset-order --from now.",
        )

    def store(self, place: Place, attempt: int, rows: DataFrame, events: int) -> int:
        """Append the rows that came of so many events in one durable commit; return how many they are."""
        folder = self._tables / place.table
        before = self._open(place.table)
        seen = -1 if before is None else before.version()
        folder.mkdir(parents=True, exist_ok=True)
        staging = self._tables / ".staging" / place.table
        try:
            written = _written(rows, staging, small=events <= SMALL)
            self._fence()
            write_deltalake(folder, written, mode="append", commit_properties=self._commit(place, attempt))
        except SchemaMismatchError as error:
            raise PipelineError(
                f"its rows do not fit the Delta table {place.table!r}: {error}",
                hint="Change the table (ALTER TABLE … ADD COLUMN), or give the pipeline another table; then redrive its dead letter.",
            ) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        _make_durable(folder, seen)
        stored = self.stored(place)
        return stored.rows if stored is not None else 0

    def _open(self, name: str) -> DeltaTable | None:
        folder = self._tables / name
        if DeltaTable.is_deltatable(str(folder)):
            return DeltaTable(folder)
        if any(folder.glob("*.parquet")):
            raise PipelineError(
                f"{folder} holds a table of plain Parquet files, and the pipeline writes Delta.",
                hint=f"Make it one (`from deltalake import convert_to_deltalake; convert_to_deltalake({str(folder)!r})`) or move it away.",
            )
        return None

    def _app(self, place: Place) -> str:
        return "/".join(filter(None, (self._query, place.pipeline, place.part)))

    def _commit(self, place: Place, attempt: int) -> CommitProperties:
        app = self._app(place)
        return CommitProperties(
            custom_metadata={_APP: f"{app}/{place.batch}", _ATTEMPT: str(attempt)},
            app_transactions=[Transaction(app, place.batch)],
        )


def _written(rows: DataFrame, staging: Path, *, small: bool) -> pa.Table | pa.RecordBatchReader:
    """Return the rows: of a small batch as they are, of others by way of files, so that they need not fit into the driver's memory."""
    table = collected(rows) if small else None
    if table is not None:
        return table
    rows.write.mode("overwrite").parquet(staging.absolute().as_uri())
    return ds.dataset(staging, format="parquet").scanner().to_reader()


def _make_durable(folder: Path, seen: int) -> None:
    """Bring what was committed after version `seen` to the disk: Spark's commit of the batch follows, and may survive a power loss."""
    log = folder / "_delta_log"
    for version in range(seen + 1, DeltaTable(folder).version() + 1):
        entry = log / f"{version:020}.json"
        for line in entry.read_text().splitlines():
            action: dict[str, Any] = json.loads(line)
            if "add" in action:
                sync(folder / action["add"]["path"])
        sync(entry)
    sync_folder(log)
    sync_folder(folder)
    sync_folder(folder.parent)
