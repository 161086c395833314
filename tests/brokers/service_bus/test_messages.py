"""Raw events of messages, subscriptions of topics, what is refused at the opening, and the probe."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from headrace import ServiceBus
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import opened, reading
from headrace.triggers.secrets import get_connection
from support.processes.broker_server import connection_variable
from support.processes.ports import free_port
from support.sources.reading import numbers
from support.sources.service_bus import ServiceBusQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("service-bus")]


async def test_a_raw_event_has_the_sequence_number_the_properties_and_the_time(queue: ServiceBusQueue) -> None:
    queue.send([b'{"n":1}'], id="order-1", properties={"tenant": "acme", "count": 3, "cloudEvents:type": "order"})
    async with reading(queue.producer()) as stream:
        ((raw, _),) = await stream.take(1)
    assert raw.value == {"n": 1}
    assert (raw.lane, raw.position, raw.delivery) == (queue.name, None, 1)
    assert raw.id == f"1-{raw.timestamp_ms}"
    assert dict(raw.headers) == {"tenant": "acme", "count": "3", "ce_type": "order", "message-id": "order-1"}


async def test_messages_with_the_same_id_of_their_sender_are_different_events(queue: ServiceBusQueue) -> None:
    queue.send([b'{"n":1}', b'{"n":2}'], id="the same")
    async with reading(queue.producer()) as stream:
        items = await stream.take(2)
    assert len({raw.id for raw, _ in items}) == 2


async def test_a_queue_that_was_created_again_gives_other_ids(queue: ServiceBusQueue) -> None:
    ids = []
    for _ in range(2):
        queue.send([b"1"])
        async with reading(queue.producer()) as stream:
            items = await stream.take(1)
            ids.append(items[0][0].id)
            await stream.advance(items)
        queue.delete()
        await asyncio.sleep(0.01)  # the time of storage has milliseconds
        queue.create()
    assert len({*ids}) == 2
    assert {id.partition("-")[0] for id in ids if id} == {"1"}


async def test_a_message_that_is_no_json_is_malformed_and_read_again_with_another_format(queue: ServiceBusQueue) -> None:
    queue.send([b"\xff"])
    async with reading(queue.producer(decode="text")) as stream:
        ((raw, _),) = await stream.take(1)
    assert raw.malformed is not None
    assert "UTF-8" in raw.malformed


async def test_a_subscription_of_a_topic_is_read(queue: ServiceBusQueue) -> None:
    topic = f"topics/{queue.name}-topic"
    queue.server.request("PUT", topic, {})
    queue.server.request("PUT", f"{topic}/subscriptions/shop", {"lock_seconds": 5})
    queue.server.send(topic, numbers(0, 10))
    upstream = ServiceBus(f"{queue.name}-topic", "shop", connection=queue.connection, lock=5)
    async with reading(upstream.producer()) as stream:
        items = await stream.take(10)
        assert sorted(raw.value["n"] for raw, _ in items) == list(range(10))
        await stream.advance(items)
    state = queue.server.request("GET", f"{topic}/subscriptions/shop")
    assert (state["active"], state["locked"]) == (0, 0)


@pytest.mark.parametrize("sessions", [None, 2])
async def test_what_the_service_refuses_is_an_error_with_what_to_do(queue: ServiceBusQueue, sessions: int | None) -> None:
    wrong = f"{queue.connection}_wrong"
    os.environ[connection_variable(wrong)] = os.environ[connection_variable(queue.connection)].replace(":headrace@", ":wrong@")
    refused = {
        "Create the queue": ServiceBus("missing", connection=queue.connection, sessions=sessions),
        "Correct the policy and the key": queue.upstream(connection=wrong, sessions=sessions),
    }
    if sessions is not None:
        refused["sessions="] = queue.upstream(sessions=sessions)
    try:
        for hint, upstream in refused.items():
            error = await _failure(upstream)
            assert isinstance(error, UpstreamError), error
            assert hint in (error.hint or "")
    finally:
        del os.environ[connection_variable(wrong)]


async def test_a_receiver_without_sessions_is_refused_by_a_queue_with_sessions(sessions: ServiceBusQueue) -> None:
    error = await _failure(sessions.upstream(sessions=None))
    assert isinstance(error, UpstreamError)
    assert "sessions=" in (error.hint or "")


async def test_a_namespace_that_is_away_is_an_error_that_may_pass(queue: ServiceBusQueue) -> None:
    queue.set_address(f"127.0.0.1:{free_port()}")
    assert isinstance(await _failure(queue.upstream()), StreamError)


def test_the_probe_needs_no_queue_and_reports_credentials_and_absence(queue: ServiceBusQueue) -> None:
    assert probe_connection(get_connection(queue.connection)) == f"Service Bus at {queue.server.address}, emulator"
    variable = connection_variable(queue.connection)
    os.environ[variable] = os.environ[variable].replace(":headrace@", ":wrong@")
    with pytest.raises(UpstreamError, match="The connection to Service Bus failed"):
        probe_connection(get_connection(queue.connection))
    queue.set_address(f"127.0.0.1:{free_port()}")
    with pytest.raises(StreamError, match="does not answer"):
        probe_connection(get_connection(queue.connection))


async def test_the_errors_of_a_stream_name_no_key(queue: ServiceBusQueue) -> None:
    variable = connection_variable(queue.connection)
    os.environ[variable] = os.environ[variable].replace(":headrace@", ":top-secret-key@")
    error = await _failure(queue.upstream())
    assert "top-secret-key" not in json.dumps([str(error), error.hint])


async def _failure(upstream: ServiceBus) -> HeadraceError:
    """Return the error with which reading ends."""
    producer = upstream.producer()
    try:
        async with asyncio.timeout(30), opened(producer) as stream:
            with pytest.raises(HeadraceError) as failure:
                await anext(stream)
    finally:
        await producer.aclose()
    return failure.value
