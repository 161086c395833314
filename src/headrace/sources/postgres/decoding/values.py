"""Column values in PostgreSQL's text format as JSON text. Pure.

The sessions set the formats that this module reads: time zone UTC, ISO dates, hexadecimal `bytea`, exact floating point.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
}

BYTEA_OID: Final = 17
JSON_OIDS: Final = frozenset({114, 3802})
"""json, jsonb"""
TEXT_OIDS: Final = frozenset({25, 1042, 1043})
"""text, character, character varying"""

_TIME: Final = re.compile(rb"(\d{4,})-(\d\d)-(\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(\+00)?")
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?(e[+-]?\d+)?")
_INTEGERS: Final = re.compile(rb"\{(?:-?\d+(?:,-?\d+)*)?\}")
_CONTROL: Final = re.compile(rb'[\x00-\x1f"\\]')
_encode: Final = msgspec.json.Encoder().encode


def json_value(value: bytes | None, type_oid: int) -> bytes:
    """Return the JSON text of a value. Values of types without a rule become text.

    Text that is not UTF-8, which only databases with the encoding SQL_ASCII contain, stays as it is. The result is then not JSON.
    """
    if value is None:
        return b"null"
    rule = _RULES.get(type_oid)
    return json_text(value) if rule is None else rule(value)


def json_text(value: bytes) -> bytes:
    """Return text as a JSON string."""
    try:
        return _encode(value.decode())
    except UnicodeDecodeError:
        return b'"' + _CONTROL.sub(lambda match: b"\\u%04x" % ord(match[0]), value) + b'"'


def bytes_of(value: bytes) -> bytes:
    """Return the bytes of a `bytea` in hexadecimal format. Raises `ValueError`."""
    return bytes.fromhex(value.removeprefix(b"\\x").decode("ascii"))


def _boolean(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def _unchanged(value: bytes) -> bytes:
    return value


def _number(value: bytes) -> bytes:
    return value if _NUMBER.fullmatch(value) else json_text(value)  # NaN, Infinity


def _base64(value: bytes) -> bytes:
    return b'"' + b64encode(bytes_of(value)) + b'"'


def _time(value: bytes) -> bytes:
    match = _TIME.fullmatch(value)
    if match is None:  # infinity, or a year before our era
        return json_text(value)
    year, month, day, clock, zone = match.groups()
    return b'"%b-%b-%bT%b%b"' % (year, month, day, clock, b"Z" if zone else b"")


def _integers(value: bytes) -> bytes:
    return b"[" + value[1:-1] + b"]" if _INTEGERS.fullmatch(value) else json_text(value)  # several dimensions, or with NULL


_RULES: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    16: _boolean,
    BYTEA_OID: _base64,
    20: _unchanged,  # bigint
    21: _unchanged,  # smallint
    23: _unchanged,  # integer
    26: _unchanged,  # oid
    700: _number,  # real
    701: _number,  # double precision
    **dict.fromkeys(JSON_OIDS, _unchanged),
    1114: _time,  # timestamp
    1184: _time,  # timestamp with time zone
    1005: _integers,  # smallint[]
    1007: _integers,  # integer[]
    1016: _integers,  # bigint[]
}
