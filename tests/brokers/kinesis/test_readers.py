"""A second reader, progress that is deleted, and another event log."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import UpstreamError, UpstreamFenced
from headrace.testing.contract.reading import reading
from headrace.triggers.stream_log import LogState, StreamLog
from support.sources.kinesis import KinesisStream
from support.sources.kit import PATIENCE
from support.sources.reading import items_of, numbers, numbers_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kinesis"), pytest.mark.timeout(2 * PATIENCE)]


async def look_up(name: str) -> LogState:
    return LogState("log", 0)


def log(state: LogState) -> StreamLog:
    return StreamLog("kinesis:test", state, look_up)


async def test_a_second_reader_fences_the_first(stream: KinesisStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.producer()) as first:
        items = await first.take(10)
        await first.advance(items[:4])
        async with reading(stream.producer()) as second:
            again = await second.take(6)
            assert numbers_of(again) == list(range(4, 10))
            with pytest.raises(UpstreamFenced, match="Another reader has taken over"):
                await first.advance(items[4:6])
            with pytest.raises(UpstreamFenced):
                await first.take(1)
            await second.advance(again)
    assert stream.stored() == 10


async def test_an_idle_reader_is_fenced_too(stream: KinesisStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kinesis.reader.WATCH_SECONDS", 0.2)
    stream.send(numbers(0, 1))
    async with reading(stream.producer()) as first:
        await first.advance(await first.take(1))
        async with reading(stream.producer()) as second:
            with pytest.raises(UpstreamFenced):
                await first.take(1)
            stream.send(numbers(1, 2))
            assert numbers_of(await second.take(1)) == [1]


async def test_a_commit_that_arrives_late_does_not_lower_the_count(stream: KinesisStream) -> None:
    """A request may reach the table after the client has given it up, and after a later one."""
    stream.send(numbers(0, 6))
    producer = stream.producer()
    async with reading(producer) as opened:
        items = await opened.take(6)
        lane = items[0][1].lane
        late = lane.answer(items_of(items[:2]))
        assert late is not None
        await opened.advance(items)
        with pytest.raises(UpstreamFenced):
            await producer._table.commit(lane.name, late, None)  # type: ignore[union-attr]
    assert stream.stored() == 6


async def test_another_event_log_is_refused(stream: KinesisStream) -> None:
    stream.send(numbers(0, 2))
    producer = stream.producer()
    producer.log = log(LogState("log", 0))
    async with reading(producer) as opened:
        items = await opened.take(2)
        producer.log.stored()
        await opened.advance(items[:1])
    for state, text in ((LogState("another", 0), "it has another database"), (LogState("log", 0), "restored from a backup")):
        producer = stream.producer()
        producer.log = log(state)
        with pytest.raises(UpstreamError, match=text):
            async with reading(producer) as opened:
                await opened.take(1)


async def test_deleted_progress_is_reported_and_gives_new_lanes(stream: KinesisStream) -> None:
    stream.send(numbers(0, 3))
    async with reading(stream.producer()) as opened:
        items = await opened.take(3)
        await opened.advance(items)
    stream.delete_progress()
    producer = stream.producer(start="latest")
    producer.log = log(LogState("log", 7))
    with pytest.raises(UpstreamError, match="Records may be lost: the progress of"):
        async with reading(producer) as opened:
            await opened.take(1)
    producer = stream.producer()
    producer.log = log(LogState("log", 7))
    async with reading(producer) as opened:
        again = await opened.take(3)
        assert "was deleted, and the stream was read before" in producer.get_errors()["progress"]
    assert {raw.lane for raw, _ in again}.isdisjoint(raw.lane for raw, _ in items)
    assert [raw.id for raw, _ in again] == [raw.id for raw, _ in items]  # so that events are recognised


async def test_a_missing_table_is_refused_with_the_command_that_creates_it(stream: KinesisStream) -> None:
    for table, text in (("nothing-there", "there is no table 'nothing-there'"), ("other-keys", "cannot be")):
        if table == "other-keys":
            await asyncio.to_thread(stream.server.create_table, table, range_key="sort")
        with pytest.raises(UpstreamError, match=text) as caught:
            async with reading(stream.producer(table=table)) as opened:
                await opened.take(1)
        assert f"aws dynamodb create-table --table-name {table} " in str(caught.value.hint)


async def test_a_missing_stream_is_refused(stream: KinesisStream) -> None:
    producer = stream.producer()
    producer._arguments = producer._arguments._replace(stream="nothing-there")
    with pytest.raises(UpstreamError, match="Stream 'nothing-there' cannot be"):
        async with reading(producer) as opened:
            await opened.take(1)
