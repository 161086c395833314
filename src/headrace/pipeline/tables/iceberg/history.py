"""The history of an Iceberg table: its snapshots, and the runs that made them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pyiceberg.table import Table

from headrace.pipeline.runs.identity import RUN_KEY, RunIdentity

ROWS_KEY: Final = "headrace.rows"
"""The key of the number of a run's rows in the summary of its snapshot: the files of a replacement also have other rows."""


class Change(NamedTuple):
    """A snapshot of a table that changed its rows, or that a run made."""

    snapshot: int
    run: RunIdentity | None
    rows: int
    seconds: float


def changes_of(table: Table) -> Iterator[Change]:
    """Yield the changes of a table, as far as it has snapshots, without compactions."""
    for snapshot in table.metadata.snapshots:
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        run = RunIdentity.parsed(summary.get(RUN_KEY))
        added, removed = int(summary.get("added-records", 0)), int(summary.get("deleted-records", 0))
        if run is not None or added != removed:
            yield Change(snapshot.snapshot_id, run, int(summary.get(ROWS_KEY, added)), snapshot.timestamp_ms / 1000)


def has_whole_history(table: Table) -> bool:
    """Return whether the table has all its snapshots. The oldest snapshot after a removal has lost its parent."""
    snapshots = table.metadata.snapshots
    return not snapshots or any(snapshot.sequence_number == 1 for snapshot in snapshots)
