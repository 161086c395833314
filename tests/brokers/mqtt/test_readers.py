"""The session of a reader: what the server holds for it, a second reader, failed messages, and subscriptions that are not declared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import StreamEnded, StreamError, UpstreamError
from headrace.sources.mqtt import producer as mqtt_producer
from headrace.testing.contract.reading import opened, reading
from headrace.triggers.stream_log import LogState, StreamLog
from support.processes.mosquitto import end_client
from support.sources.mqtt import MqttSession
from support.sources.reading import cancel_reader, items_of, numbers, numbers_of, until

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("mqtt")]


def with_log(producer: Any, receipts: int) -> Any:
    """Give a producer the log of a stream with this many receipts."""
    state = LogState("log", receipts)

    async def look_up(stream: str) -> LogState:
        return state

    producer.log = StreamLog("stream", state, look_up)
    return producer


async def test_a_second_reader_ends_the_first_and_gets_what_it_held(session: MqttSession) -> None:
    session.send(numbers(0, 20))
    async with reading(session.producer()) as first:
        items = await first.take(20)
        await first.advance(items[:5])
        async with reading(session.producer()) as second:
            assert numbers_of(await second.take(15)) == list(range(5, 20))
            with pytest.raises(StreamError, match="connection to MQTT has ended"):  # this server does not say why
                await first.take(1)
            with pytest.raises(StreamEnded):
                await first.advance(items[5:])


async def test_a_reader_holds_no_more_than_its_receive_maximum(session: MqttSession) -> None:
    session.send(numbers(0, 100))
    producer = session.producer(receive_maximum=10)
    async with opened(producer) as stream:
        items = [await anext(stream) for _ in range(10)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(stream)
    await producer.aclose()
    assert numbers_of(items) == list(range(10))


async def test_a_server_that_sends_more_than_the_receive_maximum_fills_no_memory(session: MqttSession) -> None:
    """Mosquitto 2.0.11 without a limit of its own sends all that a session has, once the first messages are acknowledged."""
    session.send([b'{"n":%d,"pad":"%s"}' % (number, b"x" * 2_000) for number in range(5_000)])
    producer, most = session.producer(receive_maximum=10), 0
    async with opened(producer) as stream:
        items: list[tuple[Any, Any]] = []
        while len(items) < 5_000:
            items.append(await anext(stream))
            if len(items) % 10 == 0:
                await producer.advance(items_of(items[-10:]))
                await asyncio.sleep(0)
            most = max(most, len(producer._arrivals))
    await producer.aclose()
    assert numbers_of(items) == list(range(5_000))
    assert most <= 11


async def test_a_message_that_has_failed_is_delivered_again_with_all_later_ones(
    session: MqttSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_producer, "FAILED_SECONDS", 0.5)
    session.send(numbers(0, 10))
    async with reading(session.producer()) as stream:
        items = await stream.take(10)
        await stream.producer.advance(items_of(items[:6], failed=[3]))
        await stream.producer.advance(items_of(items[6:]))
        with pytest.raises(StreamError, match="a message was not answered"):
            await stream.take(1)
    async with reading(session.producer()) as stream:
        again = await stream.take(7)
        assert numbers_of(again) == list(range(3, 10))
        assert {raw.headers["redelivered"] for raw, _ in again} == {"true"}
        assert {raw.delivery for raw, _ in again} == {None}


async def test_a_session_that_has_ended_is_named_if_the_stream_was_read_before(session: MqttSession) -> None:
    """A retained message shows that the subscription is there."""
    session.send(numbers(0, 1), retain=True)
    session.server.end_session(session.client_id)
    async with reading(session.producer()) as stream:  # a first opening
        await stream.advance(await stream.take(1))
        assert stream.producer.get_errors() == {}
    session.server.end_session(session.client_id)
    session.send(numbers(1, 2))
    async with reading(with_log(session.producer(), receipts=3)) as stream:
        assert numbers_of(await stream.take(1)) == [0]
        assert "expired or was deleted" in stream.producer.get_errors()["session"]
        session.send(numbers(2, 3))
        assert numbers_of(await stream.take(1)) == [2]
    session.send([b""], retain=True)


async def test_messages_of_a_subscription_that_is_not_declared_are_skipped_by_name(session: MqttSession) -> None:
    session.server.subscribe(session.client_id, [f"other/{session.topic}"])
    async with reading(session.producer()) as stream:
        for start in (0, 10):
            session.send(numbers(start, start + 5))
            session.server.send(f"other/{session.topic}", numbers(90, 95))
        items = await stream.take(10)
        assert numbers_of(items) == [*range(5), *range(10, 15)]
        await stream.advance(items)
        assert f"topic 'other/{session.topic}' are skipped" in stream.producer.get_errors()["subscription"]
    async with reading(session.producer()) as stream:
        session.send(numbers(20, 21))
        assert numbers_of(await stream.take(1)) == [20]
        assert stream.producer.get_errors() == {}


async def test_messages_with_qos_0_are_read_and_reported(session: MqttSession) -> None:
    async with reading(session.producer(receive_maximum=10)) as stream:
        session.send(numbers(0, 1))
        await stream.take(1)
        session.send(numbers(1, 500), qos=0)
        session.send(numbers(500, 501))
        items = await stream.take(500)
        assert numbers_of(items) == list(range(1, 501))
        assert "arrive with QoS 0" in stream.producer.get_errors()["qos"]


async def test_more_messages_with_qos_0_than_are_taken_pause_the_reading_and_an_advance_still_ends(session: MqttSession) -> None:
    producer = session.producer(receive_maximum=10)
    async with opened(producer) as stream:
        session.send(numbers(0, 1))
        first = await anext(stream)
        await asyncio.to_thread(session.send, numbers(1, 2_000), qos=0)
        await until(lambda: producer._client is not None and producer._client._is_paused)
        assert len(producer._arrivals) == 11
        await producer.advance(items_of([first]))
        assert numbers_of([await anext(stream) for _ in range(1_999)]) == list(range(1, 2_000))
    await producer.aclose()


async def test_large_messages_that_are_not_taken_pause_the_reading(session: MqttSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it pauses, the connection lasts for longer than its keepalive."""
    monkeypatch.setattr(mqtt_producer, "MAX_BUFFERED_BYTES", 300_000)
    session.set_connection(f"mqtt://{session.server.address}?keepalive=1")
    session.send([b'{"n":%d,"pad":"%s"}' % (number, b"x" * 100_000) for number in range(30)])
    producer = session.producer()
    async with opened(producer) as stream:
        items = [await anext(stream)]
        await until(lambda: producer._client is not None and producer._client.is_paused)
        await asyncio.sleep(4)
        assert len(producer._arrivals) <= 4
        items += [await anext(stream) for _ in range(29)]
        assert numbers_of(items) == list(range(30))
        await producer.advance(items_of(items))
    await producer.aclose()


