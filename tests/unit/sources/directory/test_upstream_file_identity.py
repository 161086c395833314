"""Files are identified by inode, not by name: a replaced file is read from its start, and no file is read twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.directory.upstream import Directory
from headrace.testing.contract.reading import reading
from support.sources.folders import lane_of, put, until_done
from support.sources.kit import PATIENCE

OLD = b"".join(b'{"old":%d}\n' % number for number in range(3))
NEW = b"".join(b'{"new":%d}\n' % number for number in range(10))
SAME = b'{"tick":true}\n'

pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    folder = tmp_path / "feed"
    folder.mkdir()
    return folder


def data_of(items: list[tuple[Any, Any]]) -> bytes:
    return b"".join(raw.data + b"\n" for raw, _ in items)


def by_rename(path: Path, data: bytes) -> None:
    put(path, data)


def deleted_and_renamed(path: Path, data: bytes) -> None:
    """On many file systems, the new file gets the inode of the old one."""
    path.unlink()
    put(path, data)


def deleted_and_written(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def emptied_and_written(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


WAYS = [by_rename, deleted_and_renamed, deleted_and_written, emptied_and_written]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("advanced", [0, 2, 3])
async def test_a_file_replaced_between_two_readers_is_read_from_its_start(feed: Path, way: Any, advanced: int) -> None:
    put(feed / "a.jsonl", OLD)
    async with reading(Directory(feed).producer()) as held:
        first = await held.take(3)
        await held.advance(first[:advanced])
    way(feed / "a.jsonl", NEW)
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(10)
        assert data_of(items) == NEW
        assert lane_of("a.jsonl", items) != lane_of("a.jsonl", first)
        await held.advance(items)
        assert [path.read_bytes() for path in await until_done(feed, "a.jsonl")] == [NEW]


@pytest.mark.parametrize("way", [by_rename, deleted_and_renamed, deleted_and_written])
async def test_a_replacement_with_the_same_lines_has_a_new_lane(feed: Path, way: Any) -> None:
    put(feed / "a.jsonl", SAME * 3)
    async with reading(Directory(feed).producer()) as held:
        first = await held.take(3)
        await held.advance(first[:2])
    way(feed / "a.jsonl", SAME * 5)
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(5)
    assert lane_of("a.jsonl", items) != lane_of("a.jsonl", first)


@pytest.mark.parametrize("way", WAYS)
async def test_a_file_replaced_between_two_scans_is_read_from_its_start(feed: Path, way: Any) -> None:
    put(feed / "a.jsonl", OLD)
    async with reading(Directory(feed).producer()) as held:
        first = await held.take(3)
        way(feed / "a.jsonl", NEW)
        items = await held.take(10)
        assert data_of(items) == NEW
        assert lane_of("a.jsonl", items) != lane_of("a.jsonl", first)
        await held.advance(first)
        await held.advance(items)
        assert [path.read_bytes() for path in await until_done(feed, "a.jsonl")] == [NEW]


@pytest.mark.parametrize("way", WAYS)
async def test_a_file_replaced_between_the_check_and_the_move_is_not_moved(feed: Path, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of the move itself: after the file was compared with what was read, before it is renamed."""
    from headrace.sources.directory import folder as directory_folder

    free, pending = directory_folder.Folder._free, [NEW]

    def just_then(folder: Any, done: Path, one: Any) -> Path:
        target = free(folder, done, one)
        if pending:
            way(feed / "a.jsonl", pending.pop())
        return target

    monkeypatch.setattr(directory_folder.Folder, "_free", just_then)
    put(feed / "a.jsonl", OLD)
    async with reading(Directory(feed).producer()) as held:
        await held.advance(await held.take(3))
        items = await held.take(10)
        assert data_of(items) == NEW
        await held.advance(items)
        assert [path.read_bytes() for path in await until_done(feed, "a.jsonl")] == [NEW]


