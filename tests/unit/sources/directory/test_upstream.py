from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.errors import MalformedEvent, UpstreamError
from headrace.sources.directory.journal import Entry
from headrace.sources.directory.upstream import Directory
from headrace.sources.files.line_splitter import MAX_LINE_BYTES
from headrace.testing.contract.reading import reading
from headrace.triggers.upstream import load_upstream
from support.sources.folders import lane_of, put, until_done, until_forgotten
from support.sources.kit import PATIENCE

pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    folder = tmp_path / "feed"
    folder.mkdir()
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def move_away(folder: Path) -> None:
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    (elsewhere / "b.jsonl").touch()


def journal_of(feed: Path) -> list[Entry]:
    return [msgspec.json.decode(line, type=Entry) for line in (feed / ".headrace" / "progress.jsonl").read_bytes().splitlines()]


def test_a_directory_is_restored_from_its_serialized_form(tmp_path: Path) -> None:
    upstream = Directory("feed", "*.json").relative_to(tmp_path)
    again = load_upstream(*upstream.serialize())
    assert upstream.serialize() == ("headrace.sources.directory.upstream.Directory", {"path": str(tmp_path / "feed"), "pattern": "*.json"})
    assert again.stream_key() == upstream.stream_key() == f"directory:{tmp_path}/feed/*.json"
    assert again.source == f"headrace:directory:{tmp_path}/feed/*.json"


def test_an_absolute_path_does_not_depend_on_the_project(tmp_path: Path) -> None:
    assert Directory(tmp_path / "a").relative_to(Path("/elsewhere")).stream_key() == Directory(tmp_path / "a").stream_key()


@pytest.mark.parametrize("pattern", ["", "sub/*.jsonl"])
def test_a_pattern_that_cannot_match_a_name_is_rejected(pattern: str) -> None:
    with pytest.raises(UpstreamError, match="pattern"):
        Directory("feed", pattern)


async def open_error(path: Path) -> UpstreamError:
    async with reading(Directory(path).producer()) as held:
        with pytest.raises(UpstreamError) as caught:
            await held.take(1)
    assert caught.value.hint
    return caught.value


async def test_a_missing_folder_is_rejected(tmp_path: Path) -> None:
    assert "does not exist" in str(await open_error(tmp_path / "nowhere"))


async def test_a_file_as_path_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert "is a file" in str(await open_error(tmp_path / "a.jsonl"))


async def test_a_folder_that_cannot_store_progress_is_rejected(feed: Path) -> None:
    (feed / ".headrace").touch()
    assert "cannot be used" in str(await open_error(feed))


async def test_a_folder_has_at_most_one_reader(feed: Path) -> None:
    put(feed / "a.jsonl", b"{}\n")
    async with reading(Directory(feed).producer()) as held:
        await held.take(1)
        assert "Another process is reading" in str(await open_error(feed))
    async with reading(Directory(feed).producer()) as held:
        await held.take(1)


async def test_a_finished_file_moves_to_done_and_its_name_can_be_reused(feed: Path) -> None:
    put(feed / "a.jsonl", b'{"n":1}\n\n{"n":2}\r\n\n')
    async with reading(Directory(feed).producer()) as held:
        first = await held.take(2)
        await held.advance(first)
        assert [path.read_bytes() for path in await until_done(feed, "a.jsonl")] == [b'{"n":1}\n\n{"n":2}\r\n\n']
        put(feed / "a.jsonl", b'{"n":3}\n')
        second = await held.take(1)
        await held.advance(first)
        await held.advance(second)
        await until_done(feed, "a.jsonl*", 2)
        await until_forgotten(held.producer, lane_of("a.jsonl", second))
    lanes = lane_of("a.jsonl", first), lane_of("a.jsonl", second)
    assert lanes[0] != lanes[1]
    assert [(raw.value, raw.position) for raw, _ in first + second] == [({"n": 1}, 0), ({"n": 2}, 9), ({"n": 3}, 0)]
    assert names_in(feed) == [".headrace", "done"]


