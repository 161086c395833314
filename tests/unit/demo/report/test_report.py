from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from rich.console import Console

from headrace.demo.report.check import CheckResult, Point, check_tables
from headrace.demo.report.report import check_table, mean_delay_by_hour, report, sums_by
from headrace.demo.report.tables import BoardHour, read_board, read_departures
from support.pipelines.flights import few_plan, right_outcome

OUTCOME = right_outcome()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with both tables, each in two files."""
    few_plan().manifest.save(tmp_path)
    folder = tmp_path / "tables" / "knock_on_delay"
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist([departure._asdict() for departure in OUTCOME.departures])
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), folder / "0.parquet")
    pq.write_table(table.slice(half), folder / "1.parquet")
    board = [hour._asdict() for hour in OUTCOME.board]
    write_deltalake(tmp_path / "tables" / "hourly_board", pa.Table.from_pylist(board[:9]))
    write_deltalake(tmp_path / "tables" / "hourly_board", pa.Table.from_pylist(board[9:]), mode="append")
    return tmp_path


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=120, force_terminal=False)


def test_tables_are_read_back_unchanged(home: Path) -> None:
    assert read_departures(home / "tables") == OUTCOME.departures
    assert sorted(read_board(home / "tables")) == sorted(OUTCOME.board)


def test_the_result_is_printed_and_drawn(home: Path) -> None:
    console = plain_console()
    checked = check_tables(OUTCOME.manifest, OUTCOME.legs, OUTCOME.departures, OUTCOME.board, OUTCOME.dead_letters)
    chart = report(home, console, checked)
    assert chart.read_bytes().startswith(b"\x89PNG")
    text = printed(console)
    assert "Knock-on delay by airline" in text
    assert "✗" not in text
    assert text.count("✓") == len(checked.points)


def test_a_failed_point_is_printed_with_its_examples() -> None:
    console = plain_console()
    console.print(check_table(CheckResult([Point("Nothing is lost", 3, 1, ["[a-1] is not in the table"])])))
    assert "✗" in printed(console)
    assert "[a-1] is not in the table" in printed(console)


def test_sums_count_late_minutes_only_and_are_sorted_by_knock_on_delay() -> None:
    row = OUTCOME.departures[0]
    rows = [
        row._replace(carrier="A", dep_delay=-5, knocked_on=0),
        row._replace(carrier="B", dep_delay=60, knocked_on=15),
        row._replace(carrier="A", dep_delay=20, knocked_on=5),
        row._replace(carrier="A", dep_delay=None, knocked_on=None),
    ]
    first, second = sums_by(rows, [one.carrier for one in rows])
    assert (first.name, first.departures, first.delay, first.knocked_on, first.share) == ("B", 1, 60, 15, 0.25)
    assert (second.name, second.departures, second.delay, second.knocked_on, second.share) == ("A", 3, 20, 5, 0.25)


def test_hours_are_in_new_york_time_and_cancelled_departures_have_no_delay() -> None:
    hour = OUTCOME.board[0].hour.replace(hour=15)
    board = [BoardHour(hour, "JFK", 3, 1, 1, 30), BoardHour(hour, "LGA", 1, 0, 0, 0), BoardHour(hour.replace(hour=20), "LGA", 1, 1, 0, 0)]
    assert mean_delay_by_hour(board) == {10: 10.0}
