"""Values of Kafka whose schemas are in a real registry, Apicurio."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest

from headrace.errors import MalformedEvent, StreamError, UpstreamError
from headrace.testing.contract.reading import reading
from support.processes.apicurio import Apicurio
from support.processes.broker_server import connection_variable
from support.sources.kafka import KafkaTopic

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka")]

LINE = {"type": "record", "name": "shop.Line", "fields": [{"name": "sku", "type": "string"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "n", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": "shop.Line"}}],
}
PROTO = 'syntax = "proto3"; package shop; import "line.proto"; message Order { int32 n = 1; Line line = 2; }'
PROTO_LINE = 'syntax = "proto3"; package shop; message Line { string sku = 1; }'


def message(schema_id: int, value: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + value


def avro(value: dict[str, Any]) -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(LINE, named_schemas=named)
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(ORDER, named_schemas=named), value)
    return buffer.getvalue()


async def test_values_of_all_types_and_versions_become_json(topic: KafkaTopic, registry: Apicurio) -> None:
    name = topic.name
    registry.register(f"{name}-line", LINE)
    reference = {"name": "shop.Line", "subject": f"{name}-line", "version": 1}
    order = registry.register(f"{name}-value", ORDER, references=[reference])
    older = registry.register(f"{name}-older", {"type": "record", "name": "shop.Older", "fields": [{"name": "n", "type": "int"}]})
    registry.register(f"{name}-line-proto", PROTO_LINE, "PROTOBUF")
    proto = registry.register(f"{name}-proto", PROTO, "PROTOBUF", [{"name": "line.proto", "subject": f"{name}-line-proto", "version": 1}])
    json_schema = registry.register(f"{name}-json", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "JSON")
    topic.send(
        [
            message(order, avro({"n": 1, "lines": [{"sku": "a"}]})),
            message(older, b"\x04"),
            message(proto, b"\x00\x08\x03\x12\x03\x0a\x01b"),
            message(json_schema, b'{"n": 4}'),
            None,
        ]
    )
    async with reading(topic.producer(decode="confluent", schema_registry="registry")) as stream:
        items = await stream.take(5)
        assert [raw.value for raw, _ in items] == [
            {"n": 1, "lines": [{"sku": "a"}]},
            {"n": 2},
            {"n": 3, "line": {"sku": "b"}},
            {"n": 4},
            None,
        ]
        await stream.advance(items)
        assert topic.committed() == 5


async def test_values_without_a_usable_schema_are_dead_letters_of_their_own(topic: KafkaTopic, registry: Apicurio) -> None:
    older = registry.register(f"{topic.name}-value", {"type": "record", "name": "shop.Older", "fields": [{"name": "n", "type": "int"}]})
    values = [b'{"n": 1}', message(2**31 - 1, b"\x02"), message(older, b"\x80"), message(older, b"\x02")]
    topic.send(values)
    async with reading(topic.producer(decode="confluent", schema_registry="registry")) as stream:
        items = await stream.take(4)
        reasons = []
        for (raw, _), value in zip(items[:3], values[:3], strict=True):
            with pytest.raises(MalformedEvent) as raised:
                assert raw.value
            assert raw.data == value
            reasons.append(str(raised.value))
        assert [reason.split(":")[0] for reason in reasons] == [
            "Not in Confluent's wire format",
            f"Schema {2**31 - 1} is unknown to the schema registry.",
            f"Not a value of schema {older}",
        ]
        assert items[3][0].value == {"n": 1}
        await stream.advance(items)
        assert topic.committed() == 4


async def test_a_registry_that_is_away_ends_the_stream_and_loses_nothing(topic: KafkaTopic, registry: Apicurio) -> None:
    schema = {"type": "record", "name": "shop.Older", "fields": [{"name": "n", "type": "int"}]}
    first = registry.register(f"{topic.name}-value", schema)
    topic.send([message(first, b"\x02")])
    async with reading(topic.producer(decode="confluent", schema_registry="registry")) as stream:
        items = await stream.take(1)
        await stream.advance(items)
        registry.kill()
        topic.send([message(first, b"\x04"), message(first + 1_000, b"\x06")])
        with pytest.raises(StreamError, match="does not answer"):
            await stream.take(2)
    with pytest.raises(StreamError, match="does not answer"):
        async with reading(topic.producer(decode="confluent", schema_registry="registry")) as stream:
            await stream.take(1)
    registry.start()
    again = registry.register(f"{topic.name}-value", schema)
    topic.send([message(again, b"\x08")])
    async with reading(topic.producer(decode="confluent", schema_registry="registry")) as stream:
        items = await stream.take(3)
        assert [raw.position for raw, _ in items] == [1, 2, 3]
        assert items[2][0].value == {"n": 4}


async def test_a_wrong_path_is_named(topic: KafkaTopic, registry: Apicurio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(connection_variable("registry"), f"http://{registry.address}")
    with pytest.raises(UpstreamError, match="is not a schema registry"):
        async with reading(topic.producer(decode="confluent", schema_registry="registry")) as stream:
            await stream.take(1)
