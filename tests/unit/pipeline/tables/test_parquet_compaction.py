"""Compactions of Parquet tables: readers, repeated runs and killed processes see each row exactly once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import PipelineError, RunConflict
from headrace.pipeline.execution.run_lock import RunLock
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey, StoredRun
from headrace.pipeline.tables.compaction import file_system, table_lock
from headrace.pipeline.tables.compaction.file_system import CompactionUnsupported
from headrace.pipeline.tables.compaction.listing_watch import ListingWatch
from headrace.pipeline.tables.compaction.small_files import MAX_REST, TARGET_BYTES, Compaction, merge_limit
from headrace.pipeline.tables.compaction.table_lock import TableBusy, compactor_lock, exchange_lock, writer_lock
from headrace.pipeline.tables.contents import no_progress, read_table
from headrace.pipeline.tables.maintenance import compact, summarize, vacuum
from headrace.pipeline.tables.parquet import compaction
from headrace.pipeline.tables.parquet.compaction import ParquetCompaction
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.rows import Rows
from support.pipelines.power_cut import UnsyncedWrites

ORIGIN = Origin("log", "shop", "first")
STEPS = ((os, "fsync"), (os, "link"), (compaction, "exchange"), (Path, "rename"), (Path, "mkdir"))
"""What a compaction calls between two states of the disk."""


PAUSE_SECONDS = 0.3
"""Of a reader, which otherwise lists the folder all the time. Then it is not exchanged."""


class Died(BaseException):
    """The process was killed."""


@pytest.fixture(autouse=True)
def no_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare compactions the wait for readers. A test that has some sets the time again."""
    monkeypatch.setattr(compaction, "_QUIET_SECONDS", 0.0)


def append(tables: Path, batch: int, values: list[int] | pa.Table, sink: ParquetSink | None = None, pipeline: str = "legs") -> int:
    table = values if isinstance(values, pa.Table) else pa.table({"n": pa.array(values, pa.int64())})
    key = RunKey("legs", pipeline, batch)
    return (sink or ParquetSink(tables, ORIGIN)).append(key, Attempt(f"d{batch}", 1, f"r{batch}"), Rows(table, None, table.schema))


def rows(tables: Path) -> list[int]:
    """Return the rows as pyarrow lists and reads them."""
    values: list[int] = pq.read_table(tables / "legs").column("n").to_pylist()
    return sorted(values)


def names(folder: int) -> set[str]:
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries}


def merge(tables: Path, at_least: int | None = None) -> Compaction | None:
    return ParquetCompaction(tables, "legs", threading.Event()).run(at_least)


@contextmanager
def steps(monkeypatch: pytest.MonkeyPatch, at: Callable[[], None]) -> Iterator[None]:
    """Call `at` before each step of a compaction in this thread."""
    with monkeypatch.context() as patched:
        for owner, name in STEPS:
            step = getattr(owner, name)

            def stepped(*arguments: object, step: Callable[..., object] = step, **options: object) -> object:
                at()
                return step(*arguments, **options)

            patched.setattr(owner, name, stepped)
        yield


def test_a_compaction_keeps_rows_and_runs(tmp_path: Path) -> None:
    for batch in range(40):
        append(tmp_path, batch, [batch] * (batch % 3))
    before = [(entry.rows, entry.run) for entry in read_table(tmp_path / "legs", no_progress).entries]
    expected = sorted(batch for batch in range(40) for _ in range(batch % 3))
    assert merge(tmp_path) == (40, 1)
    assert merge(tmp_path) is None
    assert rows(tmp_path) == expected == sorted(pd.read_parquet(tmp_path / "legs")["n"])
    contents = read_table(tmp_path / "legs", no_progress)
    assert [(entry.rows, entry.run) for entry in contents.entries] == before
    assert not contents.unreadable
    summary = summarize(tmp_path)[0]
    assert (summary.rows, summary.files) == (len(expected), 1)
    sink = ParquetSink(tmp_path, ORIGIN)
    for batch in range(40):
        assert sink.stored(RunKey("legs", "legs", batch), f"d{batch}") == StoredRun(1, batch % 3)
        assert append(tmp_path, batch, [batch] * (batch % 3)) == batch % 3
    assert sink.stored(RunKey("legs", "legs", 40), "d40") is None
    assert sink.stored(RunKey("legs", "other", 3), "d3") is None
    with pytest.raises(RunConflict, match="which was merged"):
        sink.stored(RunKey("legs", "legs", 3), "other events")
    assert sink.later("legs", "legs", 37, 100) == 38
    assert sink.later("legs", "legs", 39, 100) is None
    assert rows(tmp_path) == expected


