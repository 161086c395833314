"""Messages, deadlines, ordering keys, and subscriptions that cannot be read."""

from __future__ import annotations

import asyncio
import os

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import MalformedEvent, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from support.processes.broker_server import connection_variable
from support.processes.ports import free_port
from support.sources.pubsub import PubSubSubscription
from support.sources.reading import items_of, numbers, numbers_of

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("pubsub")]


async def test_attributes_time_and_id_are_read(subscription: PubSubSubscription) -> None:
    subscription.send([b'{"n":1}'], key="ada", traceparent="00-1")
    async with reading(subscription.producer()) as stream:
        ((first, _),) = await stream.take(1)
    async with reading(subscription.producer()) as stream:
        ((again, _),) = await stream.take(1)
    assert (again.id, again.key, again.lane, again.headers) == (first.id, "ada", subscription.name, {"traceparent": "00-1"})
    assert again.timestamp is not None


async def test_data_that_do_not_decode_do_not_stop_the_subscription(subscription: PubSubSubscription) -> None:
    subscription.send([b"\xff"])
    async with reading(subscription.producer(decode="text")) as stream:
        ((raw, _),) = bad = await stream.take(1)
        assert raw.data == b"\xff"
        with pytest.raises(MalformedEvent, match="Not UTF-8"):
            _ = raw.value
        await stream.advance(bad)
        subscription.send([b"good"])
        ((raw, _),) = await stream.take(1)
        assert raw.value == {"text": "good"}


async def test_held_messages_come_to_no_other_reader_beyond_their_deadline(subscription: PubSubSubscription) -> None:
    subscription.send(numbers(0, 10))
    async with reading(subscription.producer()) as stream:
        items = await stream.take(10)
        until = max(part.lease.until for _, part in items)
        async with asyncio.timeout(60):
            while asyncio.get_running_loop().time() < until + 1:
                assert await asyncio.to_thread(subscription.pull) == []
        await stream.advance(items)
    assert subscription.pull() == []


async def test_a_closed_reader_gives_back_what_is_not_acknowledged(subscription: PubSubSubscription) -> None:
    subscription.send(numbers(0, 250))
    async with reading(subscription.producer()) as stream:
        items = await stream.take(50)
        await stream.advance(items[:20])
    given_back = subscription.pull()
    assert len(given_back) == 230
    assert not {raw.id for raw, _ in items[:20]} & set(given_back)


async def test_messages_of_an_ordering_key_come_in_order_and_again_after_one_failed(ordered: PubSubSubscription) -> None:
    ordered.send(numbers(0, 4), key="a")
    seen = []
    async with reading(ordered.producer()) as stream:
        for _ in range(2):  # the fake delivers the next message after the acknowledgement of the one before
            items = await stream.take(1)
            assert items[0][0].lane == "a"
            seen += numbers_of(items)
            await stream.advance(items)
        items = await stream.take(1)
        await stream.producer.advance(items_of(items, failed=[2]))
        again = await stream.take(1)
        assert (seen, numbers_of(items), numbers_of(again)) == ([0, 1], [2], [2])


async def test_a_subscription_that_is_missing_or_deleted_is_named(subscription: PubSubSubscription) -> None:
    subscription.send([b"1"])
    async with reading(subscription.producer()) as stream:
        await stream.take(1)
        subscription.delete()
        with pytest.raises(UpstreamError, match="cannot be read") as deleted:
            await stream.take(1)
    with pytest.raises(UpstreamError, match="cannot be opened") as missing:
        async with reading(subscription.producer()) as stream:
            await stream.take(1)
    assert all("Create the subscription" in str(raised.value.hint) for raised in (deleted, missing))


async def test_a_service_that_does_not_answer_is_named(subscription: PubSubSubscription, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.pubsub.client.OPEN_SECONDS", 1.0)
    monkeypatch.setenv(connection_variable(subscription.connection), f"pubsub://127.0.0.1:{free_port()}/shop?emulator=true")
    with pytest.raises(StreamError, match="does not answer"):
        async with reading(subscription.producer()) as stream:
            await stream.take(1)


def test_a_probe_names_project_and_address(subscription: PubSubSubscription) -> None:
    connection = parse_connection("pubsub", os.environ[connection_variable(subscription.connection)])
    assert probe_connection(connection) == f"Pub/Sub at {connection.host}:{connection.port}: project shop, emulator"