async def test_a_file_stays_until_all_of_it_is_advanced(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n2\n")
    put(feed / "b.jsonl", b"3\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(3)
        await held.advance([items[0], items[2]])
        await until_done(feed, "b.jsonl")
        lane = lane_of("a.jsonl", items)
        assert (held.producer.get_committed(lane), held.producer.get_lane_end(lane)) == (0, 2)
        assert (feed / "a.jsonl").exists()


async def test_partial_and_hidden_files_and_other_names_are_ignored(feed: Path) -> None:
    for name in (".a.jsonl", "a.jsonl.part", "a.txt"):
        (feed / name).write_bytes(b"1\n")
    (feed / "folder.jsonl").mkdir()
    put(feed / "z.jsonl", b"2\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(1)
        await held.advance(items)
        await until_done(feed, "z.jsonl")
    assert items[0][0].data == b"2"
    assert (feed / "a.jsonl.part").exists()


async def test_a_growing_file_is_read_further(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n")
    async with reading(Directory(feed).producer()) as held:
        await held.take(1)
        with (feed / "a.jsonl").open("ab") as file:
            file.write(b"2\n34")
            file.flush()
            assert [raw.data for raw, _ in await held.take(1)] == [b"2"]
            file.write(b"5\n")
        assert [(raw.data, raw.position) for raw, _ in await held.take(1)] == [(b"345", 4)]


async def test_an_unterminated_last_line_is_read_once_the_file_is_quiet(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n2")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(2)
        await held.advance(items)
        await until_done(feed, "a.jsonl")
    assert [raw.data for raw, _ in items] == [b"1", b"2"]


async def test_a_line_that_is_too_long_is_malformed_and_later_lines_are_read(feed: Path) -> None:
    put(feed / "a.jsonl", b'["' + b"x" * MAX_LINE_BYTES + b'"]\n{}\n')
    async with reading(Directory(feed).producer()) as held:
        (long, _), (next_one, _) = await held.take(2)
    with pytest.raises(MalformedEvent, match="longer than"):
        _ = long.value
    assert next_one.value == {}


async def test_a_deleted_file_is_given_up(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n")
    put(feed / "b.jsonl", b"2\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(2)
        (feed / "a.jsonl").unlink()
        await held.advance([items[1]])
        await until_done(feed, "b.jsonl")
        await held.advance([items[0]])
        put(feed / "a.jsonl", b"3\n4\n")
        again = await held.take(2)
        assert [raw.data for raw, _ in again] == [b"3", b"4"]
        assert lane_of("a.jsonl", again) != lane_of("a.jsonl", items)


async def test_a_crash_before_the_move_is_repaired(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n")
    async with reading(Directory(feed).producer()) as held:
        await held.advance(await held.take(1))
        (moved,) = await until_done(feed, "a.jsonl")
    journal = feed / ".headrace" / "progress.jsonl"
    journal.write_bytes(b"".join(line + b"\n" for line in journal.read_bytes().splitlines() if b"over" not in line))
    moved.rename(feed / "a.jsonl")
    put(feed / "b.jsonl", b"2\n")
    async with reading(Directory(feed).producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == [b"2"]
        await until_done(feed, "a.jsonl")


async def test_files_that_appear_while_the_stream_opens_are_read(feed: Path) -> None:
    async with reading(Directory(feed).producer()) as held:
        for number in range(300):
            put(feed / f"{number:03}.jsonl", b"%d\n" % number)
            await asyncio.sleep(0)
        items = await held.take(300)
    assert {int(raw.data) for raw, _ in items} == set(range(300))


async def test_a_removed_folder_ends_the_stream(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n")
    async with reading(Directory(feed).producer()) as held:
        await held.take(1)
        move_away(feed)
        with pytest.raises(UpstreamError, match="cannot be used"):
            await held.take(1)


async def test_an_advance_that_cannot_be_recorded_raises_and_can_be_retried(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(feed / "a.jsonl", b"1\n2\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(2)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(UpstreamError, match="cannot be recorded"):
                await held.advance(items[:1])
        await held.advance(items[:1])
    assert [(entry.file, entry.at, entry.last) for entry in journal_of(feed)] == [("a.jsonl", 0, None), ("a.jsonl", 2, 0)]


async def test_a_stream_that_is_cancelled_while_it_opens_releases_the_folder(feed: Path) -> None:
    for steps in range(4):
        async with reading(Directory(feed).producer()):
            for _ in range(steps):
                await asyncio.sleep(0)
    put(feed / "a.jsonl", b"1\n")
    async with reading(Directory(feed).producer()) as held:
        await held.take(1)


async def test_a_fully_advanced_file_has_no_lag_before_and_after_a_restart(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n22\n333\n44")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(3)
        lane = lane_of("a.jsonl", items)
        assert (held.producer.get_committed(lane), held.producer.get_lane_end(lane)) == (None, 5)
        await held.advance(items)
        assert (held.producer.get_committed(lane), held.producer.get_lane_end(lane)) == (5, 5)
    with (feed / "a.jsonl").open("ab") as file:
        file.write(b"4\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(1)
        assert (items[0][0].position, held.producer.get_committed(lane), held.producer.get_lane_end(lane)) == (9, 5, 9)
        await held.advance(items)
        await until_done(feed, "a.jsonl")
        async with asyncio.timeout(120):  # the lane is let go a moment after its file was moved
            while held.producer.get_committed(lane) is not None:
                await asyncio.sleep(0.01)


READER = """
import asyncio, sys
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.directory.upstream import Directory

async def main():
    producer = Directory(sys.argv[1]).producer()
    count = 0
    async for raw, place in producer.open_stream():
        count += 1
        if count <= 1500:
            await producer.advance([AdvanceItem(place, AdvanceOutcome(1, 0))])
        if count == 2000:
            print("read", flush=True)

asyncio.run(main())
"""


async def test_a_killed_reader_has_stored_its_advanced_positions(feed: Path) -> None:
    put(feed / "a.jsonl", b"".join(b"%d\n" % number for number in range(5_000)))
    reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, str(feed), stdout=asyncio.subprocess.PIPE)
    assert reader.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert await reader.stdout.readline() == b"read\n"
        reader.send_signal(signal.SIGKILL)
        await reader.wait()
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(3_500)
    assert [int(raw.data) for raw, _ in items] == list(range(1_500, 5_000))