def test_columns_that_were_added_are_kept(tmp_path: Path) -> None:
    append(tmp_path, 0, [1])
    append(tmp_path, 1, pa.table({"n": pa.array([2], pa.int32()), "text": ["b"]}))
    append(tmp_path, 2, pa.table({"n": pa.array([3], pa.int32())}))
    expected: list[dict[str, object]] = [{"n": 1, "text": None}, {"n": 2, "text": "b"}, {"n": 3, "text": None}]
    merge(tmp_path)
    assert pq.read_table(tmp_path / "legs").to_pylist() == expected
    append(tmp_path, 3, pa.table({"more": [True], "n": pa.array([4], pa.int64())}))
    merge(tmp_path)
    assert pq.read_table(tmp_path / "legs").sort_by("n").to_pylist() == [{**row, "more": None} for row in expected] + [
        {"n": 4, "text": None, "more": True}
    ]


@pytest.mark.parametrize("seed", range(12))
def test_any_interleaving_equals_a_list_of_rows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores, repeated runs, compactions and kills at any step, with a reader at each step."""
    chance = random.Random(seed)
    expected: list[int] = []
    pending: list[int] = []  # rows of a run that is being stored
    sinks = [ParquetSink(tmp_path, ORIGIN) for _ in range(2)]

    def look() -> None:
        if (tmp_path / "legs").exists() and list((tmp_path / "legs").glob("*.parquet")):
            assert rows(tmp_path) in (sorted(expected), sorted(expected + pending))

    def killed_at(last: int, act: Callable[[], object]) -> bool:
        numbers = count()

        def at() -> None:
            look()
            if next(numbers) == last:
                raise Died

        with steps(monkeypatch, at):
            try:
                act()
            except Died:
                return True
        return False

    for batch in range(40):
        last = chance.randrange(60)
        pending = [batch] * chance.randrange(3)
        while killed_at(last, partial(append, tmp_path, batch, pending, chance.choice(sinks))):
            last = chance.randrange(60)
        expected += pending
        pending = []
        if chance.random() < 0.4:
            killed_at(chance.randrange(80), lambda: merge(tmp_path, chance.choice([None, 2, 6])))
        again = chance.randrange(batch + 1)
        stored = chance.choice(sinks).stored(RunKey("legs", "legs", again), f"d{again}")
        assert stored == StoredRun(1, expected.count(again))
        assert append(tmp_path, again, [again] * stored.rows, chance.choice(sinks)) == stored.rows
        look()
    merge(tmp_path)
    assert rows(tmp_path) == sorted(expected)
    assert len(list((tmp_path / "legs").glob("*.parquet"))) == 1
    vacuum(tmp_path, "legs", 0, dry_run=False)
    assert {path.name for path in (tmp_path / ".compaction" / "legs").iterdir()} == {"writers.lock", "compactor.lock", "replaced"}
    assert not list((tmp_path / ".compaction" / "legs" / "replaced").iterdir())


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from headrace.pipeline.tables.parquet import compaction

left = [int(sys.argv[2])]
def patch(owner, name):
    step = getattr(owner, name)
    def stepped(*arguments, **options):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return step(*arguments, **options)
    setattr(owner, name, stepped)
for owner, name in ((os, "fsync"), (os, "link"), (compaction, "exchange"), (Path, "rename"), (Path, "mkdir")):
    patch(owner, name)
assert compaction.ParquetCompaction(Path(sys.argv[1]), "legs", threading.Event()).run(2)
"""


