from __future__ import annotations

from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.kinesis import aggregation
from headrace.sources.kinesis.aggregation import MAGIC, SubRecord, hash_of, is_aggregated, sub_records


def varint(number: int) -> bytes:
    data = b""
    while number > 0x7F:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def framed(body: bytes) -> bytes:
    return MAGIC + body + md5(body).digest()


def record(key: int, data: bytes, hash_key: int | None = None, more: bytes = b"") -> bytes:
    hashed = b"" if hash_key is None else b"\x10" + varint(hash_key)
    return field(3, b"\x08" + varint(key) + hashed + field(3, data) + more)


def test_records_name_their_keys_by_index() -> None:
    tag = field(4, field(1, b"a"))
    body = field(1, b"ada") + field(1, b"bo") + field(2, b"17") + record(1, b"x" * 300) + record(0, b"", hash_key=0, more=tag)
    assert sub_records(framed(body)) == [SubRecord(0, "bo", hash_of("bo"), b"x" * 300), SubRecord(1, "ada", 17, b"")]


def test_fields_of_other_types_are_passed() -> None:
    body = b"\x79" + b"8" * 8 + b"\x7d" + b"4" * 4 + b"\x78\x05" + field(1, b"ada") + record(0, b"x")
    assert [one.data for one in sub_records(framed(body)) or ()] == [b"x"]


def test_a_hash_key_is_the_md5_of_the_partition_key() -> None:
    assert hash_of("a") == 0x0CC175B9C0F1B6A831C399E269772661


def test_another_checksum_is_a_record_as_it_is() -> None:
    whole = framed(field(1, b"ada") + record(0, b"x"))
    for data in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[1:], b"", MAGIC, MAGIC + bytes(16)):
        assert not is_aggregated(data)
        assert sub_records(data) is None


def test_a_body_that_does_not_fit_is_a_record_as_it_is() -> None:
    for body in (
        record(3, b"x"),  # no such key
        field(1, b"ada") + field(3, b"\x08\x00"),  # no data
        field(1, b"\xff") + record(0, b"x"),
        field(1, b"ada") + record(0, b"x", hash_key=0),
        field(1, b"ada")[:-1],
        b"\x0b",
        b"\xff" * 12,
    ):
        assert sub_records(framed(body)) is None, body


def test_each_key_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[bytes] = []

    def digest(data: bytes) -> bytes:
        digests.append(data)
        return md5(data).digest()

    monkeypatch.setattr(aggregation, "_digest", digest)
    body = field(1, b"ada") + field(1, b"bo") + b"".join(record(number % 2, b"x") for number in range(100))
    assert [one.hash_key for one in sub_records(framed(body)) or ()] == [hash_of("ada"), hash_of("bo")] * 50
    assert len(digests) <= 1 + 2 + 2  # the checksum, the keys, and the expected values


@pytest.mark.parametrize("key", ["k" * 256, "ü" * 256])
def test_a_key_has_up_to_256_characters(key: str) -> None:
    assert [one.key for one in sub_records(framed(field(1, key.encode()) + record(0, b"x"))) or ()] == [key]
    assert sub_records(framed(field(1, b"ada") + field(1, key.encode() + b"k") + record(0, b"x"))) is None


@pytest.mark.parametrize("text", ["0", "17", str(2**128 - 1)])
def test_a_hash_key_is_a_decimal_number_of_128_bits(text: str) -> None:
    body = field(1, b"ada") + field(2, text.encode()) + record(0, b"x", hash_key=0)
    assert [one.hash_key for one in sub_records(framed(body)) or ()] == [int(text)]


@pytest.mark.parametrize("text", ["", "-5", "+5", " 5", "1_0", "007", "\u0665", "0x1", str(2**128), "9" * 5_000])
def test_another_hash_key_is_a_record_as_it_is(text: str) -> None:
    body = field(1, b"ada") + field(2, text.encode()) + record(0, b"x", hash_key=0) + record(0, b"y")
    assert sub_records(framed(body)) is None


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_left_as_they_are(body: bytes) -> None:
    assert sub_records(framed(body)) is None or is_aggregated(framed(body))
    assert sub_records(body) is None
