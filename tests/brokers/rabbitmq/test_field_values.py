"""Values of properties and headers that the client library refuses: times without a date, and texts that are not UTF-8."""

from __future__ import annotations

import os
import struct
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.testing.contract.reading import reading
from support.processes.broker_server import connection_variable
from support.sources.rabbitmq import MakeQueue, MakeStream, RabbitQueue
from support.sources.reading import until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq")]

PLACEHOLDER = datetime(2026, 11, 23, 12, tzinfo=UTC)
MICROSECONDS = 1_763_900_000_000_000
COUNT = 5
BAD = 2
NESTED = r'{"\\xff\\xfe": [null]}'


async def send_with_bad_values(queue: RabbitQueue) -> None:
    """Send COUNT messages. That in the middle has a time without a date, and names and an id that are not UTF-8."""
    import aiormq
    import pamqp.frame
    from aiormq.abc import ChannelFrame
    from pamqp import body, commands, header

    bad = commands.Basic.Properties(
        delivery_mode=2, message_id="yy", timestamp=PLACEHOLDER, headers={"at": PLACEHOLDER, "zz": 1, "in": {"zz": [PLACEHOLDER]}}
    )
    connection = await aiormq.connect(os.environ[connection_variable(queue.connection)])
    channel: Any = await connection.channel(publisher_confirms=False)
    for number in range(COUNT):
        properties = bad if number == BAD else commands.Basic.Properties(delivery_mode=2, message_id=str(number))
        frames = (
            commands.Basic.Publish(exchange="", routing_key=queue.name),
            header.ContentHeader(body_size=1, properties=properties),
            body.ContentBody(b"%d" % number),
        )
        payload = b"".join(pamqp.frame.marshal(frame, channel.number) for frame in frames)
        payload = payload.replace(struct.pack(">Q", int(PLACEHOLDER.timestamp())), struct.pack(">Q", MICROSECONDS))
        payload = payload.replace(b"\2zz", b"\2\xff\xfe").replace(b"\2yy", b"\2\x80\x81")
        await channel.write_queue.put(ChannelFrame(payload, should_close=False))
    await channel.queue_declare(queue.name, passive=True)  # answered after the messages
    await connection.close()


def check(raw: Any, id: str | None) -> None:
    """Check the message with such values."""
    assert (raw.value, raw.id, raw.timestamp) == (BAD, id, None)
    assert "at" not in raw.headers
    assert raw.headers[r"\xff\xfe"] == "1"
    assert raw.headers.get("in", NESTED) == NESTED  # a stream stores no tables in headers


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_they_stop_no_queue_and_cost_no_delivery(make_queue: MakeQueue, kind: str) -> None:
    queue = make_queue(kind, **({"x_delivery_limit": 2} if kind == "quorum" else {}))
    await send_with_bad_values(queue)
    await until_in_thread(lambda: queue.ready() == COUNT)
    for last in (False, True):
        async with reading(queue.producer()) as stream:
            items = await stream.take(COUNT)
            assert sorted(raw.value for raw, _ in items) == list(range(COUNT))
            found = next(raw for raw, _ in items if raw.value == BAD)
            check(found, r"\x80\x81")
            assert "in" in found.headers
            if last:
                await stream.advance(items)
    assert queue.ready() == 0


async def test_they_stop_no_stream(make_stream: MakeStream) -> None:
    stream = make_stream()
    await send_with_bad_values(stream)
    async with reading(stream.reader()) as opened:
        items = await opened.take(COUNT)
        assert [raw.value for raw, _ in items] == list(range(COUNT))
        check(items[BAD][0], None)
        assert items[BAD][0].headers["message-id"] == r"\x80\x81"
        await opened.advance(items)
    assert stream.offset() == COUNT - 1
