"""The sizes of the database, folders and processes depend on live and retained objects, not on the days of operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.custody.subscriber_sets import MAX_UNMERGED_SETS
from headrace.store.retention.pruner import BATCH_ROWS
from support.processes.store import DATABASES, database_url
from support.year.kit import Day, Shape, Year, steady_from

DAYS = 12
BOUNDS = {
    "rows: subscriber sets": 2 * MAX_UNMERGED_SETS + 20,  # they are merged in bulk
    "rows: books": 4,  # one is of all task runs that have ended
    "rows: triggers": 30,  # the last stays, whatever it was
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES)
def test_sizes_do_not_grow_after_the_retention_period(kind: str, tmp_path: Path) -> None:
    shape = Shape(files=4, lines=3, line_bytes=100, runs=700, live=40, waiting=20, retention=1)
    days = list(Year(database_url(kind, tmp_path), tmp_path, shape).days(DAYS))
    early, late = days[steady_from(shape)], days[-1]
    for name, value in late.figures.items():
        if name.startswith("rows: ") or "finished files" in name:
            assert value <= max(early.figures[name], BOUNDS.get(name, 0)), name
    assert late.figures["rows: task runs"] < 2 * shape.runs
    assert late.figures["heartbeat bytes"] <= early.figures["heartbeat bytes"] * 1.1  # counters have more digits
    assert late.figures["heartbeat answer bytes"] <= early.figures["heartbeat answer bytes"] * 1.1
    assert deleted(days, "ended task runs") > BATCH_ROWS, "more than one transaction deletes"


def deleted(days: list[Day], name: str) -> int:
    """Return how many rows, at most, the transactions of one kind deleted on the last day."""
    return BATCH_ROWS * sum(step.name == name for step in days[-1].retention)
