"""Unreadable entries of a folder are named and retried, and do not affect other entries."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from headrace.sources.directory.producer import DirectoryProducer
from headrace.sources.directory.upstream import Directory
from headrace.sources.files.names import name_of, text_of
from headrace.testing.contract.reading import Reading, reading
from support.sources.folders import files_done, put, until_done
from support.sources.kit import PATIENCE

pytestmark = pytest.mark.usefixtures("short_pauses")


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    folder = tmp_path / "feed"
    folder.mkdir()
    return folder


async def errors_of(held: Reading, *names: str) -> dict[str, str]:
    """Return what the producer says of the files it cannot read, once it has seen all of these."""
    assert isinstance(held.producer, DirectoryProducer)
    async with asyncio.timeout(PATIENCE):
        while not set(names) <= held.producer.get_errors().keys():
            await asyncio.sleep(0.01)
    return dict(held.producer.get_errors())


async def test_unreadable_entries_are_named_and_other_files_are_read(feed: Path) -> None:
    (feed / "loop.jsonl").symlink_to("loop.jsonl")
    (feed / "nothing.jsonl").symlink_to("nowhere")
    (feed / "under-a-file.jsonl").symlink_to(feed / "a.jsonl" / "b")
    (feed / "folder.jsonl").mkdir()
    os.mkfifo(feed / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as sock:
        here = Path.cwd()
        os.chdir(feed)
        sock.bind("socket.jsonl")
        os.chdir(here)
        put(feed / "a.jsonl", b"1\n")
        async with reading(Directory(feed).producer()) as held:
            items = await held.take(1)
            await held.advance(items)
            await until_done(feed, "a.jsonl")
            errors = await errors_of(held, "loop.jsonl", "nothing.jsonl", "pipe.jsonl", "socket.jsonl")
            put(feed / "b.jsonl", b"2\n")
            assert [raw.data for raw, _ in await held.take(1)] == [b"2"]
    assert "symbolic links" in errors["loop.jsonl"]
    assert errors["pipe.jsonl"] == "It is not a file."
    assert errors["nothing.jsonl"] == "It is a link to nothing."
    assert "folder.jsonl" not in errors


async def test_a_link_is_read_once_its_target_exists(feed: Path, tmp_path: Path) -> None:
    (feed / "a.jsonl").symlink_to(tmp_path / "later")
    async with reading(Directory(feed).producer()) as held:
        await errors_of(held, "a.jsonl")
        (tmp_path / "later").write_bytes(b"1\n")
        items = await held.take(1)
        assert items[0][0].data == b"1"
        await held.advance(items)
        assert [path.is_symlink() for path in await until_done(feed, "a.jsonl")] == [True]
        assert held.producer.get_errors() == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
async def test_a_file_without_read_permission_is_read_once_it_has_permission(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n")
    (feed / "a.jsonl").chmod(0)
    async with reading(Directory(feed).producer()) as held:
        assert "Permission denied" in (await errors_of(held, "a.jsonl"))["a.jsonl"]
        (feed / "a.jsonl").chmod(0o600)
        assert [raw.data for raw, _ in await held.take(1)] == [b"1"]


@pytest.mark.parametrize("number", [24, 5, 13, 12])
async def test_a_file_that_failed_to_open_is_retried(feed: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many open files, an input/output error, no permission, no memory: once, and at the second reading once more."""
    opened, failing = os.open, [True]

    def fails_once(path: object, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("a.jsonl") and failing.pop():
            failing.append(False)
            raise OSError(number, os.strerror(number))
        failing.append(False)
        return opened(str(path), flags, mode)

    put(feed / "a.jsonl", b"1\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fails_once)
        async with reading(Directory(feed).producer()) as held:
            assert [raw.data for raw, _ in await held.take(1)] == [b"1"]


async def test_a_failed_read_is_retried_without_loss(feed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, fails = os.pread, [False, True, False, True]

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        if fails and fails.pop(0):
            raise OSError(5, "Input/output error")
        return read(descriptor, length, offset)

    put(feed / "a.jsonl", b"".join(b"%d\n" % number for number in range(60_000)))
    monkeypatch.setattr(os, "pread", pread)
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(60_000)
        assert [int(raw.data) for raw, _ in items] == list(range(60_000))
        await held.advance(items)
        await until_done(feed, "a.jsonl")
        assert held.producer.get_errors() == {}


NAMES = [
    b"a\xff.jsonl",
    b"\xff\xfe\n.jsonl",
    b"a\\xff.jsonl",
    "ü…😀.jsonl".encode(),
    b"tab\there.jsonl",
    b"x" * 249 + b".jsonl",
    b"\xff" * 249 + b".jsonl",
]


async def test_names_of_any_bytes_have_lanes_in_valid_text(feed: Path) -> None:
    for name in NAMES:
        (feed / os.fsdecode(name)).write_bytes(b"1\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(len(NAMES))
        lanes = {raw.lane for raw, _ in items}
        assert len(lanes) == len(NAMES)
        for lane in lanes:
            assert lane.encode().decode().isprintable()
            assert len(lane) < 250
        assert {"a\\xff.jsonl", "a\\\\xff.jsonl"} <= {lane.rpartition("@")[0] for lane in lanes}
        await held.advance(items)
        await until_done(feed, "*", len(NAMES))
        late = b"late\xfe.jsonl"
        (feed / os.fsdecode(late)).write_bytes(b"2\n")
        assert [raw.data for raw, _ in await held.take(1)] == [b"2"]
    assert sorted(os.fsencode(path.name) for path in files_done(feed, "*")) == sorted(NAMES)


async def test_a_reader_of_names_of_any_bytes_resumes_at_its_position(feed: Path) -> None:
    for name in NAMES:
        (feed / os.fsdecode(name)).write_bytes(b"1\n2\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(2 * len(NAMES))
        await held.advance(item for item in items if item[0].data == b"1")
    async with reading(Directory(feed).producer()) as held:
        again = await held.take(len(NAMES))
    assert {(raw.lane, raw.data) for raw, _ in again} == {(raw.lane, b"2") for raw, _ in items}


def test_the_text_of_a_name_is_reversible() -> None:
    names = [os.fsdecode(bytes([one, two, three])) for one in (1, 92, 120, 255) for two in (92, 10, 195, 120) for three in range(1, 256)]
    assert [name_of(text_of(name)) for name in names] == names
    assert len({text_of(name) for name in names}) == len(names)


async def test_the_longest_name_can_be_reused_repeatedly(feed: Path) -> None:
    name = "x" * 248 + ".jsonl"
    async with reading(Directory(feed).producer()) as held:
        for count in range(1, 4):
            (feed / "new.part").write_bytes(b"%d\n" % count)
            (feed / "new.part").rename(feed / name)
            await held.advance(await held.take(1))
            await until_done(feed, "x*", count)
    assert {path.read_bytes() for path in files_done(feed, "x*")} == {b"1\n", b"2\n", b"3\n"}


async def test_a_file_that_cannot_be_moved_is_named_and_moved_later(feed: Path) -> None:
    put(feed / "a.jsonl", b"1\n")
    async with reading(Directory(feed).producer()) as held:
        items = await held.take(1)
        (feed / "done").rmdir()
        (feed / "done").symlink_to("/proc/self")
        await held.advance(items)
        async with asyncio.timeout(PATIENCE):
            while not held.producer.get_errors():
                await asyncio.sleep(0.01)
        put(feed / "b.jsonl", b"2\n")
        assert [raw.data for raw, _ in await held.take(1)] == [b"2"]
        (feed / "done").unlink()
        await until_done(feed, "a.jsonl")


async def test_vanishing_entries_do_not_affect_other_files(feed: Path) -> None:
    async with reading(Directory(feed).producer()) as held:
        for number in range(300):
            (feed / f"{number}.jsonl").touch()
            if number % 3 == 0:
                await asyncio.sleep(0)
            (feed / f"{number}.jsonl").unlink()
        put(feed / "z.jsonl", b"1\n")
        assert [raw.data for raw, _ in await held.take(1)] == [b"1"]