@pytest.mark.slow
def test_a_compaction_that_is_killed_at_any_step_is_done_by_the_next(tmp_path: Path) -> None:
    steps_done = 0
    for number in count():
        tables = tmp_path / f"{number}"
        for batch in range(6):
            append(tables, batch, [batch])
        merge(tables, 2)
        for batch in range(6, 12):
            append(tables, batch, [batch])
        code = subprocess.run([sys.executable, "-c", KILLED, str(tables), str(number)], timeout=120, check=False).returncode
        assert rows(tables) == list(range(12))
        append(tables, 12, [12])
        merge(tables)
        assert [append(tables, batch, [batch]) for batch in range(13)] == [1] * 13
        assert rows(tables) == list(range(13))
        assert not (tables / ".compaction" / "legs" / "next").exists()
        if code == 0:
            break
        assert code == -signal.SIGKILL
        steps_done += 1
    assert steps_done > 15


def test_a_compaction_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in count():
        tables = tmp_path / f"{number}"
        tables.mkdir()
        disk = UnsyncedWrites(tables)
        with disk.noted(monkeypatch):
            for batch in range(6):
                append(tables, batch, [batch])
            numbers, died = count(), False

            def at(numbers: Iterator[int] = numbers, number: int = number) -> None:
                if next(numbers) == number:
                    raise Died

            with steps(monkeypatch, at):
                try:
                    merge(tables)
                except Died:
                    died = True
            if number % 2:
                append(tables, 6, [6])
        lost = disk.cut()
        append(tables, 6, [6])
        assert rows(tables) == list(range(7)), f"died at step {number}; the power cut took {lost}"
        merge(tables)
        assert [append(tables, batch, [batch]) for batch in range(7)] == [1] * 7
        assert rows(tables) == list(range(7))
        if not died:
            break
    assert number > 12


def read_until(stop: threading.Event, tables: Path, stored: list[int], read: Callable[[Path], list[int]], failures: list[str]) -> None:
    """Read the table in a loop. It has the rows stored before, and no row twice. A file may be replaced after it was listed."""
    is_first = True
    while is_first or not stop.wait(PAUSE_SECONDS):
        is_first = False
        before = stored[0]
        try:
            found = read(tables / "legs")
        except FileNotFoundError:
            continue
        if len(set(found)) != len(found) or not set(range(before)) <= set(found) <= set(range(stored[0] + 1)):
            failures.append(f"{before} to {stored[0]} rows are stored, and {len(found)} were read, {len(set(found))} of them different")


