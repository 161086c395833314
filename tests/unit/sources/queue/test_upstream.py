"""Behaviour of a queue beyond the source contract: readers, lanes and keys, deliveries, dead letters."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StorageFull, StreamEnded, UpstreamError
from headrace.sources.queue import producer as queue_producer
from headrace.sources.queue import reader as queue_reader
from headrace.sources.queue.file import QueueFile
from headrace.sources.queue.producer import QueueProducer
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.wakeup import pipe_of
from headrace.sources.queue.writer import QueueWriter
from headrace.testing.contract.reading import opened, reading
from support.sources.kit import PATIENCE

ACKED = AdvanceOutcome(1, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.queue"


def put(path: Path, count: int, *, start: int = 0, lane: str | None = None) -> None:
    with QueueWriter(path) as queue:
        assert queue.send_many(range(start, start + count), lane=lane) == count


def values(items: list[tuple[Any, Any]]) -> list[Any]:
    return [raw.value for raw, _ in items]


async def open_error(path: Path) -> UpstreamError:
    async with reading(Queue(path).producer()) as held:
        with pytest.raises(UpstreamError) as caught:
            await held.take(1)
    assert caught.value.hint
    return caught.value


def test_a_queue_is_serialized_as_plain_json(tmp_path: Path) -> None:
    upstream = Queue("orders.queue", lanes=("eu", "us")).relative_to(tmp_path)
    assert upstream.serialize() == (
        "headrace.sources.queue.upstream.Queue",
        {"path": str(tmp_path / "orders.queue"), "lanes": ["eu", "us"]},
    )
    assert upstream.stream_key() == f"queue:{tmp_path}/orders.queue"
    assert Queue("a", lanes=3).serialize()[1] == {"path": "a", "lanes": 3}


@pytest.mark.parametrize("lanes", [0, -1, [], ["a", "a"], [""], "eu", ["a@b"]])
def test_invalid_lanes_are_rejected(lanes: Any) -> None:
    with pytest.raises(UpstreamError, match="cannot have the lanes"):
        Queue("orders.queue", lanes)


async def test_the_first_reader_or_sender_creates_the_queue(path: Path) -> None:
    async with reading(Queue(path).producer()) as held:
        put(path, 3)
        assert values(await held.take(3)) == [0, 1, 2]


async def test_a_queue_has_at_most_one_reader(path: Path) -> None:
    put(path, 1)
    async with reading(Queue(path).producer()) as held:
        await held.take(1)
        assert "Another process is reading" in str(await open_error(path))
    async with reading(Queue(path).producer()) as held:
        await held.take(1)


async def test_a_file_that_is_not_a_queue_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is not a database, and it is longer than the header of one would be. " * 4)
    (tmp_path / "empty").touch()
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE a (b)")
    assert "but not a queue" in str(await open_error(tmp_path / "text"))
    assert "not a queue of Headrace" in str(await open_error(tmp_path / "empty"))
    assert "not a queue of Headrace" in str(await open_error(tmp_path / "other.db"))
    assert "is a folder" in str(await open_error(tmp_path))
    assert "does not exist" in str(await open_error(tmp_path / "nowhere" / "orders.queue"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["empty", "other.db", "text"]


@pytest.mark.parametrize(("version", "hint"), [(99, "newer Headrace"), (2, "start with a new queue")], ids=["newer", "removed"])
async def test_a_queue_of_another_version_is_rejected(path: Path, version: int, hint: str) -> None:
    put(path, 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    error = await open_error(path)
    assert f"version {version}" in str(error)
    assert hint in (error.hint or "")


READER = """
import asyncio, sys
from headrace.sources.queue.upstream import Queue

async def main():
    async for raw, _ in Queue(sys.argv[1]).producer().open_stream():
        print(raw.position, flush=True)

