from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.postgres.decoding.values import bytes_of, json_text, json_value


@pytest.mark.parametrize(
    ("oid", "text", "expected"),
    [
        (16, b"t", True),
        (16, b"f", False),
        (20, b"9223372036854775807", 9223372036854775807),
        (23, b"-5", -5),
        (701, b"1e+20", 1e20),
        (701, b"0.1", 0.1),
        (701, b"NaN", "NaN"),
        (700, b"-Infinity", "-Infinity"),
        (1700, b"12345678901234567890.10", "12345678901234567890.10"),
        (3802, b'{"a": [1, null]}', {"a": [1, None]}),
        (17, b"\\x00ff", "AP8="),
        (1184, b"2026-11-23 12:00:00.5+00", "2026-11-23T12:00:00.5Z"),
        (1184, b"infinity", "infinity"),
        (1184, b"0044-03-15 00:00:00+00 BC", "0044-03-15 00:00:00+00 BC"),
        (1114, b"2026-11-23 12:00:00", "2026-11-23T12:00:00"),
        (1082, b"2026-11-23", "2026-11-23"),
        (1007, b"{}", []),
        (1007, b"{1,-2}", [1, -2]),
        (1007, b"{1,NULL}", "{1,NULL}"),
        (1007, b"{{1},{2}}", "{{1},{2}}"),
        (1009, b"{a,b}", "{a,b}"),
        (99_999, b"happy", "happy"),
    ],
)
def test_a_value_is_json_by_its_type(oid: int, text: bytes, expected: object) -> None:
    assert json.loads(json_value(text, oid)) == expected


def test_null_is_null_for_each_type() -> None:
    assert {json_value(None, oid) for oid in (16, 20, 25, 3802)} == {b"null"}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_json_that_reads_back(text: str) -> None:
    assert json.loads(json_text(text.encode())) == text


def test_text_that_is_not_utf_8_keeps_its_bytes_and_is_no_json() -> None:
    data = json_text(b'caf\xe9 "x"\n')
    assert data == b'"caf\xe9 \\u0022x\\u0022\\u000a"'
    with pytest.raises(UnicodeDecodeError):
        data.decode()


@given(st.binary())
def test_bytea_reads_back(data: bytes) -> None:
    assert bytes_of(b"\\x" + data.hex().encode()) == data
