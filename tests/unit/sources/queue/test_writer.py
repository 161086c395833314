"""Sent messages are durable, in order and in the right lane, with any number of concurrent senders."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.errors import StorageFull, UpstreamError, UsageError
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.writer import QueueWriter
from headrace.testing.contract.reading import reading
from support.sources.kit import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.queue"


async def everything(path: Path, count: int) -> dict[str, list[Any]]:
    lanes: dict[str, list[Any]] = defaultdict(list)
    async with reading(Queue(path).producer()) as held:
        for raw, _ in await held.take(count):
            lanes[raw.lane.partition("@")[0]].append(raw.value)
    return dict(lanes)


async def test_a_send_returns_the_lane_and_the_position(path: Path) -> None:
    with QueueWriter(path) as queue:
        sent = [queue.send({"n": 1}), queue.send({"n": 2}), queue.send({"n": 3}, lane="eu")]
    async with reading(Queue(path).producer()) as held:
        assert {(raw.lane, raw.position): raw.value["n"] for raw, _ in await held.take(3)} == dict(zip(sent, (1, 2, 3), strict=True))
    assert [one.position for one in sent] == [1, 2, 1]


async def test_equal_keys_share_a_lane_and_different_keys_use_all_lanes(path: Path) -> None:
    with QueueWriter(path, lanes=4) as queue:
        assert queue.send_many([{"key": f"k{number % 40}", "n": number} for number in range(400)], key=lambda value: value["key"]) == 400
        queue.send({"key": "k7", "n": 400}, key="k7")
    lanes = await everything(path, 401)
    assert len(lanes) == 4
    keys = {name: {value["key"] for value in got} for name, got in lanes.items()}
    assert sum(map(len, keys.values())) == 40
    for got in lanes.values():
        assert [value["n"] for value in got] == sorted(value["n"] for value in got)


async def test_a_message_has_the_key_of_its_sender(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send(1, key="Ada")
        queue.send(2)
    async with reading(Queue(path).producer()) as held:
        assert [raw.key for raw, _ in await held.take(2)] == ["Ada", None]


async def test_messages_without_a_key_rotate_over_the_lanes(path: Path) -> None:
    with QueueWriter(path, lanes=3) as queue:
        queue.send_many(range(9))
    assert await everything(path, 9) == {"0": [0, 3, 6], "1": [1, 4, 7], "2": [2, 5, 8]}


async def test_a_queue_with_named_lanes_rejects_other_lanes(path: Path) -> None:
    with QueueWriter(path, lanes=["eu", "us"]) as queue:
        queue.send(1, lane="us")
        queue.send(2, key="Ada")
        with pytest.raises(UsageError, match="no lane 'mars'") as caught:
            queue.send(3, lane="mars")
        assert caught.value.hint == "It has: eu, us."
    assert set(await everything(path, 2)) <= {"eu", "us"}


async def test_changed_lanes_apply_to_every_sender(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send_many(range(2))
        with QueueWriter(path, lanes=2):
            queue.send_many(range(2, 4))
    assert await everything(path, 4) == {"0": [0, 1, 2], "1": [3]}


@pytest.mark.parametrize("value", [b"{}", bytearray(b"1"), object(), {1, (2,)} | {object()}, "x" * 1_100_000])
def test_an_invalid_message_is_rejected(path: Path, value: Any) -> None:
    with QueueWriter(path) as queue:
        with pytest.raises(UsageError):
            queue.send(value)
        with pytest.raises(UsageError):
            queue.send_many([1, 2, value])
        with pytest.raises(UsageError, match="name of a lane"):
            queue.send(1, lane="")
        assert queue.send(1).position == 1


async def test_any_value_that_msgspec_encodes_can_be_sent_and_raw_json_is_unchanged(path: Path) -> None:
    @dataclass
    class Order:
        id: int

    with QueueWriter(path) as queue:
        queue.send_many([Order(1), msgspec.Raw(b'{"id":  2.0}'), None])
    async with reading(Queue(path).producer()) as held:
        assert [raw.data for raw, _ in await held.take(3)] == [b'{"id":1}', b'{"id":  2.0}', b"null"]


def test_a_writer_that_is_not_open_raises_an_error(path: Path) -> None:
    queue = QueueWriter(path)
    with pytest.raises(UsageError, match="not open"):
        queue.send(1)
    with queue:
        queue.send(1)
    with pytest.raises(UsageError, match="not open"):
        queue.send(1)


async def test_threads_and_tasks_send_concurrently(path: Path) -> None:
    async with QueueWriter(path) as queue:
        with ThreadPoolExecutor(4) as pool:
            loop = asyncio.get_running_loop()
            threads = [loop.run_in_executor(pool, queue.send, number) for number in range(100)]
            sent = await asyncio.gather(*threads, *(queue.asend(number) for number in range(100, 300)), queue.asend_many(range(300, 400)))
    assert sent[-1] == 100
    lanes = await everything(path, 400)
    assert sorted(lanes["0"]) == list(range(400))
    assert [value for value in lanes["0"] if 100 <= value < 300] == list(range(100, 300))


async def test_an_invalid_message_does_not_affect_messages_of_other_tasks(path: Path) -> None:
    async with QueueWriter(path, lanes=["eu"]) as queue:
        sent = await asyncio.gather(
            queue.asend(1), queue.asend(object()), queue.asend(2, lane="mars"), queue.asend(3), return_exceptions=True
        )
    assert [isinstance(one, UsageError) for one in sent] == [False, True, True, False]
    assert await everything(path, 2) == {"eu": [1, 3]}


def test_a_batch_that_does_not_fit_on_the_disk_is_rejected_as_a_whole(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send(1)
        assert queue._file is not None
        pages = queue._file.connection.execute("PRAGMA page_count").fetchone()[0]
        queue._file.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StorageFull, match="takes no more"):
            queue.send_many(["x" * 1_000] * 100, lane="new")
        queue._file.connection.execute("PRAGMA max_page_count = 100000")
        assert queue.send(2, lane="new").position == 1


def test_a_lane_without_free_positions_rejects_messages(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send(1)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE lane SET last = (1 << 40) - 1")
        with pytest.raises(UpstreamError, match="used up"):
            queue.send(2)


SENDER = """
import sys
from headrace.sources.queue.writer import QueueWriter

