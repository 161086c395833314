from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedEvent
from headrace.sources.schema_registry.avro import avro_decoder
from headrace.sources.schema_registry.schema import ReferencedSchema, Schema

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
    ],
}
VALUE = {
    "n": 2**62,
    "customer": "Ada",
    "price": Decimal("1.25"),
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "id": UUID(int=5),
    "state": "PAID",
    "tags": {"a": [0.5]},
    "raw": b"\xff\x00",
}
LIST = {"type": "record", "name": "List", "fields": [{"name": "next", "type": ["null", "List"]}]}


def encoded(schema: Any, value: Any) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def decoder(schema: Any, *references: ReferencedSchema) -> Any:
    return avro_decoder(Schema(7, "AVRO", json.dumps(schema), references))


def test_each_type_has_its_form_in_json() -> None:
    assert json.loads(decoder(ORDER)(encoded(ORDER, VALUE))) == {
        "n": 2**62,
        "customer": "Ada",
        "price": "1.25",
        "at": "2026-01-01T00:00:00Z",
        "day": "2026-01-02",
        "id": "00000000-0000-0000-0000-000000000005",
        "state": "PAID",
        "tags": {"a": [0.5]},
        "raw": "/wA=",
    }


@pytest.mark.parametrize(
    ("main", "data", "expected"),
    [
        ("shop.Line", b"\x02a", {"sku": "a"}),
        (["null", "shop.Line"], b"\x02\x02a", {"sku": "a"}),
        ({"type": "array", "items": "shop.Line"}, b"\x02\x02a\x00", [{"sku": "a"}]),
    ],
)
def test_a_schema_may_name_another_one(main: Any, data: bytes, expected: Any) -> None:
    line = {"type": "record", "name": "shop.Line", "fields": [{"name": "sku", "type": "string"}]}
    assert json.loads(decoder(main, ReferencedSchema("line", json.dumps(line)))(data)) == expected


@given(st.binary(max_size=200))
def test_any_bytes_become_json_or_are_malformed(data: bytes) -> None:
    for decode in (ANY_ORDER, ANY_LIST):
        with suppress(MalformedEvent):
            json.loads(decode(data))


@given(st.data())
def test_a_value_with_a_changed_byte_becomes_json_or_is_malformed(data: st.DataObject) -> None:
    value = bytearray(encoded(ORDER, VALUE))
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedEvent):
        json.loads(ANY_ORDER(bytes(value)))


@pytest.mark.parametrize("depth", [900, 5_000, 1_000_000])
def test_a_deep_value_of_a_recursive_schema_does_not_end_the_process(depth: int) -> None:
    with pytest.raises(MalformedEvent, match="schema 7"):
        decoder(LIST)(b"\x02" * depth + b"\x00")


def test_bytes_after_a_value_are_malformed() -> None:
    with pytest.raises(MalformedEvent, match="2 bytes follow it"):
        decoder("long")(b"\x02ab")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_malformed(value: float) -> None:
    with pytest.raises(MalformedEvent, match="NaN"):
        decoder("double")(encoded("double", value))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}},
        {"type": "map", "values": {"type": "array", "items": {"type": "fixed", "name": "Empty", "size": 0}}},
    ],
)
def test_an_array_without_a_limit_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match="whose length no value limits"):
        decoder(schema)


@pytest.mark.parametrize("text", ["{", '"unknown.Type"', '{"type":"record"}', "[" * 100_000])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Not an Avro schema"):
        avro_decoder(Schema(7, "AVRO", text))


ANY_ORDER = decoder(ORDER)
ANY_LIST = decoder(LIST)
