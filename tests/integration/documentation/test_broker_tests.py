"""Each test file that the page about tests on real brokers names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "design" / "broker-tests.md").read_text("utf-8")
FOLDERS = {"kafka shards": "kafka", "rabbitmq streams": "rabbitmq/streams", "s3": "objects", "gs": "objects", "az": "objects"}
NOTES = {int(number) for number in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)}


def tables() -> list[list[list[str]]]:
    """Return the tables of cases, as rows of cells."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
    starts = [number for number, row in enumerate(rows) if row[0] == "case"]
    return [rows[first:last] for first, last in zip(starts, [*starts[1:], len(rows)], strict=True)]


def words() -> dict[str, str]:
    """Return the words of the first table, with the first path that each one means."""
    return dict(re.findall(r"^\| `(\w+)` \| `([\w./-]+)`", PAGE, re.MULTILINE))


@pytest.mark.parametrize("table", tables(), ids=["positions", "queues"])
def test_each_cell_names_a_file_or_a_reason(table: list[list[str]]) -> None:
    head, _, *cases = table
    for case, *cells in cases:
        for broker, cell in zip(head[1:], cells, strict=True):
            for word in filter(None, cell.split(", ")):
                if word.startswith("n/a "):
                    assert int(word[4:]) in NOTES, (case, broker)
                elif not re.fullmatch(r"[\d,]+", cell):
                    path = words().get(word, f"tests/brokers/{FOLDERS.get(broker, broker)}/test_{word}.py")
                    assert (ROOT / path).is_file(), (case, broker, path)


def test_both_tables_have_the_same_cases() -> None:
    first, second = ([row[0] for row in table] for table in tables())
    assert first == second
