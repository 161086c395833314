"""The demo's feed with the reader of its folder: a real `Directory` reads the files and moves them to `done`."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest

from headrace.demo.feed import writer
from headrace.demo.feed.manifest import Parameters
from headrace.demo.feed.plan import FeedPlan
from headrace.demo.feed.writer import run_feed
from headrace.demo.report.check import check_tables, feed_is_complete
from headrace.demo.watch import complete
from headrace.sources.directory import folder, lane
from headrace.sources.directory import lanes as directory_lanes
from headrace.sources.directory.upstream import Directory
from headrace.testing.contract.reading import reading
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.status import EventCount, Status, Totals
from support.pipelines.flights import few_plan, right_outcome
from support.sources.folders import files_done, until_done

NOW = datetime(2026, 1, 31, tzinfo=UTC)
NEXT_DAY = datetime(2026, 2, 1, tzinfo=UTC).date()


@pytest.fixture(autouse=True)
def few_flights_and_short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(_: Parameters) -> FeedPlan:
        return few_plan()

    monkeypatch.setattr(writer, "plan_feed", plan)
    monkeypatch.setattr(lane, "QUIET", 0.1)
    monkeypatch.setattr(directory_lanes, "QUIET", 0.1)


class StopAtSlice(Event):
    """Stops the feed before the slice of that number, counted from where the feed begins."""

    def __init__(self, slices: int) -> None:
        super().__init__()
        self._left = slices

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


def status() -> Status:
    """Return the status of an api whose one scope has committed the whole log."""
    return Status(
        version="0",
        now=NOW,
        head=9,
        events=EventCount(total=9, per_second=0.0),
        dead_letters=0,
        jobs=[],
        triggers=[],
        streams=[],
        totals=Totals(read=9, fired=9, stored=9, advanced=9, waiting=0, ordered=9, rows=9, dead_letters=0, lost=0),
        scopes=[ScopeStatus(scope="legs", cursor=9, lag=0, waiting=0, ordered=9, lost=0, late=0, cycles=0, batch=1, updated=NOW)],
        pipelines=[],
        runs=[],
        recent=[],
    )


async def read_to_done(home: Path) -> dict[tuple[str, int], str]:
    """Read all that is in the feed's folder and wait until it is done; return the lane of each line by its file and offset."""
    files = {path.name: path.read_bytes() for path in (home / "feed").glob("*.jsonl")}
    before = len(files_done(home / "feed", "*.jsonl"))
    async with reading(Directory(home / "feed").producer()) as held:
        items = await held.take(sum(data.count(b"\n") for data in files.values()))
        await held.advance(items)
        await until_done(home / "feed", "*.jsonl", before + len(files))
    return {(raw.lane.partition("@")[0], raw.position): raw.lane for raw, _ in items}


async def test_a_feed_that_is_read_over_midnight_is_complete_with_its_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = run_feed(tmp_path, few_plan().manifest.parameters, StopAtSlice(3))
    lanes = await read_to_done(tmp_path)
    moved = {path.name for path in files_done(tmp_path / "feed", "*.jsonl")}
    assert 0 < len(moved) < manifest.files
    assert not complete(status(), tmp_path)

    monkeypatch.setattr(folder, "day", lambda: NEXT_DAY)
    run_feed(tmp_path, few_plan().manifest.parameters)
    assert {path.name for path in (tmp_path / "feed").glob("*.jsonl")} == {file.name for file in few_plan().files} - moved
    assert feed_is_complete(tmp_path, manifest).ok
    assert not complete(status(), tmp_path)
    lanes |= await read_to_done(tmp_path)
    assert complete(status(), tmp_path)
    assert feed_is_complete(tmp_path, manifest).ok

    right = right_outcome()
    letters = [
        letter.model_copy(update={"lane": lanes[bad.file, bad.offset]})
        for letter, bad in zip(right.dead_letters, manifest.bad, strict=True)
    ]
    outcome = replace(right, dead_letters=letters)
    assert check_tables(outcome.manifest, outcome.legs, outcome.departures, outcome.board, outcome.dead_letters).ok
