"""Second readers, the stored offset, streams that are created again, and back-pressure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamEnded, StreamError, UpstreamError
from headrace.sources.rabbitmq.streams.progress import NOTE_ARGUMENTS, OffsetNote
from headrace.testing.contract.reading import opened, reading
from headrace.triggers.stream_log import LogState, StreamLog
from support.processes.rabbitmq import RabbitServer
from support.sources.kit import PATIENCE
from support.sources.rabbitmq import MakeStream, RabbitStream
from support.sources.reading import ACKED, items_of, numbers, numbers_of, until, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq")]


def stream_log(receipts: int, log: str = "log") -> StreamLog:
    async def look_up(name: str) -> LogState:
        return LogState(log, receipts)

    return StreamLog("streams:test", LogState(log, receipts), look_up)


async def test_a_second_reader_of_a_group_is_refused_by_name_until_the_first_has_ended(stream: RabbitStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.reader()) as first:
        items = await first.take(10)
        with pytest.raises(StreamError, match=f"'{stream.name}' cannot be read: it has another reader of the group 'shop'"):
            async with reading(stream.reader()) as second:
                await second.take(1)
        await first.advance(items[:4])
    async with reading(stream.reader()) as second:
        assert numbers_of(await second.take(6)) == [4, 5, 6, 7, 8, 9]


async def test_of_two_readers_that_open_at_once_one_reads(stream: RabbitStream) -> None:
    stream.send(numbers(0, 40))
    async with reading(stream.reader()) as one, reading(stream.reader()) as other:
        taken = await asyncio.gather(one.take(40), other.take(40), return_exceptions=True)
    assert sorted(isinstance(part, StreamError) for part in taken) == [False, True]


async def test_a_reader_that_has_lost_its_connection_commits_nothing_beside_the_next_one(stream: RabbitStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.reader()) as first:
        items = await first.take(10)
        await first.advance(items[:2])
        await until_in_thread(lambda: stream.server.close_connections() > 0)
        async with reading(stream.reader()) as second:
            again = await second.take(8)
            assert numbers_of(again) == list(range(2, 10))
            await second.advance(again[:3])
            with pytest.raises(StreamEnded):
                await first.advance(items)
            with pytest.raises(StreamError, match="has ended"):
                await first.take(1)
            assert await asyncio.to_thread(stream.offset) == 4
            await second.advance(again[3:])
    assert stream.offset() == 9


async def test_the_offset_stays_before_a_failed_message(stream: RabbitStream) -> None:
    stream.send(numbers(0, 10))
    producer = stream.reader()
    async with reading(producer) as stream_of:
        items = await stream_of.take(10)
        lane = items[0][0].lane
        assert producer.get_committed(lane) is None
        await producer.advance(items_of(items[:6], failed=[3]))
        await producer.advance(items_of(items[6:]))
        assert producer.get_committed(lane) == 2
    assert stream.offset() == 2
    async with reading(stream.reader()) as stream_of:
        assert numbers_of(await stream_of.take(7)) == list(range(3, 10))


async def test_a_stream_that_is_created_again_is_another_lane_and_is_read_from_its_first_message_on(stream: RabbitStream) -> None:
    """The same messages with the same offsets: nothing in them tells the streams apart."""
    for start in ("earliest", "latest"):
        stream.make_again()
        lanes: list[str] = []
        for number in range(2):
            if number:
                stream.make_again()
            stream.send(numbers(0, 10), message_id="same")
            producer = stream.reader(start=start) if number else stream.reader()
            async with reading(producer) as opened_stream:
                items = await opened_stream.take(10)
                lanes.append(items[0][0].lane)
                await opened_stream.advance(items[:4])
                if number:
                    assert "was deleted and created again" in producer.get_errors()[stream.name]
        assert lanes[0] != lanes[1]
        assert len(stream.server.exchanges(stream.name)) == 1


async def test_a_stream_that_is_deleted_while_it_is_read_ends_by_name(stream: RabbitStream) -> None:
    stream.send(numbers(0, 5))
    async with reading(stream.reader()) as opened_stream:
        await opened_stream.take(5)
        await asyncio.to_thread(stream.server.delete_queue, stream.name)
        with pytest.raises(StreamError, match=f"'{stream.name}' was deleted"):
            await opened_stream.take(1)
    with pytest.raises(UpstreamError, match="does not exist"):
        async with reading(stream.reader()) as opened_stream:
            await opened_stream.take(1)


async def test_a_stream_that_ends_before_its_stored_offset_is_refused(stream: RabbitStream) -> None:
    """Streams are not synced to disk, and the queue of the offset is. Messages with the offsets of lost ones would be skipped."""
    stream.send(numbers(0, 10))
    async with reading(stream.reader()) as opened_stream:
        await opened_stream.advance(await opened_stream.take(10))
    note = stream.note()
    assert note is not None
    ahead = OffsetNote(number=note.number + 1, birthmark=note.birthmark, offset=11)
    stream.server.send(stream.notes, [ahead.text(None).encode()])
    with pytest.raises(UpstreamError, match="ends at offset 9, and was read up to 11") as raised:
        async with reading(stream.reader()) as opened_stream:
            await opened_stream.take(1)
    assert "exchange" in str(raised.value.hint)
    stream.send(numbers(10, 20))
    async with reading(stream.reader()) as opened_stream:
        assert numbers_of(await opened_stream.take(1)) == [12]


async def test_the_newest_of_several_notes_counts(stream: RabbitStream) -> None:
    """An advance that is killed may leave two."""
    stream.server.declare(stream.notes)
    stream.send(numbers(0, 10))
    async with reading(stream.reader()) as opened_stream:
        for item in await opened_stream.take(6):
            await opened_stream.advance([item])
    async with reading(stream.reader()) as opened_stream:
        assert numbers_of(await opened_stream.take(1)) == [6]


async def test_the_message_of_another_program_in_the_queue_of_the_offset_is_refused(stream: RabbitStream) -> None:
    limits: dict[str, Any] = {name: value for name, value in NOTE_ARGUMENTS.items() if name != "x-queue-type"}
    stream.server.declare(stream.notes, **limits)
    stream.server.send(stream.notes, [b'{"offset": 7}'])
    with pytest.raises(UpstreamError, match="has a message of another program"):
        async with reading(stream.reader()) as opened_stream:
            await opened_stream.take(1)


async def test_an_offset_that_was_deleted_is_not_taken_for_a_first_reading(stream: RabbitStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.reader()) as opened_stream:
        await opened_stream.advance((await opened_stream.take(10))[:4])
    stream.server.delete_queue(stream.notes)
    for start in ("latest", 7):
        producer = stream.reader(start=start)
        producer.log = stream_log(5)
        with pytest.raises(UpstreamError, match="Messages may be lost: the stored offset"):
            async with reading(producer) as opened_stream:
                await opened_stream.take(1)
    producer = stream.reader()
    producer.log = stream_log(5)
    async with reading(producer) as opened_stream:
        assert numbers_of(await opened_stream.take(1)) == [0]
        assert "was deleted or purged" in producer.get_errors()[stream.name]


async def test_another_event_log_is_refused(stream: RabbitStream) -> None:
    stream.send(numbers(0, 10))
    producer = stream.reader()
    producer.log = stream_log(5)
    async with reading(producer) as opened_stream:
        await opened_stream.advance((await opened_stream.take(10))[:4])
    for log, text in ((stream_log(5, "another"), "it has another database"), (stream_log(4), "restored from a backup")):
        producer = stream.reader()
        producer.log = log
        with pytest.raises(UpstreamError, match=text):
            async with reading(producer) as opened_stream:
                await opened_stream.take(1)
    assert stream.offset() == 3


async def test_what_is_not_taken_stays_at_the_server(stream: RabbitStream) -> None:
    stream.send(numbers(0, 5_000))
    producer = stream.reader(prefetch=20)
    async with opened(producer) as messages:
        items = [await anext(messages) for _ in range(2)]
        chunk = 2_000  # the server sends a begun chunk to its end
        before = -1
        while before != producer._arrivals.qsize():
            before = producer._arrivals.qsize()
            await asyncio.to_thread(stream.ready)
        assert before <= 20 + chunk
        while len(items) < 5_000:
            items.append(await anext(messages))
        assert numbers_of(items) == list(range(5_000))
    await producer.aclose()


async def test_a_message_held_beyond_the_consumer_timeout_does_not_end_the_stream(
    make_stream: MakeStream, own_server: RabbitServer
) -> None:
    """Messages of a stream are acknowledged when they are taken. The server has a timeout of 4 s."""
    stream = make_stream(own_server)
    stream.send(numbers(0, 3))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE), reading(stream.reader()) as opened_stream:
        items = await opened_stream.take(3)
        until_then, sent = loop.time() + 8, 3
        while loop.time() < until_then:
            await asyncio.to_thread(stream.send, numbers(sent, sent + 1))
            assert numbers_of(await opened_stream.take(1)) == [sent]
            sent += 1
        await opened_stream.advance(items)
    assert await asyncio.to_thread(stream.offset) == 2


async def test_cancelled_openings_and_advances_leave_no_task_and_lose_nothing(stream: RabbitStream) -> None:
    stream.send(numbers(0, 50))
    before = asyncio.all_tasks()
    for steps in [*range(0, 60, 3), *range(12)] * 3:  # the client drops a cancellation in some of the first steps
        producer = stream.reader()

        async def visit(producer: Any = producer) -> None:
            async for _, payload in producer.open_stream():
                await producer.advance([AdvanceItem(payload, ACKED)])

        task = asyncio.create_task(visit())
        for _ in range(steps):
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await producer.aclose()
    await until(lambda: asyncio.all_tasks() == before)
    done = await asyncio.to_thread(stream.offset)
    first = 0 if done is None else done + 1
    async with reading(stream.reader()) as opened_stream:
        assert numbers_of(await opened_stream.take(50 - first)) == list(range(first, 50))
