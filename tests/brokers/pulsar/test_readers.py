"""A second reader, and what is delivered again after a reconnect."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import StreamError, UpstreamError, UpstreamFenced
from headrace.testing.contract.reading import reading
from support.processes.pulsar import path_of
from support.sources.kit import PATIENCE
from support.sources.pulsar import MakeTopic, PulsarTopic
from support.sources.reading import cancel_reader, numbers, numbers_of, until, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar"), pytest.mark.timeout(2 * PATIENCE)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.pulsar.client.BUSY_SECONDS", 0.3)
    monkeypatch.setattr("headrace.sources.pulsar.reader.WATCH_SECONDS", 0.2)


async def test_a_second_reader_is_refused_until_the_first_has_closed(topic: PulsarTopic) -> None:
    topic.send(numbers(0, 10))
    async with reading(topic.producer()) as first:
        items = await first.take(10)
        with pytest.raises(StreamError, match="the subscription has another consumer") as refused:
            async with reading(topic.producer()) as second:
                await second.take(1)
        assert not isinstance(refused.value, UpstreamFenced)
        assert "Stop the other reader" in str(refused.value.hint)
        await first.advance(items[:4])
    async with reading(topic.producer()) as second:
        assert numbers_of(await second.take(6)) == list(range(4, 10))


async def test_messages_that_come_again_after_a_reconnect_are_not_delivered_again(make_topic: MakeTopic) -> None:
    """The broker unloads the topic, which closes its consumers."""
    topic = make_topic(partitions=1)
    topic.send(numbers(0, 20), batch=5)
    async with reading(topic.producer()) as stream:
        items = await stream.take(20)
        await stream.advance(items[:7])
        before = (topic.subscription() or {})["consumers"][0]["connectedSince"]
        topic.server.admin("PUT", f"{path_of(topic.partition())}/unload")

        def is_again_there() -> bool:
            consumers = (topic.subscription() or {})["consumers"]
            return bool(consumers) and consumers[0]["connectedSince"] != before and consumers[0]["msgOutCounter"] >= 13

        await until_in_thread(is_again_there)
        topic.send(numbers(20, 30))
        later = await stream.take(10)
        assert numbers_of(later) == list(range(20, 30))
        await stream.advance(items[7:] + later[:5])
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(5)) == list(range(25, 30))


async def test_a_lost_acknowledgement_ends_the_stream_and_the_next_one_reads_on(
    topic: PulsarTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.pulsar.acknowledgements.CONFIRM_SECONDS", 0.2)
    topic.send(numbers(0, 10))
    producer = topic.producer()
    async with reading(producer) as stream:
        items = await stream.take(10)
        consumer = producer._reader._consumers[topic.name]  # type: ignore[union-attr]

        async def lose(message_id: object) -> None:
            del message_id

        monkeypatch.setattr(consumer, "acknowledge_cumulative", lose)
        with pytest.raises(StreamError, match=r"the broker has not received it after 0\.2 s"):
            await stream.advance(items[:4])
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(1)) == [0]


@pytest.mark.parametrize("pause", [0.0, 0.01])
async def test_a_reader_that_is_cancelled_at_any_step_leaves_nothing(topic: PulsarTopic, pause: float) -> None:
    topic.send(numbers(0, 50))
    for steps in range(12):
        await cancel_reader(topic.producer(), steps, pause)
    await until_in_thread(lambda: not (topic.subscription() or {"consumers": []})["consumers"])
    await until(lambda: not any("pulsar" in task.get_name() for task in asyncio.all_tasks()))  # the client is closed in one


async def test_a_missing_topic_and_a_missing_namespace_say_what_to_do(topic: PulsarTopic) -> None:
    for name in (f"{topic.name}-missing", "persistent://public/missing/t"):
        with pytest.raises(UpstreamError, match=r"the admin API answers 404: .* not found") as missing:
            async with reading(type(topic.upstream())(name, subscription="s", connection=topic.connection).producer()) as stream:
                await stream.take(1)
        assert "Create the topic" in str(missing.value.hint)
