"""The journal of a folder is bounded by the number of unfinished files, however many files there were."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import date, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.errors import UpstreamError
from headrace.sources.directory import files, lane
from headrace.sources.directory import folder as directory_folder
from headrace.sources.directory import journal as directory_journal
from headrace.sources.directory import lanes as directory_lanes
from headrace.sources.directory import producer as directory_producer
from headrace.sources.directory.files import Scan
from headrace.sources.directory.folder import Folder
from headrace.sources.directory.producer import DirectoryProducer
from headrace.sources.directory.upstream import Directory
from headrace.sources.directory.waiting import Selection, Waiting
from headrace.testing.contract.reading import Reading, reading
from headrace.triggers.upstream import load_upstream
from support.sources.folders import files_done, put
from support.sources.kit import PATIENCE

DAYS = 30
FILES = 40


@pytest.fixture
def feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (lane, directory_lanes):
        monkeypatch.setattr(module, "QUIET", 0.0)
    monkeypatch.setattr(directory_journal, "COMPACT_AT_BYTES", 20_000)
    folder = tmp_path / "feed"
    folder.mkdir()
    return folder


async def a_day(held: Reading, feed: Path, monkeypatch: pytest.MonkeyPatch, today: date) -> None:
    """Let files of the same names as each day be read, advanced and moved."""
    monkeypatch.setattr(directory_folder, "day", lambda: today)
    for number in range(FILES):
        put(feed / f"{number}.jsonl", b"1\n2\n")
    items = await held.take(2 * FILES)
    await held.advance(items)
    await all_moved(feed, today)


async def all_moved(feed: Path, today: date) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(list(feed.glob(f"done/{today.isoformat()}/*"))) < FILES:
            await asyncio.sleep(0.005)


async def test_the_journal_does_not_grow_over_a_month(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = date(2026, 1, 1)
    journal = feed / ".headrace" / "progress.jsonl"
    producer = Directory(feed, keep_done=7).producer()
    async with reading(producer) as held:
        for number in range(DAYS):
            await a_day(held, feed, monkeypatch, begin + timedelta(days=number))
            assert journal.stat().st_size < 100_000
        lanes = producer._lanes
        async with asyncio.timeout(PATIENCE):
            while lanes._open:
                await asyncio.sleep(0.005)
        books = (lanes._open, lanes._by_file, lanes._by_key, lanes._lost, lanes._resume, lanes.failures)
        assert [len(book) for book in books] == [0] * len(books)
        assert len(lanes._due) < DAYS * FILES // 2
    assert sorted(path.name for path in (feed / "done").iterdir()) == [
        (begin + timedelta(days=number)).isoformat() for number in range(DAYS - 8, DAYS)
    ]
    again = Directory(feed, keep_done=7).producer()
    async with reading(again) as held:
        put(feed / "last.jsonl", b"1\n")
        await held.take(1)
        assert journal.stat().st_size < 1_000


async def test_finished_files_are_retained_without_limit_unless_keep_done_is_set(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (feed / "done" / "mine").mkdir(parents=True)
    (feed / "done" / "2020-13-99").mkdir()
    async with reading(Directory(feed).producer()) as held:
        for number in (0, 400):
            await a_day(held, feed, monkeypatch, date(2026, 1, 1) + timedelta(days=number))
    assert len(files_done(feed, "*.jsonl")) == 2 * FILES
    async with reading(Directory(feed, keep_done=1).producer()) as held:
        await a_day(held, feed, monkeypatch, date(2027, 2, 6))
    assert sorted(path.name for path in (feed / "done").iterdir()) == ["2020-13-99", "2027-02-05", "2027-02-06", "mine"]


def test_keep_done_is_serialized() -> None:
    upstream = Directory("feed", keep_done=30)
    assert upstream.serialize()[1] == {"path": "feed", "pattern": "*.jsonl", "keep_done": 30}
    again = load_upstream(*upstream.relative_to(Path("/x")).serialize())
    assert again.serialize()[1]["keep_done"] == 30
    assert isinstance(again.producer(), DirectoryProducer)
    with pytest.raises(UpstreamError, match="0 days"):
        Directory("feed", keep_done=0)


async def test_a_long_scan_does_not_delay_reading(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_producer, "EARLY_AFTER", -1.0)
    monkeypatch.setattr(directory_producer, "EARLY_FILES", 10)
    monkeypatch.setattr(files, "SCAN_STEP", 1)
    monkeypatch.setattr(files, "SLICE_SECONDS", 0.0)
    was_read, proceed = threading.Event(), Scan.proceed
    steps = count(1)
    monkeypatch.setattr(Scan, "proceed", lambda scan: (next(steps) < 100 or was_read.wait(PATIENCE)) and proceed(scan))
    for number in range(300):
        (feed / f"{number}.jsonl").write_bytes(b"%d\n" % number)
    producer = Directory(feed).producer()
    async with reading(producer) as held:
        items = await held.take(1)
        assert producer._scanned == 0
        was_read.set()
        items += await held.take(299)
        assert sorted(int(raw.data) for raw, _ in items) == list(range(300))
        await held.advance(items)
        async with asyncio.timeout(PATIENCE):
            while len(files_done(feed, "*")) < 300:
                await asyncio.sleep(0.01)
        assert held._queue.empty()


async def test_more_files_than_fit_in_memory_are_all_read_in_order(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that changed longest ago first, then by name, although at most 100 of 1,000 are known at a time."""
    monkeypatch.setattr(directory_lanes, "Waiting", partial(Waiting, 100))
    monkeypatch.setattr(files, "Selection", partial(Selection, 100))
    total = 1_000
    for number in range(total):
        path = feed / f"{number:06}.jsonl"
        path.write_bytes(b"%d\n" % number)
        age = 10**9 * (10**9 + number // 300)
        os.utime(path, ns=(age, age))
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(total)
        assert [int(raw.data) for raw, _ in items] == list(range(total))
        await held.advance(items)


def test_old_finished_files_are_deleted_in_batches(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_folder, "MAX_DELETED_ENTRIES", 10)
    monkeypatch.setattr(directory_folder, "day", lambda: date(2026, 1, 9))
    for name in ("2026-01-01", "2026-01-02", "2026-01-08"):
        (feed / "done" / name).mkdir(parents=True)
        for number in range(25):
            (feed / "done" / name / f"{number}.jsonl").touch()
    (feed / "done" / "2026-01-02" / "theirs").mkdir()
    folder = Folder(feed, keep_done=1)
    left = []
    for _ in range(7):
        folder.finish([])
        left.append(sum(len(list(old.iterdir())) for old in (feed / "done").glob("2026-01-0[12]")))
    assert left == [41, 31, 21, 11, 1, 0, 0]
    folder.finish([])
    assert sorted(path.name for path in (feed / "done").iterdir()) == ["2026-01-08", "2026-01-09"]
    assert len(files_done(feed, "*.jsonl")) == 25
    folder.close()


def test_finished_files_that_cannot_be_deleted_are_logged_once_a_day(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_folder, "day", lambda: date(2026, 1, 9))
    for name in ("2026-01-01", "2026-01-02"):
        (feed / "done" / name).mkdir(parents=True)
    (feed / "done" / "2026-01-03").symlink_to("nowhere")
    folder = Folder(feed, keep_done=1)
    with capture_logs() as logged:
        folder.finish([])
        folder.finish([])
    assert [one["folder"] for one in logged if one["log_level"] == "warning"] == [str(feed / "done" / "2026-01-03")]
    assert sorted(path.name for path in (feed / "done").iterdir()) == ["2026-01-03", "2026-01-09"]
    folder.close()