def test_concurrent_readers_and_writers_see_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_QUIET_SECONDS", 0.1)
    append(tmp_path, 0, [0])
    stored, failures, stop = [1], list[str](), threading.Event()
    merged = threading.Semaphore(0)
    reads: list[Callable[[Path], list[int]]] = [
        lambda path: list(pq.read_table(path).column("n").to_pylist()),
        lambda path: list(pd.read_parquet(path)["n"]),
    ]

    def compact_all() -> None:
        while not stop.is_set():
            with suppress(TableBusy):
                if merge(tmp_path, 8) is not None:
                    merged.release()

    threads = [threading.Thread(target=read_until, args=(stop, tmp_path, stored, read, failures)) for read in reads]
    threads += [threading.Thread(target=compact_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    sink = ParquetSink(tmp_path, ORIGIN)
    for batch in range(1, 300):
        append(tmp_path, batch, [batch], sink)
        stored[0] = batch + 1
        if batch % 20 == 0 and not merged.acquire(timeout=60):  # the writer may be faster than a compaction
            failures.append(f"no compaction after batch {batch}")
    stop.set()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert rows(tmp_path) == list(range(300))


def test_a_folder_that_is_being_listed_is_exchanged_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader as pyarrow is one: it opens the folder, reads the names, and then looks at each file by its path."""
    monkeypatch.setattr(compaction, "_QUIET_SECONDS", 1.0)
    for batch in range(4):
        append(tmp_path, batch, [batch])
    folder = tmp_path / "legs"
    listed, looked = list[Path](), list[bool]()
    is_quiet = ListingWatch.is_quiet

    def list_then_look() -> None:
        listed.extend(folder.iterdir())
        time.sleep(0.3)  # the reader is interrupted, which is what this test is about
        looked.extend(path.exists() for path in listed)

    def while_listed(self: ListingWatch, seconds: float) -> bool:
        if not readers:
            readers.append(threading.Thread(target=list_then_look))
            readers[0].start()
        return is_quiet(self, seconds)

    readers: list[threading.Thread] = []
    monkeypatch.setattr(ListingWatch, "is_quiet", while_listed)
    assert merge(tmp_path) is not None
    readers[0].join()
    assert len(listed) >= 4
    assert all(looked), "the reader sees one folder"
    assert rows(tmp_path) == [0, 1, 2, 3]


def test_a_folder_that_is_listed_all_the_time_is_not_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_QUIET_SECONDS", 60.0)
    monkeypatch.setattr(compaction, "_MAX_LISTING_WAIT_SECONDS", 0.2)
    for batch in range(4):
        append(tmp_path, batch, [batch])
    inode = (tmp_path / "legs").stat().st_ino
    stop = threading.Event()

    def list_all_the_time() -> None:
        while not stop.wait(0.01):
            list((tmp_path / "legs").iterdir())

    reader = threading.Thread(target=list_all_the_time)
    reader.start()
    try:
        with pytest.raises(TableBusy, match="its folder was listed all the time"):
            merge(tmp_path)
    finally:
        stop.set()
        reader.join()
    assert (tmp_path / "legs").stat().st_ino == inode
    assert not (tmp_path / ".compaction" / "legs" / "next").exists()


def test_a_reader_that_opened_the_folder_reads_it_as_it_was(tmp_path: Path) -> None:
    for batch in range(5):
        append(tmp_path, batch, [batch])
    folder = os.open(tmp_path / "legs", os.O_RDONLY)
    try:
        listed = names(folder)
        merge(tmp_path)
        append(tmp_path, 5, [5])
        assert names(folder) == listed
        assert sorted(pq.read_table(f"/proc/self/fd/{folder}").column("n").to_pylist()) == list(range(5))
    finally:
        os.close(folder)
    assert rows(tmp_path) == list(range(6))


def test_files_of_other_programs_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(3):
        append(tmp_path, batch, [batch])
    pq.write_table(pa.table({"n": [100]}), tmp_path / "legs" / "other.parquet")
    (tmp_path / "legs" / "_SUCCESS").touch()
    exchange = file_system.exchange

    def late(first: Path, second: Path) -> None:
        pq.write_table(pa.table({"n": [101]}), first / "late.parquet")
        exchange(first, second)

    monkeypatch.setattr(compaction, "exchange", late)
    assert merge(tmp_path) == (4, 2)
    assert rows(tmp_path) == [0, 1, 2, 100, 101]
    assert {"other.parquet", "late.parquet", "_SUCCESS"} <= {path.name for path in (tmp_path / "legs").iterdir()}


def test_a_table_that_others_may_write_is_not_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(3):
        append(tmp_path, batch, [batch])
    (tmp_path / "legs" / "year=2026").mkdir()
    with pytest.raises(CompactionUnsupported, match="'year=2026' of another program"):
        merge(tmp_path)
    (tmp_path / "legs" / "year=2026").rmdir()
    with monkeypatch.context() as remote:
        remote.setattr(table_lock, "is_local", lambda folder: False)
        append(tmp_path, 3, [3])
    with pytest.raises(CompactionUnsupported, match="through a network"):
        merge(tmp_path)
    (tmp_path / "legs" / table_lock.REMOTE).unlink()
    (tmp_path / "legs").rename(tmp_path / "moved")
    (tmp_path / "legs").symlink_to("moved")
    with pytest.raises(CompactionUnsupported, match="symbolic link"):
        merge(tmp_path)
    assert rows(tmp_path) == [0, 1, 2, 3]


def test_a_compaction_ends_early_when_it_is_stopped_or_writers_hold_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(4):
        append(tmp_path, batch, [batch])
    inode = (tmp_path / "legs").stat().st_ino
    for number in range(12):
        stop, numbers = threading.Event(), count()

        def at(stop: threading.Event = stop, numbers: Iterator[int] = numbers, number: int = number) -> None:
            if next(numbers) == number:
                stop.set()

        with steps(monkeypatch, at):
            result = ParquetCompaction(tmp_path, "legs", stop).run()
        if result is not None:
            break
        assert (tmp_path / "legs").stat().st_ino == inode
        assert not (tmp_path / ".compaction" / "legs" / "next").exists()
    else:
        raise AssertionError("no stop came too late")
    append(tmp_path, 4, [4])
    monkeypatch.setattr(compaction, "_LOCK_SECONDS", 0.01)
    with writer_lock(tmp_path, "legs"), pytest.raises(TableBusy, match="it was written all the time"):
        merge(tmp_path)
    assert not (tmp_path / ".compaction" / "legs" / "next").exists()
    with compactor_lock(tmp_path, "legs"), pytest.raises(TableBusy, match="Another process compacts the table 'legs'"):
        merge(tmp_path)
    with exchange_lock(tmp_path, "legs", 0) as held:
        assert held
        monkeypatch.setattr(table_lock, "MAX_WAIT", 0.01)
        with pytest.raises(PipelineError, match="held the table 'legs'"):
            append(tmp_path, 5, [5])
    assert merge(tmp_path) == (2, 1)


def test_a_compaction_exchanges_no_folder_that_a_run_of_the_driver_reads(tmp_path: Path) -> None:
    """A pipeline that has listed the files of a table can read them."""
    for batch in range(4):
        append(tmp_path, batch, [batch])
    run_lock = RunLock()
    compacted = ParquetCompaction(tmp_path, "legs", threading.Event(), run_lock.exclusive)
    with run_lock.shared(), ThreadPoolExecutor(1) as pool:
        listed = list((tmp_path / "legs").glob("*.parquet"))
        running = pool.submit(compacted.run)
        with pytest.raises(TableBusy, match="runs were executed all the time"):
            running.result(60)
        assert sum(pq.read_metadata(path).num_rows for path in listed) == 4
    assert compacted.run() == (4, 1)


def test_a_merged_file_without_its_index_is_reported(tmp_path: Path) -> None:
    for batch in range(3):
        append(tmp_path, batch, [batch])
    merge(tmp_path)
    for index in (tmp_path / "legs" / "_runs").iterdir():
        index.unlink()
    (reason,) = read_table(tmp_path / "legs", no_progress).unreadable
    assert "_runs" in reason
    assert "cannot be read" in reason


def test_replaced_files_are_removed_by_a_vacuum(tmp_path: Path) -> None:
    for batch in range(3):
        append(tmp_path, batch, [batch])
    result = compact(tmp_path, "legs")
    assert (result.files_before, result.files_after) == (3, 1)
    assert compact(tmp_path, "legs").files_after == 1
    assert vacuum(tmp_path, "legs", 1, dry_run=False).files == [], "it was replaced less than an hour ago"
    (replaced,) = vacuum(tmp_path, "legs", 0, dry_run=True).files
    assert len(list((tmp_path / replaced).glob("*.parquet"))) == 3
    vacuum(tmp_path, "legs", 0, dry_run=False)
    assert not (tmp_path / replaced).exists()
    assert rows(tmp_path) == [0, 1, 2]


def test_rows_are_written_again_as_often_as_the_logarithm_of_the_files() -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(200):
        sizes += [100] * 128
        limit = merge_limit(sizes)
        merged = sum(size for size in sizes if size < limit)
        written += merged
        sizes = [size for size in sizes if size >= limit] + [merged]
        assert len(sizes) <= MAX_REST + 1
    assert written < 12 * 200 * 128 * 100
    assert merge_limit([TARGET_BYTES] * 10) == TARGET_BYTES