async def test_an_advance_that_a_close_ends_is_an_error_and_no_cancellation(session: MqttSession) -> None:
    session.send(numbers(0, 3))
    producer = session.producer()
    async with opened(producer) as stream:
        items = [await anext(stream) for _ in range(3)]
        client = producer._client
        assert client is not None
        client._loop.remove_reader(client._client.socket())  # no answer arrives
        advance = asyncio.create_task(producer.advance(items_of(items)))
        await until(lambda: client._confirmation is not None)
        await producer.aclose()
        with pytest.raises(StreamEnded, match="is closed"):
            await advance


async def test_messages_with_qos_2_for_the_session_end_the_stream_and_stay(session: MqttSession) -> None:
    session.server.subscribe(session.client_id, [session.filter], qos=2)
    session.send(numbers(0, 5), qos=2)
    for _ in range(2):
        async with reading(session.producer()) as stream:
            with pytest.raises(UpstreamError, match="a subscription with QoS 2") as raised:
                await stream.take(1)
            assert "new client_id" in str(raised.value.hint)
    taken = list[int]()
    owner = session.server.connect(
        session.client_id, expiry=86_400, on_message=lambda _client, _userdata, message: taken.append(int(message.payload[5:-1]))
    )
    await until(lambda: sorted(taken) == list(range(5)))
    end_client(owner)


async def test_a_shared_subscription_is_read(session: MqttSession) -> None:
    session.send(numbers(0, 1), retain=True)
    name = f"{session.client_id}-shared"
    async with reading(session.producer(topics=[f"$share/shop/shared/{session.topic}", session.filter], client_id=name)) as stream:
        items = await stream.take(1)
        session.server.send(f"shared/{session.topic}", numbers(1, 4))
        items += await stream.take(3)
        assert numbers_of(items) == [0, 1, 2, 3]
        await stream.advance(items)
    session.send([b""], retain=True)
    session.server.end_session(name)


async def test_retained_messages_are_read_once(session: MqttSession) -> None:
    session.send([b'{"n":1}'], retain=True)
    name = f"{session.client_id}-new"
    async with reading(session.producer(client_id=name)) as stream:
        items = await stream.take(1)
        assert items[0][0].headers["retain"] == "true"
        await stream.advance(items)
    async with reading(session.producer(client_id=name)) as stream:
        session.send([b'{"n":2}'])
        assert numbers_of(await stream.take(1)) == [2]
    session.send([b""], retain=True)
    session.server.end_session(name)


async def test_an_advance_after_the_end_of_the_connection_ends_the_stream(session: MqttSession) -> None:
    session.send(numbers(0, 3))
    producer = session.producer()
    async with reading(producer) as stream:
        items = await stream.take(3)
        session.server.connect(session.client_id).disconnect()
        with pytest.raises(StreamError):
            await stream.take(1)
        with pytest.raises(StreamEnded):
            await stream.advance(items)


@pytest.mark.parametrize("pause", [0.0, 0.002])
async def test_readers_that_are_cancelled_at_any_step_leave_nothing_and_lose_nothing(session: MqttSession, pause: float) -> None:
    tasks = asyncio.all_tasks()
    session.send(numbers(0, 3))
    for steps in range(30):
        await cancel_reader(session.producer(), steps, pause)
        await until(lambda: asyncio.all_tasks() == tasks)
    session.send(numbers(3, 4))
    async with reading(session.producer()) as stream:
        taken = numbers_of(await stream.take(1))
        while taken[-1] != 3:
            taken += numbers_of(await stream.take(1))
    assert taken == list(range(taken[0], 4))
