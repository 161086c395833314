from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from headrace.errors import UpstreamError
from headrace.sources.directory.journal import Entry, Journal, Sum
from headrace.triggers.stream_log import LogMark


def test_the_last_entry_of_each_lane_is_retained(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    journal = Journal(path)
    journal.append([Entry("a", "a", 10), Entry("b", "b", 5)])
    journal.append([Entry("a", "a", 20, inode=1, birth=2, head=Sum(3, 4))])
    journal.close()
    opened = Journal(path)
    opened.close()
    assert opened.entries == {"a": Entry("a", "a", 20, inode=1, birth=2, head=Sum(3, 4)), "b": Entry("b", "b", 5)}
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("torn", [b'{"lane":"a","file":"a","at"', b"\x00\x00\x00", b'{"lane":"a"}'])
def test_a_torn_last_line_is_skipped(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "progress.jsonl"
    journal = Journal(path)
    journal.append([Entry("a", "a", 10)])
    journal.close()
    with path.open("ab") as file:
        file.write(torn)
    opened = Journal(path)
    opened.append([Entry("b", "b", 5)])
    opened.close()
    again = Journal(path)
    again.close()
    assert again.entries == {"a": Entry("a", "a", 10), "b": Entry("b", "b", 5)}


def test_a_partial_write_leaves_the_journal_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.jsonl"
    journal = Journal(path)
    journal.append([Entry("a", "a", 10)])
    before = path.read_bytes()
    write = os.write
    written: list[bytes] = []

    def disk_full(descriptor: int, data: bytes) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(data)
        return write(descriptor, data[:7])

    monkeypatch.setattr(os, "write", disk_full)
    with pytest.raises(OSError, match="No space"):
        journal.append([Entry("a", "a", 20)])
    monkeypatch.undo()
    assert path.read_bytes() == before
    journal.append([Entry("a", "a", 30)])
    journal.close()
    opened = Journal(path)
    opened.close()
    assert opened.entries == {"a": Entry("a", "a", 30)}


def test_a_partial_line_that_cannot_be_truncated_does_not_corrupt_other_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress.jsonl"
    journal = Journal(path)
    write = os.write
    failing = [True]

    def disk_full(descriptor: int, data: bytes) -> int:
        if failing.pop():
            failing.append(False)
            return write(descriptor, data[:7])
        raise OSError(28, "No space left on device")

    def no_truncation(descriptor: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", disk_full)
        patch.setattr(os, "ftruncate", no_truncation)
        with pytest.raises(OSError, match="No space"):
            journal.append([Entry("a", "a", 20)])
    journal.append([Entry("b", "b", 5)])
    journal.close()
    opened = Journal(path)
    opened.close()
    assert opened.entries == {"b": Entry("b", "b", 5)}


def test_ended_lanes_are_dropped_and_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.directory.journal.COMPACT_AT_BYTES", 20_000)
    path = tmp_path / "progress.jsonl"
    journal = Journal(path)
    journal.append([Entry("held", "held", 5)])
    largest = 0
    for number in range(3_000):
        journal.append([Entry(f"{number}", f"{number}", 10), Entry(f"{number}", f"{number}", over=True)], durable=False)
        largest = max(largest, path.stat().st_size)
    journal.close()
    assert journal.entries == {"held": Entry("held", "held", 5)}
    assert largest < 25_000
    opened = Journal(path)
    opened.close()
    assert opened.entries == journal.entries


def test_a_journal_whose_folder_was_recreated_rejects_entries(tmp_path: Path) -> None:
    own = tmp_path / "feed" / ".headrace"
    own.mkdir(parents=True)
    journal = Journal(own / "progress.jsonl")
    for again in (False, True):
        shutil.rmtree(tmp_path / "feed")
        if again:
            own.mkdir(parents=True)
            (own / "progress.jsonl").touch()
        else:
            own.parent.mkdir()
        with pytest.raises(UpstreamError, match="made again"):
            journal.append([Entry("a", "a", 1)])
    journal.close()


def test_the_last_mark_of_the_log_is_stored_with_the_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.directory.journal.COMPACT_AT_BYTES", 100)
    path = tmp_path / "progress.jsonl"
    journal = Journal(path)
    assert journal.mark is None
    for number in range(20):
        journal.append([Entry("a", "a", number)], mark=LogMark("1f", "directory:x", number // 2))
    journal.append([Entry("a", "a", over=True)])
    journal.close()
    opened = Journal(path)
    opened.close()
    assert (opened.mark, opened.entries) == (LogMark("1f", "directory:x", 9), {})
    assert len(path.read_bytes().splitlines()) == 1
