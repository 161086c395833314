"""The demo's tables on the disk, read with Arrow alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from headrace.errors import ResourceError


class Departure(NamedTuple):
    """One row of the table `knock_on_delay`; delays in minutes."""

    leg_id: str
    previous_leg_id: str | None
    tail_number: str
    carrier: str
    dep_delay: int | None
    previous_delay: int | None
    knocked_on: int | None
    position: int
    mark: str | None
    seq: int


class BoardHour(NamedTuple):
    """One row of the table `hourly_board`: the sums of an hour of an airport."""

    hour: datetime
    origin: str
    departures: int
    cancelled: int
    delayed: int
    delay_minutes: int


def read_departures(tables: Path) -> list[Departure]:
    """Return all rows of `knock_on_delay`. Raises `ResourceError`."""
    table = _read(tables / "knock_on_delay", Departure._fields)
    return [Departure(*row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def read_board(tables: Path) -> list[BoardHour]:
    """Return all rows of `hourly_board`. Raises `ResourceError`."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    path = tables / "hourly_board"
    try:
        table = pa.table(DeltaTable(path).to_pyarrow_table(columns=list(BoardHour._fields)))
    except (OSError, DeltaError) as error:
        raise _unreadable(path, error) from error
    hour = table.column("hour")
    seconds = hour.cast(pa.timestamp("s", tz=hour.type.tz)).cast(pa.int64()).to_pylist()
    rest = (column.to_pylist() for column in table.drop_columns(["hour"]).columns)
    return [BoardHour(datetime.fromtimestamp(second, UTC), *row) for second, *row in zip(seconds, *rest, strict=True)]


def _read(path: Path, columns: tuple[str, ...]) -> Any:
    try:
        return ds.dataset(path, format="parquet").to_table(columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ResourceError:
    return ResourceError(f"The table {path} cannot be read: {error}", hint="Has the demo's pipeline written anything yet?")
