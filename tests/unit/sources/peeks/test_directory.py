"""A peek at a folder shows the lines after the places in the journal, without the lock of the folder, and changes nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headrace.errors import MalformedEvent, UpstreamError
from headrace.sources.directory.upstream import Directory
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.raw_event import RawEvent
from support.sources.folders import contents


async def begun(folder: Path, lines: int) -> None:
    """Write a file of three lines, and read it up to a line."""
    await asyncio.to_thread((folder / "a.jsonl").write_text, '{"n": 0}\n{"n": 1}\n{"n": 2}\n')
    async with reading(Directory(folder).producer()) as stream:
        await stream.advance((await stream.take(3))[:lines])


async def peeked(folder: Path, limit: int = 10, lane: str | None = None) -> list[RawEvent]:
    return list((await peek_upstream(Directory(folder), PeekRequest(limit, lane))).messages)


def is_malformed(raw: RawEvent) -> bool:
    try:
        return raw.value is None
    except MalformedEvent:
        return True


async def test_lines_after_the_journal_are_shown_also_malformed_ones(tmp_path: Path) -> None:
    await begun(tmp_path, 1)
    await asyncio.to_thread((tmp_path / "b.jsonl").write_bytes, b'{"n": 3}\nno json\n\xff\n{"unfinished')
    await asyncio.to_thread((tmp_path / "c.jsonl.part").write_text, '{"n": 9}\n')
    before = contents(tmp_path)
    messages = await peeked(tmp_path)
    assert [raw.data for raw in messages][:5] == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}', b"no json", b"\xff"]
    assert [raw.position for raw in messages][:3] == [9, 18, 0]
    assert [is_malformed(raw) for raw in messages][:5] == [False, False, False, True, True]
    assert (messages[0].lane[:8], messages[2].lane) == ("a.jsonl@", "b.jsonl")
    assert [raw.data for raw in await peeked(tmp_path, lane="a.jsonl")] == [b'{"n": 1}', b'{"n": 2}']
    assert [raw.position for raw in await peeked(tmp_path, 1)] == [9]
    assert contents(tmp_path) == before
    async with reading(Directory(tmp_path).producer()) as stream:
        assert [raw.position for raw, _ in await stream.take(2)] == [9, 18]


async def test_a_reader_keeps_the_folder_during_a_peek(tmp_path: Path) -> None:
    await begun(tmp_path, 1)
    async with reading(Directory(tmp_path).producer()) as stream:
        items = await stream.take(2)
        assert [raw.position for raw in await peeked(tmp_path)] == [9, 18]
        await stream.advance(items[:1])
        assert [raw.position for raw in await peeked(tmp_path)] == [18]


async def test_a_file_with_other_contents_is_shown_from_its_beginning(tmp_path: Path) -> None:
    await begun(tmp_path, 2)
    await asyncio.to_thread((tmp_path / "a.jsonl").write_text, '{"m": 0}\n{"m": 1}\n{"m": 2}\n')  # the same inode
    assert [raw.data for raw in await peeked(tmp_path)] == [b'{"m": 0}', b'{"m": 1}', b'{"m": 2}']


async def test_a_file_that_was_begun_is_shown_under_its_new_name(tmp_path: Path) -> None:
    await begun(tmp_path, 2)
    await asyncio.to_thread((tmp_path / "a.jsonl").rename, tmp_path / "a.jsonl.1")
    assert [(raw.lane[:8], raw.position) for raw in await peeked(tmp_path)] == [("a.jsonl@", 18)]


async def test_unreadable_entries_are_notes(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 0}\n')
    (tmp_path / "broken.jsonl").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    peek = await peek_upstream(Directory(tmp_path), PeekRequest(10))
    assert [raw.data for raw in peek.messages] == [b'{"n": 0}']
    assert sorted(note.partition(":")[0] for note in peek.notes) == ["broken.jsonl", "pipe.jsonl"]


async def test_a_missing_folder_or_lane_is_named(tmp_path: Path) -> None:
    with pytest.raises(UpstreamError, match="There is no folder"):
        await peeked(tmp_path / "missing")
    (tmp_path / "a.jsonl").write_text('{"n": 0}\n')
    with pytest.raises(UpstreamError, match=r"There is no lane 'b\.jsonl'") as caught:
        await peeked(tmp_path, lane="b.jsonl")
    assert "a.jsonl" in str(caught.value.hint)