with QueueWriter(sys.argv[1]) as queue:
    for number in range(int(sys.argv[3])):
        queue.send([sys.argv[2], number])
        print(number, flush=True)
"""


async def test_acknowledged_messages_of_a_killed_sender_are_stored(path: Path) -> None:
    sender = await asyncio.create_subprocess_exec(sys.executable, "-c", SENDER, str(path), "a", "1000000", stdout=asyncio.subprocess.PIPE)
    assert sender.stdout is not None
    async with asyncio.timeout(PATIENCE):
        while await sender.stdout.readline() != b"50\n":
            pass
        sender.kill()
        said = int((b"50\n" + await sender.stdout.read()).split()[-1])
        await sender.wait()
    with QueueWriter(path) as queue:
        after = queue.send(["b", 0]).position
    assert said + 1 < after <= said + 3
    lanes = await everything(path, after)
    assert lanes == {"0": [*(["a", number] for number in range(after - 1)), ["b", 0]]}


async def test_processes_that_create_the_queue_concurrently_lose_no_messages(path: Path) -> None:
    async def send(name: str) -> int:
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SENDER, str(path), name, "60", stdout=asyncio.subprocess.DEVNULL
        )
        return await sender.wait()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        senders = [tasks.create_task(send(name)) for name in "abc"]
    assert [one.result() for one in senders] == [0, 0, 0]
    lanes = await everything(path, 180)
    for name in "abc":
        assert [number for sender, number in lanes["0"] if sender == name] == list(range(60))
