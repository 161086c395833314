"""Messages of streams, where a reading begins, and streams that cannot be read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.errors import HeadraceError, MalformedEvent, StreamError, UpstreamError
from headrace.testing.contract.reading import reading
from support.processes.ports import free_port
from support.sources.rabbitmq import MakeQueue, MakeStream, RabbitStream
from support.sources.reading import numbers, numbers_of, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq")]


async def first_error(stream: RabbitStream, **arguments: Any) -> HeadraceError:
    """Open an upstream that cannot be read, and return its error."""
    with pytest.raises(HeadraceError) as raised:
        async with reading(stream.reader(**arguments)) as opened:
            await opened.take(1)
    assert raised.value.hint
    return raised.value


async def first_numbers(stream: RabbitStream, count: int, **arguments: Any) -> list[int]:
    async with reading(stream.reader(**arguments)) as opened:
        return numbers_of(await opened.take(count))


async def test_metadata_are_read(stream: RabbitStream) -> None:
    time = datetime(2026, 11, 23, 12, tzinfo=UTC)
    headers = {"tenant": "eu", "n": 7, "raw": bytearray(b"\xff")}
    stream.send([b'{"n":1}'], message_id="m1", timestamp=time, content_type="application/json", headers=headers)
    async with reading(stream.reader()) as opened:
        ((raw, payload),) = await opened.take(1)
        assert opened.producer.get_advance_lane(payload) == raw.lane
    assert re.fullmatch(rf"{stream.name}@[0-9a-f]{{12}}", raw.lane)
    assert (raw.value, raw.id, raw.key, raw.position, raw.delivery, raw.timestamp) == ({"n": 1}, None, stream.name, 0, None, time)
    assert raw.headers | {"tenant": "eu", "n": "7", "content-type": "application/json", "message-id": "m1"} == raw.headers
    assert raw.headers.keys().isdisjoint({"x-stream-offset", "redelivered"})


async def test_hostile_and_large_messages_do_not_stop_the_stream(stream: RabbitStream) -> None:
    bodies = [b"", b"null", b"no json", b"\xff\x00", b"[" * 1_000, b'"' + b"x" * 1_000_000 + b'"', b'{"n":1}']
    stream.send(bodies)
    async with reading(stream.reader()) as opened:
        items = await opened.take(len(bodies))
        assert [raw.data for raw, _ in items] == [b"null", *bodies[1:]]
        for raw, _ in items[2:5]:
            with pytest.raises(MalformedEvent):
                _ = raw.value
        await opened.advance(items)
    assert stream.offset() == len(bodies) - 1


async def test_a_reading_begins_where_start_says(stream: RabbitStream) -> None:
    stream.send(numbers(0, 10))
    assert await first_numbers(stream, 2, group="earliest") == [0, 1]
    assert await first_numbers(stream, 2, group="offset", start=7) == [7, 8]
    assert await first_numbers(stream, 1, group="past", start=datetime.now(UTC) - timedelta(days=1)) == [0]
    async with reading(stream.reader(group="latest", start="latest")) as latest, reading(stream.reader(group="ahead", start=12)) as ahead:
        for group in ("latest", "ahead"):
            await until_in_thread(lambda group=group: stream.note(group) is not None)  # type: ignore[misc]
        stream.send(numbers(10, 14))
        assert numbers_of(await latest.take(4)) == [10, 11, 12, 13]
        assert numbers_of(await ahead.take(2)) == [12, 13]


async def test_a_reading_from_the_latest_message_on_is_fixed_by_the_first_opening(make_stream: MakeStream) -> None:
    stream, empty = make_stream(), make_stream()
    stream.send(numbers(0, 10))
    for one in (stream, empty):
        async with reading(one.reader(start="latest")):
            await until_in_thread(lambda one=one: one.note() is not None)  # type: ignore[misc]
        one.send(numbers(10, 12))
    assert await first_numbers(stream, 2, start="latest") == [10, 11]
    assert await first_numbers(empty, 2, start="latest") == [10, 11]


async def test_groups_read_independently(stream: RabbitStream) -> None:
    stream.send(numbers(0, 10))
    async with reading(stream.reader()) as one, reading(stream.reader(group="other")) as other:
        await one.advance((await one.take(10))[:6])
        await other.advance((await other.take(10))[:2])
    assert await first_numbers(stream, 4) == [6, 7, 8, 9]
    assert await first_numbers(stream, 1, group="other") == [2]


async def test_what_cannot_be_read_is_named(stream: RabbitStream, make_queue: MakeQueue) -> None:
    error = await first_error(stream, streams="missing")
    assert isinstance(error, UpstreamError)
    assert "Stream 'missing' cannot be read: the queue does not exist" in str(error)
    for kind in ("classic", "quorum"):
        error = await first_error(stream, streams=make_queue(kind).name)
        assert isinstance(error, UpstreamError)
        assert "it is not a stream" in str(error)
    stream.set_connection(f"amqp://guest:wr0ng@{stream.server.address}/")
    error = await first_error(stream)
    assert isinstance(error, UpstreamError)
    assert "refuses the login" in str(error)
    assert "wr0ng" not in f"{error} {error.hint}"
    stream.set_connection(f"amqp://127.0.0.1:{free_port()}/")
    assert isinstance(await first_error(stream), StreamError)


async def test_a_user_needs_the_permissions_of_the_guide_and_no_other(stream: RabbitStream) -> None:
    """Those of `docs/guides/rabbitmq.md`."""
    stream.send(numbers(0, 10))
    stream.set_connection(f"amqp://streamer:secret@{stream.server.address}/")
    whole = {
        "configure": r"^headrace\.",
        "write": rf"^(headrace\..*|amq\.default|{stream.name})$",
        "read": rf"^(headrace\..*|{stream.name})$",
    }
    without = [
        {"configure": ""},
        {"write": rf"^(headrace\..*|{stream.name})$"},
        {"write": r"^(headrace\..*|amq\.default)$"},
        {"read": r"^headrace\."},
        {"read": rf"^{stream.name}$"},
    ]
    for one in without:
        stream.server.create_user("streamer", "secret", **whole | one)
        error = await first_error(stream)
        assert isinstance(error, UpstreamError), one
        assert "the user has no permission" in str(error)
        assert "amq" in str(error.hint), one
    stream.server.create_user("streamer", "secret", **whole)
    async with reading(stream.reader()) as opened:
        await opened.advance((await opened.take(10))[:5])
    assert await first_numbers(stream, 5) == [5, 6, 7, 8, 9]
