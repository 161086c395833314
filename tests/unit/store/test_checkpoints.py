"""SQLite's write-ahead log is copied into the database beside the writer, whose commits copy little of it, and is begun anew."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.store import checkpoints
from headrace.store.checkpoints import CHECKPOINT_PAGES, MAX_WRITER_PAGES, Checkpoints, LogPages, log_pages

PAGE = 4_096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.db"


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = OFF")
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        raw.execute("CREATE TABLE filler (data BLOB)")
        yield raw


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the names of the threads that copied something, as they do it."""
    copied: list[str] = []
    copy = checkpoints._copy

    def noted(raw: sqlite3.Connection) -> None:
        copied.append(threading.current_thread().name)
        copy(raw)

    monkeypatch.setattr(checkpoints, "_copy", noted)
    return copied


def pages(path: Path) -> LogPages:
    return log_pages(Path(f"{path}-shm"))


def fill(writer: sqlite3.Connection, count: int) -> None:
    """Commit so many pages, at least."""
    writer.execute("INSERT INTO filler VALUES (zeroblob(?))", (count * PAGE,))


def test_the_index_of_the_log_says_how_much_is_copied(path: Path, writer: sqlite3.Connection) -> None:
    assert log_pages(path.with_name("none-shm")) == LogPages(0, 0)
    fill(writer, 100)
    total = writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
    assert pages(path) == LogPages(total, total)
    fill(writer, 10)
    assert pages(path).copied == 0, "begun anew"
    assert 10 <= pages(path).total < 20


def test_a_short_log_is_left_alone(path: Path, writer: sqlite3.Connection, copies: list[str]) -> None:
    fill(writer, CHECKPOINT_PAGES // 2)
    Checkpoints(path).after_commit(writer)
    assert copies == []


def test_a_long_log_is_copied_by_a_thread_and_what_came_meanwhile_by_the_writer(
    path: Path, writer: sqlite3.Connection, copies: list[str]
) -> None:
    made = Checkpoints(path)
    fill(writer, CHECKPOINT_PAGES)
    made.after_commit(writer)
    made.close()
    assert copies == ["headrace-checkpoint"]
    assert pages(path).copied == pages(path).total
    fill(writer, 10)
    made.after_commit(writer)
    assert pages(path).total < 20, "copied whole: begun anew"

    fill(writer, CHECKPOINT_PAGES)
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM filler").fetchone()
        made.after_commit(writer)
        made.close()
        fill(writer, 10)  # the reader keeps the log from being begun anew
    assert pages(path).copied < pages(path).total
    made.after_commit(writer)
    assert copies[1:] == ["headrace-checkpoint", "MainThread"]
    assert pages(path).copied == pages(path).total


def test_a_log_that_a_reader_holds_back_is_not_tried_at_each_commit(path: Path, writer: sqlite3.Connection, copies: list[str]) -> None:
    made = Checkpoints(path)
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM filler").fetchone()
        fill(writer, CHECKPOINT_PAGES)
        for _ in range(20):
            fill(writer, MAX_WRITER_PAGES // 10)
            made.after_commit(writer)
            made.close()
    assert len(copies) == 2, "one for each MAX_WRITER_PAGES that came"
    fill(writer, MAX_WRITER_PAGES)
    made.after_commit(writer)
    made.close()
    assert pages(path).copied == pages(path).total


def test_a_failed_checkpoint_fails_no_commit(path: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(writer, CHECKPOINT_PAGES)
    made = Checkpoints(path)
    monkeypatch.setattr(made, "_database", path.parent)  # a folder, which cannot be opened
    made.after_commit(writer)
    made.close()
    assert pages(path).copied == 0
    monkeypatch.setattr(made, "_database", path)
    fill(writer, MAX_WRITER_PAGES)
    made.after_commit(writer)
    made.close()
    assert pages(path).copied == pages(path).total
