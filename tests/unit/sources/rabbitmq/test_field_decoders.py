"""Decoders of values that the client library refuses, in frames as the server sends them."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from pamqp import decode, frame

from headrace.sources.rabbitmq.client import load_library
from headrace.sources.rabbitmq.field_decoders import short_text

MICROSECONDS = 1_763_900_000_000_000
"""A time in microseconds, which is in the year 57865 if it is taken as milliseconds."""
HEADERS, MESSAGE_ID, TIMESTAMP = 1 << 13, 1 << 7, 1 << 6


@pytest.fixture(autouse=True)
def library() -> None:
    load_library()


def text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def table(*fields: tuple[bytes, bytes]) -> bytes:
    content = b"".join(text(name) + value for name, value in fields)
    return struct.pack(">I", len(content)) + content


def properties(flags: int, values: bytes) -> Any:
    """Return the properties that the library reads from the header frame of a message."""
    payload = struct.pack(">HHQH", 60, 0, 2, flags) + values
    content: Any = frame.unmarshal(struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce")[2]
    return content.properties


@pytest.mark.parametrize("seconds", [MICROSECONDS, 2**63, 2**64 - 1])
def test_a_time_without_a_date_is_none(seconds: int) -> None:
    raw = struct.pack(">Q", seconds)
    assert properties(TIMESTAMP, raw).timestamp is None
    found = properties(HEADERS | TIMESTAMP, table((b"at", b"T" + raw), (b"n", b"F" + table((b"at", b"T" + raw))), (b"a", b"t\1")) + raw)
    assert (found.headers, found.timestamp) == ({"at": None, "n": {"at": None}, "a": True}, None)


def test_other_times_stay() -> None:
    raw = struct.pack(">Q", 1_763_900_000)
    found = properties(HEADERS | TIMESTAMP, table((b"at", b"T" + raw)) + raw)
    assert found.timestamp == found.headers["at"] == datetime.fromtimestamp(1_763_900_000, UTC)


def test_names_and_ids_that_are_not_utf8_stay_different() -> None:
    inner = b"F" + table((b"\xfe", b"T" + struct.pack(">Q", MICROSECONDS)))
    found = properties(HEADERS | MESSAGE_ID, table((b"\xff", b"t\1"), (b"\xfe", inner), ("é".encode(), b"t\0")) + text(b"\x80"))
    assert found.headers == {"\\xff": True, "\\xfe": {"\\xfe": None}, "é": False}
    assert found.message_id == "\\x80"
    assert short_text(text(b"\x81") + b"rest") == (2, "\\x81")


def test_frames_that_are_cut_are_errors() -> None:
    with pytest.raises(ValueError, match="Could not unpack"):
        decode.METHODS["timestamp"](b"\0" * 7)
    with pytest.raises(ValueError, match="Could not unpack"):
        decode.METHODS["shortstr"](b"")


def test_a_second_installation_changes_nothing() -> None:
    methods, types = dict(decode.METHODS), dict(decode.TABLE_MAPPING)
    load_library()
    assert methods == decode.METHODS
    assert types == decode.TABLE_MAPPING
