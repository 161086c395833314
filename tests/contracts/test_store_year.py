"""Books forget: what a database holds does not grow with the days behind it, only with what is live and what retention keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store.crews import KEPT
from store_kit import DATABASES, database_url
from year_kit import Shape, year


@pytest.mark.slow
@pytest.mark.parametrize("kind", DATABASES)
def test_after_the_time_of_retention_nothing_grows(kind: str, tmp_path: Path) -> None:
    shape = Shape(files=4, runs=40, waiting=20, together=2, payload=50, retention=2)
    found = list(year(database_url(kind, tmp_path), tmp_path / "headrace.db", shape, days=8))
    half, last = found[3], found[-1]
    bound = {"crews": 2 * KEPT + 20, "books": 4}  # crews are merged in bulk, once a day; one row is of all runs that have ended
    for name, rows in last.rows.items():
        assert rows <= max(half.rows[name] * 1.1, bound.get(name, 0)), name
    assert last.marks == half.marks
    assert last.heartbeat <= half.heartbeat * 1.3  # ids have more digits
