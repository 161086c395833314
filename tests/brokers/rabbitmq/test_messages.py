"""Messages, queues that cannot be read, and connections."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.core.connection import parse_connection
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import HeadraceError, MalformedEvent, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from support.processes.broker_server import connection_variable
from support.processes.ports import free_port
from support.sources.rabbitmq import MakeQueue, RabbitQueue
from support.sources.reading import numbers, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq")]


def item(payload: Any, **outcome: int) -> AdvanceItem:
    return AdvanceItem(payload, AdvanceOutcome(**({"acked": 1, "failed": 0} | outcome)))


async def first_error(queue: RabbitQueue, **arguments: Any) -> HeadraceError:
    """Open an upstream that cannot be read, and return its error."""
    with pytest.raises(HeadraceError) as raised:
        async with reading(queue.producer(**arguments)) as stream:
            await stream.take(1)
    assert raised.value.hint
    return raised.value


async def test_metadata_are_read(queue: RabbitQueue) -> None:
    time = datetime(2026, 11, 23, 12, tzinfo=UTC)
    headers = {"tenant": "eu", "n": 7, "nested": {"a": [1, "é"]}, "raw": bytearray(b"\xff"), "none": None}
    queue.send([b'{"n":1}'], message_id="m1", timestamp=time, content_type="application/json", headers=headers)
    async with reading(queue.producer()) as stream:
        ((raw, _),) = await stream.take(1)
    assert (raw.value, raw.id, raw.key, raw.lane, raw.position) == ({"n": 1}, "m1", queue.name, queue.name, None)
    assert (raw.delivery, raw.timestamp, raw.headers["redelivered"]) == (1, time, "false")
    assert (raw.headers["tenant"], raw.headers["n"], raw.headers["nested"]) == ("eu", "7", '{"a": [1, "é"]}')
    assert (raw.headers["raw"], "none" in raw.headers, raw.headers["content-type"]) == ("\ufffd", False, "application/json")


@pytest.mark.parametrize(("kind", "deliveries"), [("classic", None), ("quorum", 2)])
async def test_a_second_delivery_is_marked(make_queue: MakeQueue, kind: str, deliveries: int | None) -> None:
    queue = make_queue(kind)
    queue.send(numbers(0, 1))
    async with reading(queue.producer()) as stream:
        await stream.take(1)
    async with reading(queue.producer()) as stream:
        ((raw, _),) = await stream.take(1)
    assert (raw.delivery, raw.headers["redelivered"]) == (deliveries, "true")


async def test_a_message_without_an_id_has_none(queue: RabbitQueue) -> None:
    queue.server.send_without_id(queue.name, b"1")
    async with reading(queue.producer()) as stream:
        ((raw, _),) = await stream.take(1)
    assert raw.id is None


async def test_hostile_and_large_messages_do_not_stop_the_queue(queue: RabbitQueue) -> None:
    bodies = [b"", b"null", b"no json", b"\xff\x00", b"[" * 1_000, b'"' + b"x" * 1_000_000 + b'"', b'{"n":1}']
    queue.send(bodies)
    async with reading(queue.producer()) as stream:
        items = await stream.take(len(bodies))
        assert [raw.data for raw, _ in items] == [b"null", *bodies[1:]]
        for raw, _ in items[2:5]:
            with pytest.raises(MalformedEvent):
                _ = raw.value
        await stream.advance(items)
    assert queue.ready() == 0


async def test_a_routing_key_that_is_not_utf8_has_its_bytes_in_hexadecimal(queue: RabbitQueue) -> None:
    queue.server.create_exchange(f"any-{queue.name}", queue.name)
    queue.server.send_undecodable(f"any-{queue.name}")
    await until_in_thread(lambda: queue.ready() == 1)
    async with reading(queue.producer()) as stream:
        items = await stream.take(1)
        assert (items[0][0].key, items[0][0].value) == (r"\xff\xfe", 1)
        await stream.advance(items)
    assert queue.ready() == 0


async def test_undecoded_messages_are_malformed_and_can_be_rejected(queue: RabbitQueue) -> None:
    queue.send([b'{"an":"order"}'])
    async with reading(queue.producer(decode="debezium")) as stream:
        ((raw, payload),) = await stream.take(1)
        with pytest.raises(MalformedEvent, match="Debezium"):
            _ = raw.value
        await stream.producer.advance([item(payload, acked=0, rejected=1)])
    assert queue.ready() == 0


async def test_one_message_in_two_queues_has_two_ids(queue: RabbitQueue, make_queue: MakeQueue) -> None:
    other = make_queue()
    for one in (queue, other):
        one.send([b"1"], message_id="same")
    async with reading(queue.producer(queues=[queue.name, other.name])) as stream:
        items = await stream.take(2)
        assert {raw.id for raw, _ in items} == {f"{queue.name}/same", f"{other.name}/same"}
        assert {raw.lane for raw, _ in items} == {queue.name, other.name}


@pytest.mark.parametrize(("dead_letters", "expected"), [(True, [1, 3]), (False, [])])
async def test_rejected_messages_go_to_the_dead_letter_exchange_if_that_is_declared(
    make_queue: MakeQueue, dead_letters: bool, expected: list[int]
) -> None:
    dead = make_queue()
    exchange = f"dead-{dead.name}"
    dead.server.create_exchange(exchange, dead.name)
    queue = make_queue(x_dead_letter_exchange=exchange)
    queue.send(numbers(0, 5))
    async with reading(queue.producer(dead_letters=dead_letters)) as stream:
        items = await stream.take(5)
        await stream.producer.advance(
            [item(payload, acked=0, rejected=1) if raw.value["n"] in (1, 3) else item(payload) for raw, payload in items]
        )
    assert queue.ready() == 0
    await until_in_thread(lambda: dead.ready() == len(expected))
    async with reading(dead.producer()) as stream:
        assert [raw.value["n"] for raw, _ in await stream.take(len(expected))] == expected


async def test_a_missing_queue_is_named(queue: RabbitQueue) -> None:
    error = await first_error(queue, queues="missing")
    assert "Queue 'missing' cannot be read: the queue does not exist" in str(error)
    assert "Headrace creates no queues" in str(error.hint)


async def test_a_user_needs_the_permission_to_read_and_no_other(queue: RabbitQueue, make_queue: MakeQueue) -> None:
    other = make_queue()
    queue.server.create_user("reader", "s3/cret", f"^{queue.name}$")
    queue.set_connection(f"amqp://reader:s3%2Fcret@{queue.server.address}/%2F")
    queue.send(numbers(0, 10))
    async with reading(queue.producer()) as stream:
        await stream.advance(await stream.take(10))
    assert queue.ready() == 0
    error = await first_error(queue, queues=other.name)
    assert isinstance(error, UpstreamError)
    assert "the user has no permission" in str(error)


async def test_a_wrong_password_is_named_and_not_shown(queue: RabbitQueue) -> None:
    queue.set_connection(f"amqp://guest:wr0ng@{queue.server.address}/")
    error = await first_error(queue)
    assert isinstance(error, UpstreamError)
    assert "refuses the login" in str(error)
    assert "wr0ng" not in f"{error} {error.hint}"


async def test_a_virtual_host_is_used_and_a_missing_one_is_named(queue: RabbitQueue) -> None:
    queue.server.create_vhost("shop/eu")
    queue.server.declare("orders", vhost="shop/eu")
    queue.set_connection(f"amqp://guest:guest@{queue.server.address}/shop%2Feu")
    async with reading(queue.producer(queues="orders")) as stream:
        await until_in_thread(lambda: queue.server.details("orders", "shop/eu").get("consumers") == 1)
        assert stream.producer.get_errors() == {}
    queue.set_connection(f"amqp://guest:guest@{queue.server.address}/missing")
    error = await first_error(queue)
    assert isinstance(error, UpstreamError)
    assert "refuses the virtual host" in str(error)


async def test_a_server_that_does_not_answer_is_named(queue: RabbitQueue) -> None:
    queue.set_connection(f"amqp://127.0.0.1:{free_port()}/")
    error = await first_error(queue)
    assert isinstance(error, StreamError)
    assert "RabbitMQ cannot be reached: the server does not answer" in str(error)


async def test_limits_of_a_queue_are_logged_where_the_management_api_can_be_read(
    make_queue: MakeQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = make_queue("quorum", x_delivery_limit=5)
    queue.set_connection(f"amqp://guest:guest@{queue.server.address}/?management={queue.server.management}")
    queue.send(numbers(0, 1))
    async with reading(queue.producer()) as stream:
        await stream.take(1)
    output = "".join(capsys.readouterr())
    assert "messages dropped after 5 deliveries" in output
    queue.set_connection(f"amqp://guest:guest@{queue.server.address}/?management=http://127.0.0.1:{free_port()}")
    async with reading(queue.producer()) as stream:
        await stream.take(1)
    assert "limits of a queue not read" in "".join(capsys.readouterr())


@pytest.mark.parametrize("has_management", [True, False])
async def test_a_stream_is_refused(make_queue: MakeQueue, has_management: bool) -> None:
    queue = make_queue("stream")
    queue.send(numbers(0, 3))
    if has_management:
        queue.set_connection(f"amqp://guest:guest@{queue.server.address}/?management={queue.server.management}")
    async with reading(queue.producer()) as stream:
        # Without a management API, the next message of the stream shows it.
        await until_in_thread(lambda: has_management or queue.server.details(queue.name).get("consumers") == 1)
        await asyncio.to_thread(queue.send, numbers(3, 6))
        with pytest.raises(UpstreamError, match="is a stream"):
            await stream.take(4)


def test_a_connection_is_tested(queue: RabbitQueue) -> None:
    url = os.environ[connection_variable(queue.connection)]
    assert probe_connection(parse_connection("x", url)).startswith("RabbitMQ 3")
    with pytest.raises(UpstreamError, match="refuses the login"):
        probe_connection(parse_connection("x", url.replace("guest:guest", "guest:no")))
