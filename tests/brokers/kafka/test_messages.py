"""Messages of Kafka as raw events: values, metadata, first offsets, new partitions and topics."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.core.connection import parse_connection
from headrace.errors import MalformedEvent, UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.testing.contract.reading import reading
from support.processes.broker_server import connection_variable
from support.processes.kafka import shared
from support.sources.kafka import KafkaTopic
from support.sources.reading import numbers, until

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("kafka")]


async def test_a_message_has_key_headers_and_timestamp(topic: KafkaTopic) -> None:
    sent = time.time_ns() // 1_000_000
    topic.send([b'{"n":1}'], key=b"Ada", headers=[("ce_id", b"7"), ("empty", None)], timestamp=sent)
    async with reading(topic.producer()) as stream:
        raw = (await stream.take(1))[0][0]
    assert (raw.key, raw.headers, raw.timestamp_ms) == ("Ada", {"ce_id": "7"}, sent)
    assert raw.timestamp == datetime.fromtimestamp(sent // 1000, UTC) + timedelta(milliseconds=sent % 1000)


async def test_a_tombstone_is_null(topic: KafkaTopic) -> None:
    topic.send([None], key=b"Ada")
    async with reading(topic.producer()) as stream:
        raw = (await stream.take(1))[0][0]
        assert (raw.data, raw.value, raw.key) == (b"null", None, "Ada")


async def test_values_that_are_not_json_are_delivered_and_can_be_advanced(topic: KafkaTopic) -> None:
    values = [b"\xff\xfe", b"", b"{", b"x" * 1_000_000]
    topic.send([*values, b'{"n":1}'])
    async with reading(topic.producer()) as stream:
        items = await stream.take(5)
        assert [raw.data for raw, _ in items[:4]] == values
        for raw, _ in items[:4]:
            with pytest.raises(MalformedEvent):
                assert raw.value
        await stream.advance(items)
        assert topic.committed() == 5


@pytest.mark.parametrize(
    ("decode", "value", "expected"),
    [
        ("text", 'a "b" ü'.encode(), {"text": 'a "b" ü'}),
        ("text", None, None),
        ("base64", b"\x00\xff", {"base64": "AP8="}),
        ("base64", None, None),
        ("debezium", b'{"schema":{},"payload":{"op":"d"}}', {"op": "d"}),
        (
            "cloudevents",
            b'{"specversion":"1.0","id":"7","source":"/o","type":"paid"}',
            {"specversion": "1.0", "id": "7", "source": "/o", "type": "paid"},
        ),
    ],
)
async def test_values_of_each_format_become_json(topic: KafkaTopic, decode: str, value: bytes | None, expected: Any) -> None:
    topic.send([value])
    async with reading(topic.producer(decode=decode)) as stream:
        assert (await stream.take(1))[0][0].value == expected


async def test_text_that_is_not_utf8_is_malformed(topic: KafkaTopic) -> None:
    topic.send([b"\xff"])
    async with reading(topic.producer(decode="text")) as stream:
        raw = (await stream.take(1))[0][0]
        with pytest.raises(MalformedEvent, match="Not UTF-8"):
            assert raw.value
        assert raw.data == b"\xff"


async def test_the_latest_start_stays_where_it_was_over_a_restart(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 10))
    async with reading(topic.producer(start="latest")):
        await until(lambda: topic.committed() == 10)
    topic.send(numbers(10, 12))
    async with reading(topic.producer(start="latest")) as stream:
        assert [raw.data for raw, _ in await stream.take(2)] == numbers(10, 12)


async def test_a_start_may_be_a_time(topic: KafkaTopic) -> None:
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    for second in range(5):
        topic.send(numbers(second, second + 1), timestamp=int(begin.timestamp() + second) * 1_000)
    async with reading(topic.producer(start=begin + timedelta(seconds=3))) as stream:
        assert [raw.data for raw, _ in await stream.take(2)] == numbers(3, 5)


async def test_a_start_may_be_offsets(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 10))
    async with reading(topic.producer(start={topic.name: {0: 7}})) as stream:
        assert [raw.data for raw, _ in await stream.take(3)] == numbers(7, 10)


async def test_the_start_counts_for_the_first_reading_only(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 10))
    async with reading(topic.producer()) as stream:
        await stream.advance((await stream.take(10))[:4])
    async with reading(topic.producer(start="latest")) as stream:
        assert [raw.data for raw, _ in await stream.take(6)] == numbers(4, 10)


async def test_a_new_partition_is_read_from_its_first_message_without_a_restart(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 3))
    async with reading(topic.producer(start="latest")) as stream:
        await until(lambda: topic.committed() == 3)
        topic.server.add_partitions(topic.name, 3)
        topic.send(numbers(3, 5), 1)
        topic.send(numbers(5, 6), 2)
        items = await stream.take(3)
        assert sorted(raw.data for raw, _ in items) == numbers(3, 6)
        topic.send(numbers(6, 8))
        later = await stream.take(2)
        await stream.advance([*items, *later])
        assert [topic.committed(number) for number in range(3)] == [5, 2, 1]


async def test_a_partition_that_was_added_while_nobody_read_is_read(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 3))
    async with reading(topic.producer()) as stream:
        await stream.advance(await stream.take(3))
    topic.server.add_partitions(topic.name, 2)
    topic.send(numbers(3, 5), 1)
    async with reading(topic.producer()) as stream:
        assert [raw.data for raw, _ in await stream.take(2)] == numbers(3, 5)


async def test_a_new_topic_of_a_pattern_is_read_without_a_restart(topic: KafkaTopic) -> None:
    topic.send(numbers(0, 2))
    async with reading(topic.producer(topics=f"^{topic.name}.*")) as stream:
        await stream.take(2)
        other = shared("kafka").create_topic(f"{topic.name}-b")
        shared("kafka").send(other, numbers(2, 4))
        items = await stream.take(2)
        assert {raw.lane.partition("@")[0] for raw, _ in items} == {f"{other}/0"}
        assert [raw.data for raw, _ in items] == numbers(2, 4)


async def test_a_slow_stream_pauses_and_stays_in_its_group(topic: KafkaTopic) -> None:
    """The client would leave the group if it was not polled for 6 s."""
    topic.set_connection(topic.server.address, max_poll_interval_ms="6000", session_timeout_ms="6000")
    topic.send(numbers(0, 6_000))
    producer = topic.producer()
    stream = producer.open_stream()
    first = await anext(stream)
    await asyncio.sleep(8)  # longer than the limit: the time is the subject of the test
    values = [first[0].data]
    async with asyncio.timeout(60):
        while len(values) < 6_000:
            values.append((await anext(stream))[0].data)
    assert values == numbers(0, 6_000)
    assert producer.get_errors() == {}
    await stream.aclose()  # type: ignore[attr-defined]
    await producer.aclose()


async def test_a_missing_topic_is_named(topic: KafkaTopic) -> None:
    with pytest.raises(UpstreamError, match=r"Topic 'missing-topic' does not exist\."):
        async with reading(topic.producer(topics="missing-topic")) as stream:
            await stream.take(1)


async def test_a_wrong_setting_is_named(topic: KafkaTopic) -> None:
    topic.set_connection(topic.server.address, fetch_wait="1")
    with pytest.raises(UpstreamError, match=r"fetch\.wait"):
        async with reading(topic.producer()) as stream:
            await stream.take(1)


def test_the_probe_of_a_connection_describes_the_cluster(topic: KafkaTopic) -> None:
    connection = parse_connection(topic.connection, os.environ[connection_variable(topic.connection)])
    assert "1 broker, " in probe_connection(connection)
