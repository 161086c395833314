"""A consumer of Kafka that is assigned, and gets neither messages nor errors although the broker has messages."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import StreamError
from headrace.sources.kafka.group import stall_detector
from headrace.testing.contract.reading import Reading, reading
from support.processes.kafka import shared
from support.sources.kafka import KafkaTopic
from support.sources.reading import numbers, numbers_of, until

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("network-kafka")]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_detector, "SILENT_SECONDS", 1.5)
    monkeypatch.setattr(stall_detector, "JOIN_SECONDS", 2.0)
    monkeypatch.setattr(stall_detector, "REQUEST_INTERVAL_SECONDS", 0.2)


@pytest.fixture
def topic() -> KafkaTopic:
    """Return a topic of two partitions."""
    return KafkaTopic(shared("kafka"), partitions=2)


def make_silent(stream: Reading, topic: KafkaTopic, partition: int) -> None:
    """Make the client fetch nothing more of a partition, behind the back of its reader: it reports no error."""
    consumer = stream.producer._reader._client.consumer  # type: ignore[attr-defined]
    library = stream.producer._reader._client.library  # type: ignore[attr-defined]
    consumer.pause([library.TopicPartition(topic.name, partition)])


async def test_a_silent_consumer_ends_the_stream_by_name_and_the_next_one_goes_on(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 10), 0)
    topic.send(numbers(10, 20), 1)
    async with reading(topic.producer()) as stream:
        await stream.advance(await stream.take(20))
        make_silent(stream, topic, 0)
        topic.send(numbers(20, 25), 0)
        with pytest.raises(StreamError, match=rf"Nothing has arrived of lane {topic.name}/0@\w+ for 1.5 s, .* from 10 to 14"):
            await stream.take(1)
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(5)) == list(range(20, 25))


async def test_a_partition_without_messages_to_read_is_not_silent(topic: KafkaTopic) -> None:
    """It has an open transaction, an aborted one at its end, or a reader that takes nothing."""
    library = topic.server._library
    transaction = library.Producer({"bootstrap.servers": topic.server.address, "transactional.id": topic.name})
    transaction.init_transactions(30)
    transaction.begin_transaction()
    transaction.produce(topic.name, b'{"n":0}', partition=0)
    transaction.flush(30)
    topic.server.transaction(topic.name, numbers(1, 3), 1, abort=True)
    topic.send(numbers(3, 4), 0)
    async with reading(topic.producer()) as stream:
        topic.send(numbers(4, 5), 1)
        assert numbers_of(await stream.take(1)) == [4]
        await asyncio.sleep(4)  # longer than a silent consumer lives: the stream goes on
        transaction.commit_transaction(30)
        assert numbers_of(await stream.take(2)) == [0, 3]


async def test_a_group_that_assigns_nothing_ends_the_stream_by_name(topic: KafkaTopic) -> None:
    """Another member does not come back after a rebalance. The client waits for that as long as the member may, by default five minutes."""
    topic.send(numbers(0, 5))
    other = topic.server.consumer(topic.group, **{"partition.assignment.strategy": "range,roundrobin", "auto.offset.reset": "earliest"})
    # With callbacks, the client leaves its partitions only while the program polls.
    other.subscribe([topic.name], on_assign=lambda consumer, rows: consumer.assign(rows), on_revoke=lambda consumer, _: consumer.unassign())
    await until(lambda: (other.poll(0.05), bool(other.assignment()))[1])
    with pytest.raises(StreamError, match="The group has assigned nothing for 2 s"):
        async with reading(topic.producer()) as stream:
            await stream.take(1)
    await asyncio.to_thread(other.close)
    async with reading(topic.producer()) as stream:
        assert numbers_of(await stream.take(5)) == list(range(5))
