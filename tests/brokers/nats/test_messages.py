"""What a message of NATS becomes: values, headers, metadata, and messages that other programs made badly."""

from __future__ import annotations

import json
import time

import pytest

from headrace.errors import MalformedEvent
from headrace.testing.contract.reading import reading
from support.sources.nats import MakeStream, NatsStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats")]

HOSTILE = [
    b"",
    b"null",
    b"no json",
    b"\xff\xfe\x00",
    b"{",
    b'{"a":' * 300,
    b'"\\ud800"',
    b"+ACK",
    b"NATS/1.0 503\r\n\r\n",
    b"MSG a 1 5\r\nhello\r\n",
    b"\r\n",
    b'{"text":"' + b"x" * 1_000_000 + b'"}',
    b'{"n":1}',
]


async def test_a_message_has_its_subject_headers_time_and_number_of_deliveries(stream: NatsStream) -> None:
    before = time.time() * 1000 - 60_000
    stream.send([b'{"n":0}'], "eu.paid", headers={"Nats-Msg-Id": "m1", "Customer": "Ada ü"})
    async with reading(stream.producer("eu.*")) as reader:
        ((raw, payload),) = await reader.take(1)
        assert (raw.key, raw.position, raw.delivery, raw.id) == (f"{stream.name}.eu.paid", 1, 1, None)
        assert raw.headers == {"Nats-Msg-Id": "m1", "Customer": "Ada ü"}
        assert before < raw.timestamp_ms < before + 120_000
        assert raw.lane.startswith(f"{stream.name}.eu.*@")
        assert reader.producer.get_advance_lane(payload) == raw.lane


async def test_hostile_values_arrive_byte_for_byte_and_are_advanced(stream: NatsStream) -> None:
    stream.send(HOSTILE)
    async with reading(stream.producer()) as reader:
        items = await reader.take(len(HOSTILE))
        assert [raw.data for raw, _ in items] == [value or b"null" for value in HOSTILE]
        assert items[0][0].value is None
        for number in (2, 3, 4, 5, 6):
            with pytest.raises(MalformedEvent):
                _ = items[number][0].value
        await reader.advance(items)
        assert reader.producer.get_committed(items[0][0].lane) == len(HOSTILE)


async def test_headers_that_are_not_text_end_nothing(stream: NatsStream) -> None:
    subject = f"{stream.name}.a".encode()
    for header in (
        b"NATS/1.0\r\nA: \xff\xfe\r\n\r\n",
        b"NATS/1.0\r\n\xff: a\r\n\r\n",
        b"NATS/1.0\r\nno colon\r\n: empty\r\n\r\n",
        b"NATS/1.0\r\nB: 1\r\nB: 2\r\n\r\n",
        b"NATS/1.0 \xff\xff\xff\r\n\r\n",
        b"NATS/1.0 409 Consumer Deleted\r\n\r\n",
        b"NATS/1.0 100 \xff\r\nA: 1\r\n\r\n",
    ):
        data = header + b'{"n":1}'
        stream.server.publish_raw(b"HPUB %s %d %d\r\n%s\r\n" % (subject, len(header), len(data), data))
    stream.send([b'{"n":2}'])
    async with reading(stream.producer()) as reader:
        items = await reader.take(8)
        assert [raw.value["n"] for raw, _ in items] == [1] * 7 + [2]
        assert items[3][0].headers == {"B": "2"}
        await reader.advance(items)


async def test_values_in_other_formats(stream: NatsStream) -> None:
    attributes = {"ce-id": "7", "ce-source": "/shop", "ce-type": "paid", "ce-specversion": "1.0", "content-type": "application/json"}
    stream.send([b'{"n":1}'], headers=attributes)
    stream.send([b"{}"])
    async with reading(stream.producer(decode="cloudevents")) as reader:
        (event, _), (other, _) = await reader.take(2)
        assert event.value == {
            "id": "7", "source": "/shop", "type": "paid", "specversion": "1.0", "datacontenttype": "application/json", "data": {"n": 1},
        }  # fmt: skip
        assert event.id is not None
        assert event.headers["ce_source"] == "/shop"
        with pytest.raises(MalformedEvent, match="Not a CloudEvent"):
            _ = other.value
        assert other.data == b"{}"
    async with reading(stream.producer(decode="text", durable="text")) as reader:
        assert (await reader.take(1))[0][0].value == {"text": '{"n":1}'}


async def test_values_of_one_megabyte_are_held_back_by_their_size(make_stream: MakeStream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = make_stream()
    value = json.dumps({"text": "x" * 1_000_000}).encode()
    stream.send([value] * 60)
    producer = stream.producer()
    iterator = producer.open_stream()
    seen = [await anext(iterator)]
    waiting = int(stream.server.api(f"CONSUMER.INFO.{stream.name}.{stream.consumer()}")["num_pending"])
    assert waiting >= 60 - 17 * 2  # at most two requests of 16 MiB
    while len(seen) < 60:
        seen.append(await anext(iterator))
    assert all(raw.data == value for raw, _ in seen)
    await iterator.aclose()  # type: ignore[attr-defined]
    await producer.aclose()
