from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.sources.directory_journal import Entry, Identity, Journal


def test_the_last_word_on_each_lane_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    journal = Journal(path)
    journal.append([Entry("a", "a", 10), Entry("b", "b", 5)])
    journal.append([Entry("a", "a", 20, Identity(1, 20, 3))])
    journal.close()
    opened = Journal(path)
    opened.close()
    assert opened.entries == {"a": Entry("a", "a", 20, Identity(1, 20, 3)), "b": Entry("b", "b", 5)}
    assert len(path.read_bytes().splitlines()) == 2


@pytest.mark.parametrize("torn", [b'{"lane":"a","file":"a","at"', b"\x00\x00\x00", b'{"lane":"a"}'])
def test_a_torn_last_line_is_passed_over(tmp_path: Path, torn: bytes) -> None:
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


def test_a_write_that_fails_half_way_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