async def test_a_file_that_grows_during_its_move_is_moved_back_and_read_further(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.sources.directory import folder as directory_folder

    free, pending = directory_folder.Folder._free, [b"4\n"]

    def just_then(folder: Any, done: Path, one: Any) -> Path:
        if pending:
            with (feed / "a.jsonl").open("ab") as file:
                file.write(pending.pop())
        return free(folder, done, one)

    monkeypatch.setattr(directory_folder.Folder, "_free", just_then)
    put(feed / "a.jsonl", b"1\n2\n3\n")
    async with reading(Directory(feed).producer()) as held:
        first = await held.take(3)
        await held.advance(first)
        items = await held.take(1)
        assert (items[0][0].data, items[0][0].position) == (b"4", 6)
        assert lane_of("a.jsonl", items) == lane_of("a.jsonl", first)
        await held.advance(items)
        await until_done(feed, "a.jsonl")


async def test_a_file_that_is_open_for_writing_is_not_moved_and_is_read_further(feed: Path) -> None:
    put(feed / "z.jsonl", b"0\n")
    with (feed / "a.jsonl").open("ab") as file:
        file.write(b"1\n")
        file.flush()
        async with reading(Directory(feed).producer()) as held:
            await held.advance(await held.take(2))
            await until_done(feed, "z.jsonl")
            put(feed / "y.jsonl", b"2\n")
            await held.advance(await held.take(1))
            await until_done(feed, "y.jsonl")
            file.write(b"3\n")
            file.flush()
            assert data_of(await held.take(1)) == b"3\n"


async def test_a_recreated_folder_has_new_lanes(feed: Path) -> None:
    lanes: list[str] = []
    for _ in range(3):
        feed.mkdir(exist_ok=True)
        put(feed / "a.jsonl", OLD)
        async with reading(Directory(feed).producer()) as held:
            items = await held.take(3)
            lanes.append(lane_of("a.jsonl", items))
            await held.advance(items)
            await until_done(feed, "a.jsonl")
        shutil.rmtree(feed)
    assert len(set(lanes)) == 3


async def test_a_folder_recreated_while_it_is_read_ends_the_stream(feed: Path) -> None:
    put(feed / "a.jsonl", OLD)
    async with reading(Directory(feed).producer()) as held:
        await held.take(3)
        await asyncio.to_thread(shutil.rmtree, feed)
        feed.mkdir()
        put(feed / "a.jsonl", NEW)
        with pytest.raises(UpstreamError):
            await held.take(1)
    async with reading(Directory(feed).producer()) as held:
        assert data_of(await held.take(10)) == NEW


async def test_a_restart_does_not_change_lanes(feed: Path) -> None:
    for name in "abc":
        put(feed / f"{name}.jsonl", OLD)
    seen: list[list[tuple[str, int]]] = []
    for _ in range(3):
        async with reading(Directory(feed).producer()) as held:
            seen.append([(raw.lane, raw.position) for raw, _ in await held.take(9)])
    assert seen[0] == seen[1] == seen[2]


async def test_rotated_files_retain_their_lanes(feed: Path) -> None:
    """`app.log` → `app.log.1` → `app.log.2`, while they are read and all of them match."""
    log = feed / "app.log"
    log.write_bytes(b"1\n")
    async with reading(Directory(feed, "app.log*").producer()) as held:
        first = await held.take(1)
        for number in (2, 3):
            if (feed / "app.log.1").exists():
                (feed / "app.log.1").rename(feed / "app.log.2")
            log.rename(feed / "app.log.1")
            log.write_bytes(b"%d\n" % number)
            assert data_of(await held.take(1)) == b"%d\n" % number
        with (feed / "app.log.2").open("ab") as file:
            file.write(b"4\n")
        more = await held.take(1)
        assert [(raw.data, raw.lane) for raw, _ in more] == [(b"4", first[0][0].lane)]


async def test_lines_written_before_a_file_was_renamed_out_of_the_pattern_are_read(feed: Path) -> None:
    log = feed / "app.log"
    log.write_bytes(b"1\n")
    async with reading(Directory(feed, "app.log").producer()) as held:
        await held.take(1)
        with log.open("ab") as file:
            file.write(b"2\n")
        log.rename(feed / "app.log.1")
        log.write_bytes(b"3\n")
        assert sorted(raw.data for raw, _ in await held.take(2)) == [b"2", b"3"]


async def test_an_unfinished_file_is_continued_under_its_new_name(feed: Path) -> None:
    log = feed / "app.log"
    log.write_bytes(b"1\n2\n3\n")
    async with reading(Directory(feed, "app.log").producer()) as held:
        first = await held.take(3)
        await held.advance(first[:1])
    log.rename(feed / "app.log.1")
    log.write_bytes(b"4\n")
    async with reading(Directory(feed, "app.log").producer()) as held:
        items = await held.take(3)
        assert sorted(raw.data for raw, _ in items) == [b"2", b"3", b"4"]
        assert {raw.lane for raw, _ in items if raw.data != b"4"} == {first[0][0].lane}
        await held.advance(items)
        await until_done(feed, "app.log")
    assert (feed / "app.log.1").exists()


async def test_two_hard_links_of_a_file_are_two_lanes(feed: Path) -> None:
    put(feed / "a.jsonl", OLD)
    (feed / "b.jsonl").hardlink_to(feed / "a.jsonl")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(6)
        assert len({raw.lane for raw, _ in items}) == 2
        await held.advance(items)
        await until_done(feed, "?.jsonl", 2)


async def test_a_late_failed_write_does_not_affect_a_later_advance(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first advance gave up waiting, and its write fails with a full disk; the second one came meanwhile."""
    sync, slow, go_on = os.fdatasync, threading.Event(), threading.Event()

    def fdatasync(descriptor: int) -> None:
        if not slow.is_set():
            slow.set()
            assert go_on.wait(PATIENCE)
            raise OSError(28, "No space left on device")
        sync(descriptor)

    put(feed / "a.jsonl", OLD)
    put(feed / "b.jsonl", OLD)
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(6)
        a, b = items[:3], items[3:]
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        first = asyncio.create_task(held.advance(a[:2]))
        await asyncio.to_thread(slow.wait, PATIENCE)
        first.cancel()
        second = asyncio.create_task(held.advance(b[:2]))
        await asyncio.sleep(0)
        go_on.set()
        await second
    async with reading(Directory(feed).producer()) as held:
        left = await held.take(4)
    assert [(raw.lane, raw.data) for raw, _ in left] == [(raw.lane, raw.data) for raw, _ in (*a, b[2])]


async def test_a_cancelled_advance_writes_only_to_its_own_journal(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is slow; meanwhile the advance is cancelled, the producer closed, and the next one opens."""
    sync, slow, go_on = os.fdatasync, threading.Event(), threading.Event()

    def fdatasync(descriptor: int) -> None:
        slow.set()
        assert go_on.wait(PATIENCE)
        sync(descriptor)

    put(feed / "a.jsonl", OLD)
    producer = Directory(feed).producer()
    async with reading(producer) as held:
        items = await held.take(3)
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        advance = asyncio.create_task(held.advance(items[:2]))
        await asyncio.to_thread(slow.wait, PATIENCE)
        advance.cancel()
        closing = asyncio.create_task(producer.aclose())
        await asyncio.sleep(0)
        async with reading(Directory(feed).producer()) as other:
            with pytest.raises(UpstreamError, match="Another process is reading"):
                await other.take(1)
        go_on.set()
        await closing
    async with reading(Directory(feed).producer()) as held:
        assert data_of(await held.take(1)) == b'{"old":2}\n'