asyncio.run(main())
"""


async def child(script: str, *arguments: str) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    return process, process.stdout


async def test_the_queue_of_a_killed_reader_can_be_read_and_deliveries_are_counted(path: Path) -> None:
    put(path, 3)
    for delivery in (1, 2):
        reader, said = await child(READER, str(path))
        assert await said.readline() == b"1\n", delivery
        reader.kill()
        await reader.wait()
    async with reading(Queue(path).producer()) as held:
        items = await held.take(3)
        assert [(raw.value, raw.delivery) for raw, _ in items] == [(0, 3), (1, 3), (2, 3)]
        await held.advance(items[:1])
        put(path, 1, start=3)
        assert [raw.delivery for raw, _ in await held.take(1)] == [1]
    assert [one.name for one in path.parent.glob("*-reader-*")] == []


async def test_a_reader_that_stalls_past_its_lease_is_replaced_and_fenced(path: Path) -> None:
    put(path, 3)
    old = Queue(path).producer()
    async with reading(old) as stood_still:
        items = await stood_still.take(3)
        with closing(QueueFile(path)) as file, file.writing() as connection:
            connection.execute("UPDATE queue SET expires = 1")
        async with reading(Queue(path).producer()) as held:
            assert values(await held.take(3)) == [0, 1, 2]
            with pytest.raises(StreamEnded, match="Another reader has taken over"):
                await stood_still.advance(items)
            put(path, 1, start=3)
            assert values(await held.take(1)) == [3]
            with pytest.raises(StreamEnded, match="Another reader has taken over"):
                await stood_still.take(1)
    async with reading(Queue(path).producer()) as held:
        assert values(await held.take(4)) == [0, 1, 2, 3]


async def test_an_open_stream_renews_its_lease_and_ends_when_the_lease_is_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_producer, "LEASE_SECONDS", 0.3)
    put(path, 1)

    def expires() -> float:
        with closing(sqlite3.connect(path)) as connection:
            return float(connection.execute("SELECT expires FROM queue").fetchone()[0])

    async with reading(Queue(path).producer()) as held:
        await held.take(1)
        first = expires()
        async with asyncio.timeout(PATIENCE):
            while expires() <= first:
                await asyncio.sleep(0.05)
        with closing(QueueFile(path)) as file, file.writing() as connection:
            connection.execute("UPDATE queue SET epoch = epoch + 1")
        with pytest.raises(StreamEnded):
            await held.take(1)


async def test_a_rejected_message_is_stored_as_a_dead_letter(path: Path) -> None:
    put(path, 4)
    began = datetime.now(UTC)
    producer = Queue(path).producer()
    outcomes = [AdvanceOutcome(1, 0), AdvanceOutcome(2, 0, rejected=1), AdvanceOutcome(0, 0, rejected=1), AdvanceOutcome(0, 1, rejected=1)]
    async with reading(producer) as held:
        items = await held.take(4)
        for _ in range(2):
            await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items, outcomes, strict=True)])
    letters = Queue(path).dead_letters()
    assert [(letter.position, letter.data, letter.deliveries) for letter in letters] == [(2, b"1", 1), (3, b"2", 1)]
    assert {letter.lane for letter in letters} == {items[0][0].lane}
    assert all(began.replace(microsecond=0) <= letter.rejected <= datetime.now(UTC) for letter in letters)
    async with reading(Queue(path).producer()) as held:
        assert values(await held.take(1)) == [3]


def test_dead_letters_of_a_missing_queue_are_an_error(path: Path) -> None:
    with pytest.raises(UpstreamError, match="There is no queue"):
        Queue(path).dead_letters()
    assert not path.exists()


async def test_only_failed_messages_are_redelivered(path: Path) -> None:
    put(path, 6)
    producer = Queue(path).producer()
    async with reading(producer) as held:
        items = await held.take(6)
        lane = items[0][0].lane
        await producer.advance([AdvanceItem(payload, AdvanceOutcome(0, int(raw.value in (1, 4)))) for raw, payload in items])
        assert (producer.get_committed(lane), producer.get_lane_end(lane)) == (1, 6)
    async with reading(Queue(path).producer()) as held:
        again = await held.take(2)
        assert [(raw.value, raw.position, raw.delivery) for raw, _ in again] == [(1, 2, 2), (4, 5, 2)]
        await held.advance(again[:1])
        assert held.producer.get_committed(lane) == 4
        await held.advance(again[1:])
        assert held.producer.get_committed(lane) == 6


async def test_a_recreated_queue_has_new_lanes(path: Path) -> None:
    put(path, 1)
    async with reading(Queue(path).producer()) as held:
        first = (await held.take(1))[0][0]
    path.unlink()
    put(path, 1)
    async with reading(Queue(path).producer()) as held:
        second = (await held.take(1))[0][0]
    assert first.position == second.position
    assert first.lane != second.lane
    assert first.lane.startswith("0@")


async def test_a_moved_queue_ends_the_stream_and_rejects_messages(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send(1)
        async with reading(Queue(path).producer()) as held:
            await held.take(1)
            path.rename(path.with_name("elsewhere"))
            with pytest.raises(UpstreamError, match="moved or deleted"):
                queue.send(2)
            with pytest.raises(UpstreamError, match="moved or deleted"):
                await held.take(1)


async def test_no_lane_is_starved_by_lanes_with_many_messages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reader, "FETCH_MESSAGES", 64)
    with QueueWriter(path) as queue:
        for lane in range(10):
            queue.send_many(range(200), lane=f"lane{lane}")
    first: dict[str, int] = {}
    by_lane: dict[str, list[int]] = defaultdict(list)
    async with reading(Queue(path).producer()) as held:
        for number, (raw, _) in enumerate(await held.take(2_000)):
            first.setdefault(raw.lane, number)
            by_lane[raw.lane].append(raw.value)
    assert all(got == list(range(200)) for got in by_lane.values())
    assert max(first.values()) < 640


async def test_large_messages_are_fetched_in_small_batches(path: Path) -> None:
    with QueueWriter(path) as queue:
        for number in range(12):
            queue.send([number, "x" * 1_000_000])
    reader = queue_reader.QueueReader(path)
    sizes = []
    while messages := reader.fetch():
        sizes.append(len(messages))
    reader.close()
    assert sum(sizes) == 12
    assert max(sizes) <= 5


async def test_without_a_pipe_new_messages_are_read_at_the_next_poll(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_producer, "SAFETY", 0.1)
    pipe_of(path).write_text("not a pipe")
    async with reading(Queue(path).producer()) as held:
        put(path, 1)
        assert values(await held.take(1)) == [0]
        put(path, 1, start=1)
        assert values(await held.take(1)) == [1]
    assert pipe_of(path).read_text() == "not a pipe"


async def test_new_messages_do_not_wait_for_the_next_poll(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_producer, "SAFETY", 10 * PATIENCE)
    async with reading(Queue(path).producer()) as held:
        for number in range(50):
            put(path, 1, start=number)
            assert values(await held.take(1)) == [number]


async def test_many_lanes_share_a_commit(path: Path) -> None:
    with QueueWriter(path, lanes=50) as queue:
        queue.send_many(range(500))
    commits: list[int] = []

    class Counting(QueueProducer):
        async def _commit(self, batches: list[Any]) -> list[None]:
            commits.append(len(batches))
            return await super()._commit(batches)

    producer = Counting(path, None)
    async with reading(producer) as held:
        lanes: dict[str, list[AdvanceItem]] = defaultdict(list)
        for raw, payload in await held.take(500):
            lanes[raw.lane].append(AdvanceItem(payload, ACKED))
        await asyncio.gather(*map(producer.advance, lanes.values()))
    assert sum(commits) == 50
    assert len(commits) == 1


async def test_an_advance_that_cannot_be_written_raises_and_can_be_retried(path: Path) -> None:
    put(path, 3)
    producer = Queue(path).producer()
    async with reading(producer) as held:
        items = await held.take(3)
        reader = producer._reader
        assert reader is not None
        await producer._in_thread(lambda: reader._file.connection.execute("PRAGMA query_only = ON"))
        with pytest.raises(StorageFull, match="takes no more"):
            await held.advance(items)
        await producer._in_thread(lambda: reader._file.connection.execute("PRAGMA query_only = OFF"))
        await held.advance(items[:2])
    async with reading(Queue(path).producer()) as held:
        assert values(await held.take(1)) == [2]


async def test_a_closed_producer_does_not_advance(path: Path) -> None:
    put(path, 1)
    producer = Queue(path).producer()
    async with opened(producer) as stream:
        _, payload = await anext(stream)
    await producer.aclose()
    with pytest.raises(StreamEnded):
        await producer.advance([AdvanceItem(payload, ACKED)])
    assert (producer.get_committed(payload.lane), producer.get_lane_end(payload.lane)) == (None, None)


async def test_a_stalled_reader_does_not_block_senders(path: Path) -> None:
    put(path, 1)
    reader, said = await child(READER, str(path))
    assert await said.readline() == b"1\n"
    os.kill(reader.pid, signal.SIGSTOP)
    put(path, 100, start=1)
    os.kill(reader.pid, signal.SIGCONT)
    async with asyncio.timeout(PATIENCE):
        assert [int(await said.readline()) for _ in range(100)] == list(range(2, 102))
    reader.kill()
    await reader.wait()
