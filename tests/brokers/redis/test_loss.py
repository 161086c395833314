"""Entries that are trimmed, deleted or taken, and streams and groups that are created again."""

from __future__ import annotations

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.redis.entry_ids import position_of
from headrace.testing.contract.reading import reading
from headrace.triggers.stream_log import LogState, StreamLog
from support.sources.reading import items_of, numbers, numbers_of, until_in_thread
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis")]


def problem(producer: object, stream: RedisStream) -> str:
    """Return the report of the stream, of which there is one."""
    (text,) = [text for name, text in producer.get_errors().items() if name.startswith(stream.key)]  # type: ignore[attr-defined]
    return str(text)


async def test_entries_trimmed_while_no_reader_ran_are_a_gap(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        items = await opened.take(10)
        await opened.advance(items)
    ids = stream.send(numbers(10, 60), maxlen=10, approximate=False)
    producer = stream.producer()
    async with reading(producer) as opened:
        later = await opened.take(10)
        assert numbers_of(later) == list(range(50, 60))
        assert "missing: 40 after" in problem(producer, stream)
        # The committed position is that of the gap. So the receipts that begin there leave it open, and the audit names it.
        lane = later[0][0].lane
        assert position_of(ids[39]) <= (producer.get_committed(lane) or 0) < later[0][0].position
        await opened.advance(later)
        assert producer.get_committed(lane) == producer.get_lane_end(lane) == later[-1][0].position
    assert stream.client.hget(stream.state, "lost") == "40"


async def test_entries_trimmed_before_a_reader_came_to_them_end_the_stream_once_all_else_is_answered(stream: RedisStream) -> None:
    stream.send(numbers(0, 5))
    producer = stream.producer()
    async with reading(producer) as opened:
        items = await opened.take(5)
        await opened.advance(items[:2])
        pipeline = stream.client.pipeline(transaction=True)
        for value in numbers(5, 30):
            pipeline.xadd(stream.key, {"data": value}, maxlen=10, approximate=False)
        pipeline.execute()
        await until_in_thread(lambda: bool(producer.get_errors()))
        assert "missing: 15 after" in problem(producer, stream)
        await opened.advance(items[2:])
        with pytest.raises(StreamError, match="are missing"):
            await opened.take(1)
    producer = stream.producer()
    async with reading(producer) as opened:
        later = await opened.take(10)
        assert numbers_of(later) == list(range(20, 30))
        assert items[-1][0].position < (producer.get_committed(later[0][0].lane) or 0) < later[0][0].position
        await opened.advance(later)
    assert stream.pending() == 0


async def test_entries_trimmed_while_they_were_pending_are_a_gap(stream: RedisStream) -> None:
    stream.send(numbers(0, 20))
    async with reading(stream.producer()) as opened:
        await opened.advance((await opened.take(20))[:5])
    stream.client.xtrim(stream.key, maxlen=8, approximate=False)
    producer = stream.producer()
    async with reading(producer) as opened:
        later = await opened.take(8)
        assert numbers_of(later) == list(range(12, 20))
        assert "were removed before they were answered" in problem(producer, stream)
        assert (producer.get_committed(later[0][0].lane) or 0) == later[0][0].position - 1
        await opened.advance(later)
    assert stream.pending() == 0


async def test_an_entry_deleted_between_pending_ones_is_a_gap_of_the_next_opening(stream: RedisStream) -> None:
    ids = stream.send(numbers(0, 6))
    async with reading(stream.producer()) as opened:
        await opened.take(6)
    stream.client.xdel(stream.key, ids[3])
    async with reading(stream.producer()) as opened:
        items = await opened.take(3)
        await opened.advance(items)
        with pytest.raises(StreamError, match="are missing"):
            await opened.take(1)
    async with reading(stream.producer()) as opened:
        items = await opened.take(2)
        assert numbers_of(items) == [4, 5]
        assert opened.producer.get_committed(items[0][0].lane) == position_of(ids[3])


async def test_an_unread_entry_that_is_deleted_is_missing_also_at_the_end(stream: RedisStream) -> None:
    stream.send(numbers(0, 3))
    async with reading(stream.producer()) as opened:
        await opened.advance(await opened.take(3))
    stream.client.xdel(stream.key, stream.send(numbers(3, 4))[0])
    producer = stream.producer()
    async with reading(producer) as opened:
        await until_in_thread(lambda: bool(producer.get_errors()))
        assert "missing: 1 after" in problem(producer, stream)


async def test_an_answered_entry_that_is_deleted_is_not_missing(stream: RedisStream) -> None:
    ids = stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        await opened.advance(await opened.take(10))
        stream.client.xdel(stream.key, *ids[2:6])
        stream.client.xtrim(stream.key, maxlen=1, approximate=False)
        stream.send(numbers(10, 12))
        await opened.advance(await opened.take(2))
        assert opened.producer.get_errors() == {}
    async with reading(stream.producer()) as opened:
        stream.send(numbers(12, 13))
        assert numbers_of(await opened.take(1)) == [12]
        assert opened.producer.get_errors() == {}


async def test_entries_that_another_consumer_takes_are_missing(stream: RedisStream) -> None:
    stream.send(numbers(0, 2))
    async with reading(stream.producer()) as opened:
        await opened.advance(await opened.take(2))
    stream.send(numbers(2, 4))
    stream.client.xreadgroup(stream.group, "other", {stream.key: ">"}, noack=True)
    stream.send(numbers(4, 5))
    producer = stream.producer()
    async with reading(producer) as opened:
        assert numbers_of(await opened.take(1)) == [4]
        assert "Another program has moved group" in " ".join(producer.get_errors().values())
    stream.client.xreadgroup(stream.group, "other", {stream.key: ">"})
    stream.send(numbers(5, 6))
    stream.client.xreadgroup(stream.group, "other", {stream.key: ">"})
    with pytest.raises(UpstreamError, match="has other consumers with unacknowledged entries: other"):
        async with reading(stream.producer()) as opened:
            await opened.take(1)


async def test_a_stream_that_was_deleted_and_created_again_is_another_lane(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        items = await opened.take(10)
        await opened.advance(items)
    stream.client.delete(stream.key)
    stream.client.xadd(stream.key, {"data": '{"n": 10}'}, id="5-1")
    producer = stream.producer()
    async with reading(producer) as opened:
        ((raw, _),) = await opened.take(1)
        assert raw.value == {"n": 10}
        assert raw.lane != items[0][0].lane
        assert "was deleted, or created again" in problem(producer, stream)


async def test_a_stream_created_again_while_it_is_read_is_another_lane(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        items = await opened.take(10)
        await opened.advance(items[:5])
        stream.client.delete(stream.key)
        stream.client.xadd(stream.key, {"data": '{"n": 10}'}, id="5-1")
        later = await opened.take(1)
        assert numbers_of(later) == [10]
        assert later[0][0].lane != items[0][0].lane
        await opened.advance(items[5:])
        await opened.advance(later)
        assert opened.producer.get_committed(later[0][0].lane) == later[0][0].position
    async with reading(stream.producer()) as opened:
        stream.send(numbers(11, 12))
        assert numbers_of(await opened.take(1)) == [11]


async def test_a_group_that_was_deleted_is_made_again_at_the_committed_entry(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        items = await opened.take(10)
        await opened.advance(items[:6])
    stream.client.xgroup_destroy(stream.key, stream.group)
    async with reading(stream.producer()) as opened:
        again = await opened.take(4)
        assert [(raw.lane, raw.position) for raw, _ in again] == [(raw.lane, raw.position) for raw, _ in items[6:]]
        assert "has deleted group" in problem(opened.producer, stream)
        stream.client.xgroup_destroy(stream.key, stream.group)
        stream.client.xgroup_create(stream.key, stream.group, id="$")
        stream.send(numbers(10, 11))
        assert numbers_of(await opened.take(1)) == [10]
        await opened.advance(again)


async def test_a_lost_state_keeps_the_lane(stream: RedisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as opened:
        items = await opened.take(10)
        await opened.advance(items[:6])
        stream.client.delete(stream.state, f"{stream.state}:lease")
        stream.send(numbers(10, 11))
        later = await opened.take(1)
        assert (numbers_of(later), later[0][0].lane) == ([10], items[0][0].lane)
        await opened.advance([*items[6:], *later])
    assert stream.pending() == 0


async def test_an_event_log_that_has_receipts_of_a_stream_without_progress_is_told(stream: RedisStream) -> None:
    async def look_up(name: str) -> LogState:
        return LogState("log", 5)

    stream.send(numbers(0, 1))
    producer = stream.producer(start="latest")
    producer.log = StreamLog("redis:test", LogState("log", 5), look_up)
    async with reading(producer) as opened:
        assert numbers_of(await opened.take(1)) == [0]
        assert "its progress are missing" in problem(producer, stream)


async def test_another_event_log_is_refused(stream: RedisStream) -> None:
    async def look_up(name: str) -> LogState:
        return LogState("log", 0)

    stream.send(numbers(0, 2))
    producer = stream.producer()
    producer.log = StreamLog("redis:test", LogState("log", 0), look_up)
    async with reading(producer) as opened:
        items = await opened.take(2)
        producer.log.stored()
        await opened.producer.advance(items_of(items[:1]))
    for state, text in ((LogState("another", 0), "it has another database"), (LogState("log", 0), "restored from a backup")):
        producer = stream.producer()
        producer.log = StreamLog("redis:test", state, look_up)
        with pytest.raises(UpstreamError, match=text):
            async with reading(producer) as opened:
                await opened.take(1)
