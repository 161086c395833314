"""Raw events of an ordered history: their JSON, and reads of some positions only."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.replay.options import HistoryColumns
from headrace.replay.raw_events import Positions, RawEvents, encoded_rows

NANOSECONDS = 1_763_700_000_123_456_789


def test_times_with_nanoseconds_have_microseconds_in_json() -> None:
    """Pandas writes such times by default. They failed a backtest."""
    inner = pa.list_(pa.struct([("at", pa.timestamp("ns"))]))
    rows = pa.table({"at": pa.array([NANOSECONDS], pa.timestamp("ns", "UTC")), "stops": pa.array([[{"at": -1_001}]], inner)})
    assert list(encoded_rows(rows)) == [b'{"at":"2025-11-21T04:40:00.123456Z","stops":[{"at":"1969-12-31T23:59:59.999999"}]}']


@pytest.fixture
def events(tmp_path: Path) -> RawEvents:
    """Return 100 events in two files with row groups of 20; positions 51 to 60 are not used."""
    for number, first in enumerate((1, 61)):
        positions = range(first, first + 50)
        rows = {"position": positions, "mark": pa.nulls(50, pa.string()), "id": [f"e{position}" for position in positions]}
        rows["at"] = [datetime.fromtimestamp(position, UTC) for position in positions]
        pq.write_table(pa.table(rows), tmp_path / f"part-{number}.parquet", row_group_size=20)
    return RawEvents(tmp_path, HistoryColumns("id", "at", None))


def test_events_at_some_positions_are_read_in_order(events: RawEvents) -> None:
    assert events.last_position() == 110
    for some in ([], [1], [110], [7, 8, 50, 61], [20, 21, 40, 41, 80, 81, 110]):
        assert [event.position for event in events.at(Positions.of(reversed(some)))] == some
        assert sorted(events.identified(some)) == some
    assert [event.position for event in events.at(Positions.of(range(111)))] == [event.position for event in events]
    assert events.identified([61])[61] == (61, "e61", datetime.fromtimestamp(61, UTC))


def test_a_set_has_the_positions_that_were_added() -> None:
    positions = Positions(40)
    for part in ([3, 40], [8, 9, 3]):
        positions.add(np.array(part))
    assert [number for number in range(50) if positions.has(np.array([number]))[0]] == [3, 8, 9, 40]
    assert not positions.may_have_any(48, 60)
