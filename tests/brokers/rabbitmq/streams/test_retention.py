"""Messages that the server removes before they are read: each is named, and lies before the committed position of an opening."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.errors import StreamError
from headrace.testing.contract.reading import opened, reading
from support.sources.kit import PATIENCE
from support.sources.rabbitmq import MakeStream, RabbitStream
from support.sources.reading import items_of, numbers_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq")]

SMALL = {"x_max_length_bytes": 20_000, "x_stream_max_segment_size_bytes": 10_000}


@pytest.fixture
def small(make_stream: MakeStream) -> RabbitStream:
    """Return a stream that has about the last 20 kB."""
    return make_stream(**SMALL)


def send_more(stream: RabbitStream, start: int, stop: int) -> None:
    """Send messages of about 200 bytes each, a few at a time: segments end between chunks."""
    for first in range(start, stop, 10):
        stream.send([b'{"n":%d,"x":"%s"}' % (number, b"x" * 180) for number in range(first, min(stop, first + 10))])


async def test_messages_removed_while_no_reader_ran_are_named(small: RabbitStream) -> None:
    send_more(small, 0, 20)
    async with reading(small.reader()) as stream:
        await stream.advance((await stream.take(20))[:10])
    await asyncio.to_thread(send_more, small, 20, 600)
    producer = small.reader()
    async with reading(producer) as stream:
        items = await stream.take(1)
        first = items[0][0].position
        lane = items[0][0].lane
        number = numbers_of(items)[0]
        assert number > 20
        assert producer.get_committed(lane) == first - 1
        assert f"Messages 10 to {first - 1} of the stream are missing" in producer.get_errors()[lane]
        while numbers_of(items)[-1] < 599:
            items += await stream.take(1)
        assert numbers_of(items) == list(range(number, 600))
        await stream.advance(items)
        assert producer.get_committed(lane) == items[-1][0].position
    assert small.offset() == items[-1][0].position


async def test_messages_removed_before_a_first_reading_are_not_missed(small: RabbitStream) -> None:
    send_more(small, 0, 600)
    producer = small.reader()
    async with reading(producer) as stream:
        assert numbers_of(await stream.take(1))[0] > 20
        assert producer.get_errors() == {}


async def test_messages_removed_before_a_reader_came_to_them_end_the_stream_once_all_else_is_answered(small: RabbitStream) -> None:
    send_more(small, 0, 20)
    producer = small.reader(prefetch=2)
    async with asyncio.timeout(PATIENCE), opened(producer) as stream:
        items = [await anext(stream) for _ in range(2)]  # the stream takes no more, as under back-pressure
        await asyncio.to_thread(send_more, small, 20, 1_200)
        going_on = asyncio.create_task(read_to_end(stream, items))
        while not producer.get_errors() and not going_on.done():
            await asyncio.sleep(0.02)
        assert not going_on.done()  # it waits for the answers
        lane = items[0][0].lane
        last = items[-1][0].position
        assert f"Messages {last + 1} to " in producer.get_errors()[lane]
        await producer.advance(items_of(items[:1]))
        await producer.advance(items_of(items[1:]))
        with pytest.raises(StreamError, match="is held"):
            await going_on
    await producer.aclose()
    assert numbers_of(items) == list(range(len(items)))
    producer = small.reader()
    async with reading(producer) as again:
        ((raw, _),) = await again.take(1)
        assert raw.lane == lane
        assert producer.get_committed(lane) == raw.position - 1
        assert f"Messages {last + 1} to {raw.position - 1} of the stream are missing" in producer.get_errors()[lane]


async def read_to_end(stream: AsyncIterator[tuple[object, object]], items: list[tuple[object, object]]) -> None:
    while True:
        items.append(await anext(stream))


async def test_offsets_without_a_message_at_the_begin_of_a_segment_are_not_missed(make_stream: MakeStream) -> None:
    """The server begins each segment with a note of its own, which has an offset."""
    stream = make_stream(x_stream_max_segment_size_bytes=10_000)
    async with reading(stream.reader()) as opened_stream:
        await asyncio.to_thread(send_more, stream, 0, 300)
        items = await opened_stream.take(300)
        assert numbers_of(items) == list(range(300))
        assert items[-1][0].position > 300
        assert opened_stream.producer.get_errors() == {}


async def test_a_reader_of_all_messages_misses_none_when_their_segment_is_removed(make_stream: MakeStream) -> None:
    """The first message that is left follows the last committed one, but for the offset with which its segment begins."""
    stream = make_stream(**SMALL)
    sent = 0
    for _ in range(60):  # each opening ends at another place of a segment
        await asyncio.to_thread(send_more, stream, sent, sent + 10)
        producer = stream.reader()
        async with reading(producer) as opened_stream:
            items = await opened_stream.take(10)
            assert numbers_of(items) == list(range(sent, sent + 10))
            await opened_stream.advance(items)
            assert producer.get_errors() == {}
        sent += 10
