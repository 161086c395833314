from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MalformedEvent
from headrace.sources.schema_registry.protobuf import protobuf_decoder
from headrace.sources.schema_registry.schema import ReferencedSchema, Schema

ORDER = """
syntax = "proto3";
package shop;
import "common/line.proto";
import "google/protobuf/timestamp.proto";
message Other {}
message Order {
  int64 n = 1;
  string customer = 2;
  repeated common.Line lines = 3;
  google.protobuf.Timestamp at = 4;
  message Inner { bytes raw = 1; double rate = 2; }
}
"""
LINE = ReferencedSchema("common/line.proto", 'syntax = "proto3"; package common; message Line { string sku = 1; }')
decode = protobuf_decoder(Schema(7, "PROTOBUF", ORDER, (LINE,)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x00", {}),
        (b"\x02\x00", {}),
        (b"\x02\x02\x08\x05\x12\x03Ada\x1a\x03\x0a\x01x", {"n": "5", "customer": "Ada", "lines": [{"sku": "x"}]}),
        (b"\x02\x02\x22\x02\x08\x01", {"n": "0", "customer": "", "lines": [], "at": "1970-01-01T00:00:01Z"}),
        (b"\x04\x02\x00\x0a\x02\xff\x00", {"raw": "/wA=", "rate": 0.0}),
    ],
)
def test_a_value_names_its_type_by_indexes(data: bytes, expected: Any) -> None:
    assert json.loads(decode(data)) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut off"),
        (b"\x02", "cut off"),
        (b"\x80" * 20, "cut off"),
        (b"\x02\x08", "no message type"),
        (b"\x02\x01", "no message type"),
        (b"\x04\x02\x02", "no message type"),
        (b"\xfe\x01", "127 indexes"),
        (b"\x01", "-1 indexes"),
        (b"\x02\x02\x0a\xff", "DecodeError"),
    ],
)
def test_another_value_is_malformed(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedEvent, match=reason):
        decode(data)


@given(st.binary(max_size=100))
def test_any_bytes_become_json_or_are_malformed(data: bytes) -> None:
    for header in (b"", b"\x02\x02", b"\x04\x02\x00"):
        try:
            json.loads(decode(header + data))
        except MalformedEvent:
            continue


@pytest.mark.parametrize("name", ["/etc/line.proto", "../line.proto", "a/../../line.proto", "a\0.proto"])
def test_a_reference_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(ValueError, match="Invalid name of a file"):
        protobuf_decoder(Schema(7, "PROTOBUF", ORDER, (LINE._replace(name=name),)))


@pytest.mark.parametrize("text", ["", "syntax = 3;", ORDER])
def test_a_schema_that_protoc_refuses_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="protoc refuses"):
        protobuf_decoder(Schema(7, "PROTOBUF", text + " message"))
