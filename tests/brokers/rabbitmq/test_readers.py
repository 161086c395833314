"""Messages that a reader holds, second readers, and the end of consumers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamEnded, StreamError, UpstreamError
from headrace.sources.rabbitmq.reader import QueueReader
from headrace.testing.contract.reading import opened, reading
from support.sources.rabbitmq import MakeQueue, RabbitQueue
from support.sources.reading import numbers, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq")]

ACKED = AdvanceOutcome(1, 0)
FAILED = AdvanceOutcome(0, 1)
KINDS = ["classic", "quorum"]


def outcomes(items: list[tuple[Any, Any]], failed: set[int]) -> list[AdvanceItem]:
    return [AdvanceItem(payload, FAILED if raw.value["n"] in failed else ACKED) for raw, payload in items]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("single_active", [False, True])
async def test_a_second_reader_is_refused_by_name_until_the_first_has_ended(make_queue: MakeQueue, kind: str, single_active: bool) -> None:
    arguments = {"x_single_active_consumer": True} if single_active else {}
    queue = make_queue(kind, **arguments)
    queue.send(numbers(0, 10))
    async with reading(queue.producer()) as first:
        items = await first.take(10)
        with pytest.raises(StreamError, match=f"'{queue.name}' cannot be read: it has another reader"):
            async with reading(queue.producer()) as second:
                await second.take(1)
        await first.advance(items[:4])
    async with reading(queue.producer()) as stream:
        again = await stream.take(6)
    assert sorted(raw.value["n"] for raw, _ in again) == list(range(4, 10))


@pytest.mark.parametrize("kind", KINDS)
async def test_two_readers_that_open_at_once_never_read_both(make_queue: MakeQueue, kind: str) -> None:
    queue = make_queue(kind)
    async with reading(queue.producer()) as one, reading(queue.producer()) as other:
        queue.send(numbers(0, 40))
        taken = await asyncio.gather(one.take(40), other.take(40), return_exceptions=True)
    read = [part for part in taken if not isinstance(part, BaseException)]
    assert len(read) <= 1
    assert all(isinstance(part, StreamError) for part in taken if isinstance(part, BaseException))


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_of_a_channel_that_was_given_up_are_delivered_once(
    make_queue: MakeQueue, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, counts = QueueReader._count_consumers, [0, 2]  # another reader comes while this one opens, and gives way

    async def count(reader: QueueReader, channel: Any) -> int:
        if len(counts) == 1:
            await asyncio.sleep(0.5)  # until the messages of the consumer have arrived
        return counts.pop(0) if counts else await real(reader, channel)

    monkeypatch.setattr(QueueReader, "_count_consumers", count)
    queue = make_queue(kind)
    queue.send(numbers(0, 10))
    async with reading(queue.producer()) as stream:
        items = await stream.take(10)
        assert sorted(raw.value["n"] for raw, _ in items) == list(range(10))
        await stream.advance(items[:4])
    async with reading(queue.producer()) as stream:
        again = await stream.take(6)
    assert sorted(raw.value["n"] for raw, _ in again) == sorted(raw.value["n"] for raw, _ in items[4:])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reader_holds_no_more_than_its_prefetch(make_queue: MakeQueue, kind: str) -> None:
    queue = make_queue(kind)
    queue.send(numbers(0, 100))
    producer = queue.producer(prefetch=20)
    async with opened(producer) as stream:
        items = [await anext(stream) for _ in range(20)]
        await until_in_thread(lambda: queue.ready() == 80)
        await producer.advance([AdvanceItem(payload, ACKED) for _, payload in items[:5]])
        items += [await anext(stream) for _ in range(5)]
        await until_in_thread(lambda: queue.ready() == 75)
    await producer.aclose()
    await until_in_thread(lambda: queue.ready() == 95)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_message_is_held_then_requeued_and_later_ones_are_acknowledged(make_queue: MakeQueue, kind: str) -> None:
    queue = make_queue(kind)
    queue.send(numbers(0, 10))
    async with reading(queue.producer(consumer_timeout=2)) as stream:
        items = await stream.take(10)
        await stream.producer.advance(outcomes(items[:6], {2, 4}))
        await stream.producer.advance(outcomes(items[6:], set()))
        again = await stream.take(2)
        assert sorted(raw.value["n"] for raw, _ in again) == [2, 4]
        assert {raw.headers["redelivered"] for raw, _ in again} == {"true"}
        await stream.advance(again)
    assert queue.ready() == 0


async def test_acknowledgements_of_one_queue_leave_another_alone(queue: RabbitQueue, make_queue: MakeQueue) -> None:
    """An acknowledgement covers all earlier deliveries of its channel."""
    other = make_queue()
    for one in (queue, other):
        one.send(numbers(0, 50))
    async with reading(queue.producer(queues=[queue.name, other.name])) as stream:
        items = await stream.take(100)
        await stream.advance(item for item in items if item[0].lane == queue.name)
    await until_in_thread(lambda: (queue.ready(), other.ready()) == (0, 50))


async def test_a_reader_whose_connection_is_closed_ends_with_an_error(queue: RabbitQueue) -> None:
    queue.send(numbers(0, 10))
    async with reading(queue.producer()) as stream:
        items = await stream.take(10)
        await until_in_thread(lambda: queue.server.close_connections() > 0)
        with pytest.raises(StreamError, match="has ended"):
            await stream.take(1)
        with pytest.raises(StreamEnded):
            await stream.advance(items)
    async with reading(queue.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(10)] == numbers(0, 10)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_that_is_deleted_ends_the_stream_and_a_new_one_is_read(make_queue: MakeQueue, kind: str) -> None:
    queue = make_queue(kind)
    queue.send(numbers(0, 5))
    async with reading(queue.producer()) as stream:
        await stream.take(5)
        await asyncio.to_thread(queue.server.delete_queue, queue.name)
        with pytest.raises(StreamError, match=f"'{queue.name}' was deleted") as raised:
            await stream.take(1)
        assert "its messages are lost" in str(raised.value.hint)
    with pytest.raises(UpstreamError, match="does not exist"):
        async with reading(queue.producer()) as stream:
            await stream.take(1)
    queue.server.declare(queue.name, kind)
    queue.send(numbers(5, 7))
    async with reading(queue.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(2)] == numbers(5, 7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_25_readers_that_end_with_held_messages_lose_none(
    make_queue: MakeQueue, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = make_queue(kind)
    queue.send(numbers(0, 5))
    for _ in range(25):
        async with reading(queue.producer()) as stream:
            await stream.take(5)
    async with reading(queue.producer()) as stream:
        items = await stream.take(5)
        if kind == "quorum":
            assert {raw.delivery for raw, _ in items} == {26}
            assert "26 times" in stream.producer.get_errors()[queue.name]
            assert "message near the delivery limit" in "".join(capsys.readouterr())
        await stream.advance(items)
    assert queue.ready() == 0
