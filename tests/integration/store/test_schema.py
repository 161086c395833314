"""Opening a SQLite file: an unusable file is refused with a clear message."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from headrace.errors import ResourceError, SettingsError, StorageBusy, StorageFull
from headrace.store import Store, open_store
from headrace.store.dialects import engines
from support.processes.store import event, holder, opened


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'headrace.db'}"


def test_commits_are_synced_to_the_disk_through_a_write_ahead_log(tmp_path: Path) -> None:
    readers, writer = engines.engines(engines.parsed(url(tmp_path)))
    with writer.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
    readers.dispose()
    writer.dispose()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="Cannot open") as refused:
        open_store(url(tmp_path / "nowhere"))
    assert "nowhere" in (refused.value.hint or "")


def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "headrace.db").write_text("something else " * 100)
    with pytest.raises(ResourceError, match="not a usable SQLite database"):
        open_store(url(tmp_path))


@pytest.mark.parametrize("wrong", ["", "nonsense", "sqlite://", "mysql://localhost/x", "oops://x"])
def test_a_url_of_an_unknown_database_is_a_settings_error(wrong: str) -> None:
    with pytest.raises(SettingsError):
        open_store(wrong)


def test_a_database_locked_by_another_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.dialects.sqlite.BUSY_TIMEOUT_MS", 10)
    with opened("sqlite", tmp_path) as store:
        held = sqlite3.connect(tmp_path / "headrace.db", isolation_level=None)
        held.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusy, match="Another process"):
            holder(store, "first")
        held.execute("ROLLBACK")
        held.close()
        assert holder(store, "first").append(event("a")) == ["stored"]


def limit_pages(store: Store, most: int) -> None:
    """Let the database's file grow to `most` pages and no further, as a disk with that much room would."""
    store._database.write(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count = {most}").scalar_one())


def test_a_full_disk_refuses_whole_batches_until_space_is_free(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "first")
        owner.append(event("a"))
        big = [event(f"big-{n}", payload='"' + "x" * 10_000 + '"') for n in range(100)]
        limit_pages(store, 60)
        with pytest.raises(StorageFull, match="The disk is full") as refused:
            owner.append(*big)
        assert str(tmp_path) in (refused.value.hint or "")
        assert store.log.head().head == 1
        assert store.log.page(after=0).table.num_rows == 1
        assert owner.append(event("b")) == ["stored"]
        limit_pages(store, 1_000_000)
        assert owner.append(*big) == ["stored"] * 100
        assert store.log.head().head == 102


def test_a_read_only_database_is_reported(tmp_path: Path) -> None:
    open_store(url(tmp_path)).close()
    if os.geteuid() == 0:
        read_only = f"sqlite:///file:{tmp_path / 'headrace.db'}?mode=ro&uri=true"
    else:
        (tmp_path / "headrace.db").chmod(0o400)
        read_only = url(tmp_path)
    with pytest.raises(StorageFull, match="read-only"):
        open_store(read_only)
