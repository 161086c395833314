"""A peek at a queue shows the messages that a reader would get next, and changes nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from headrace.errors import UpstreamError
from headrace.sources.http.upstream import Http
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.writer import QueueWriter
from headrace.testing.contract.reading import reading
from headrace.triggers.raw_event import Message
from support.sources.folders import contents


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.queue"


async def test_the_remaining_messages_are_shown_while_a_reader_has_the_queue(path: Path) -> None:
    with QueueWriter(path) as queue:
        for number in range(5):
            queue.send({"n": number}, key=f"key {number}")
    async with reading(Queue(path).producer()) as stream:
        await stream.advance(await stream.take(2))
        seen = (await peek_upstream(Queue(path), PeekRequest(10))).messages
        raws = [raw for raw, _ in await stream.take(3)]
    assert [(raw.lane, raw.position, raw.data) for raw in seen] == [(raw.lane, raw.position, raw.data) for raw in raws]
    assert [raw.key for raw in seen if isinstance(raw, Message)] == ["key 2", "key 3", "key 4"]


async def test_a_peek_changes_nothing(path: Path) -> None:
    with QueueWriter(path) as queue:
        queue.send_many({"n": number} for number in range(5))
    before = contents(path.parent)
    for _ in range(3):
        assert [raw.position for raw in (await peek_upstream(Queue(path), PeekRequest(2))).messages] == [1, 2]
    assert contents(path.parent) == before
    async with reading(Queue(path).producer()) as stream:
        assert [(raw.position, raw.delivery) for raw, _ in await stream.take(5)] == [(number, 1) for number in range(1, 6)]


async def test_lanes_have_their_turns(path: Path) -> None:
    with QueueWriter(path) as queue:
        for lane, count in (("a", 10), ("b", 1), ("c", 3)):
            queue.send_many(({"n": n} for n in range(count)), lane=lane)
    names = [raw.lane[0] for raw in (await peek_upstream(Queue(path), PeekRequest(6))).messages]
    assert names == ["a", "a", "a", "b", "c", "c"]
    one = (await peek_upstream(Queue(path), PeekRequest(10, "c"))).messages
    assert [raw.position for raw in one] == [1, 2, 3]
    assert (await peek_upstream(Queue(path), PeekRequest(10, one[0].lane))).messages[0].data == one[0].data


async def test_wrong_lanes_and_files_are_refused(path: Path, tmp_path: Path) -> None:
    for upstream in (Queue(path), Http("hooks", verify="none", folder=tmp_path)):
        with pytest.raises(UpstreamError, match="There is no queue at"):
            await peek_upstream(upstream, PeekRequest(1))
    with QueueWriter(path) as queue:
        queue.send({"n": 1}, lane="eu")
    with pytest.raises(UpstreamError, match="There is no lane 'us'") as caught:
        await peek_upstream(Queue(path), PeekRequest(1, "us"))
    assert "eu@" in str(caught.value.hint)
    other = tmp_path / "other.queue"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE one (two)")
    connection.close()
    with pytest.raises(UpstreamError, match="not a queue of Headrace"):
        await peek_upstream(Queue(other), PeekRequest(1))
    await asyncio.to_thread(other.write_text, "no database" * 100)
    with pytest.raises(UpstreamError, match="but not a queue"):
        await peek_upstream(Queue(other), PeekRequest(1))


async def test_a_peek_that_ends_before_its_limit_says_so(path: Path) -> None:
    with QueueWriter(path) as queue:
        for _ in range(20):
            queue.send("x" * 1_000_000)
    seen = await peek_upstream(Queue(path), PeekRequest(20))
    assert (len(seen.messages), seen.notes) == (17, ["A peek ends after 16 MiB: there may be more messages."])
    assert not (await peek_upstream(Queue(path), PeekRequest(10))).notes
