"""Headers of AMQP become text, whatever type the sender gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.sources.amqp_headers import header_bytes, header_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cloudEvents:id", "ce_id"),
        ("cloudEvents_id", "ce_id"),
        ("cloudEvents", "cloudEvents"),
        ("cloudevents:id", "cloudevents:id"),
        ("", ""),
    ],
)
def test_an_attribute_of_a_cloudevent_gets_the_prefix_of_the_decoder(name: str, expected: str) -> None:
    assert header_name(name) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("é", "é".encode()),
        ("\ud800", b"\xed\xa0\x80"),
        (b"\xff", b"\xff"),
        (bytearray(b"\xff"), b"\xff"),
        (None, None),
        (7, b"7"),
        (1.5, b"1.5"),
        (True, b"true"),
        (datetime(2026, 1, 1, tzinfo=UTC), b"2026-01-01T00:00:00+00:00"),
        ([1, b"x", b"\xff", None], '[1, "x", "\ufffd", null]'.encode()),
        ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, b'{"a": "2026-01-01T00:00:00+00:00"}'),
        ({"a": ["é", {"b": object}]}, b'{"a": ["\xc3\xa9", {"b": "<class \'object\'>"}]}'),
    ],
)
def test_a_value_becomes_bytes(value: Any, expected: bytes | None) -> None:
    assert header_bytes(value) == expected
