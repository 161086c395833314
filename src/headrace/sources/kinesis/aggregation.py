"""Records of the Kinesis Producer Library that have several records in one: the *aggregated* format. Pure.

Such a record begins with four bytes and ends with the MD5 of what is between. That is a protobuf message: tables of partition keys and of
explicit hash keys, and records that name their keys by index. A record that does not fit the format is one record as it is. So is one with
keys that the service does not take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import md5
from typing import Final, NamedTuple

MAGIC: Final = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES: Final = 16
MAX_VARINT_BYTES: Final = 10
MAX_KEY_CHARS: Final = 256
"""The limit of the service for a partition key."""
MAX_HASH_KEY: Final = 2**128 - 1

_PARTITION_KEYS: Final = 1
_HASH_KEYS: Final = 2
_RECORDS: Final = 3
_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_FIXED_32: Final = 5
_HASH_KEY: Final = re.compile(r"0|[1-9][0-9]{0,38}")
"""An explicit hash key as the service takes it."""


class SubRecord(NamedTuple):
    """A record that was sent within another one. `number` counts from 0 in its record."""

    number: int
    key: str
    hash_key: int
    """Decides the shard: the explicit hash key, or the MD5 of the partition key."""
    data: bytes


def is_aggregated(data: bytes) -> bool:
    """Return whether the data of a record have the four bytes and the checksum of the format."""
    if not data.startswith(MAGIC) or len(data) <= len(MAGIC) + DIGEST_BYTES:
        return False
    return _digest(data[len(MAGIC) : -DIGEST_BYTES]) == data[-DIGEST_BYTES:]


def sub_records(data: bytes) -> list[SubRecord] | None:
    """Return the records in an aggregated one, or None if the data are not in the format."""
    if not is_aggregated(data):
        return None
    keys: list[tuple[str, int]] = []
    hash_keys: list[int] = []
    bodies: list[bytes] = []
    try:
        for number, value in _fields(data[len(MAGIC) : -DIGEST_BYTES]):
            if number == _PARTITION_KEYS and isinstance(value, bytes):
                keys.append(_partition_key(value))
            elif number == _HASH_KEYS and isinstance(value, bytes):
                hash_keys.append(_explicit_hash_key(value))
            elif number == _RECORDS and isinstance(value, bytes):
                bodies.append(value)
        return [_sub_record(index, body, keys, hash_keys) for index, body in enumerate(bodies)]
    except (ValueError, IndexError, KeyError):
        return None


def hash_of(key: str) -> int:
    """Return the hash key of a partition key."""
    return int.from_bytes(_digest(key.encode()), "big")


def _partition_key(value: bytes) -> tuple[str, int]:
    """Return a partition key with its hash key, which is computed once for all of its records. Raises `ValueError`."""
    key = value.decode()
    if len(key) > MAX_KEY_CHARS:
        raise ValueError("a partition key is too long")
    return key, hash_of(key)


def _explicit_hash_key(value: bytes) -> int:
    """Return the number of an explicit hash key. Raises `ValueError`."""
    text = value.decode()
    if not _HASH_KEY.fullmatch(text) or (number := int(text)) > MAX_HASH_KEY:
        raise ValueError("a hash key is not a number of 128 bits")
    return number


def _sub_record(index: int, body: bytes, keys: Sequence[tuple[str, int]], hash_keys: Sequence[int]) -> SubRecord:
    fields = dict(_fields(body))
    key_index, hash_index, data = fields[1], fields.get(2), fields[3]
    if not isinstance(key_index, int) or not isinstance(data, bytes):
        raise ValueError("a field has another type")
    key, hash_key = keys[key_index]
    return SubRecord(index, key, hash_keys[hash_index] if isinstance(hash_index, int) else hash_key, data)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message. Raises `ValueError` or `IndexError` if it ends early."""
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, offset = _varint(data, offset)
        else:
            if kind == _BYTES:
                size, offset = _varint(data, offset)
            elif kind in (_FIXED_32, _FIXED_64):
                size = 4 if kind == _FIXED_32 else 8
            else:
                raise ValueError(f"unknown wire type {kind}")
            value, offset = data[offset : offset + size], offset + size
            if offset > len(data):
                raise ValueError("it ends early")
        yield tag >> 3, value


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * MAX_VARINT_BYTES, 7):
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise ValueError("a number is too long")


def _digest(data: bytes) -> bytes:
    return md5(data, usedforsecurity=False).digest()
