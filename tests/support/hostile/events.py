"""Odd raw events: each kind is a name and the bytes of one line."""

from __future__ import annotations

import random
from typing import Final

LONE = "\\ud800"


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    """Return JSON nested so deep."""
    return opening * depth + "1" + closing * depth


def objects(depth: int) -> str:
    """Return objects nested so deep."""
    return '{"a":' * depth + "1" + "}" * depth


def message(value: str, *, field: str = "x") -> bytes:
    """Return an object with one odd field beside those that the watches look at."""
    return f'{{"id":"{{n}}","{field}":{value}}}'.encode()


def text(value: str, field: str = "x") -> bytes:
    """Return an object with an odd text."""
    return message(f'"{value}"', field=field)


FIELDS: Final = ("id", "follows", "subject", "occurred", "kind", "x")
"""The fields that the watches on hostile upstreams read, and one that they do not."""

VALUES: Final[dict[str, str]] = {
    "null": "null",
    "true": "true",
    "zero": "0",
    "minus zero": "-0.0",
    "thirty digits": "123456789012345678901234567890",
    "beyond 64 bits": str(2**64),
    "beyond float": "1e400",
    "tiny": "1e-400",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus Infinity": "-Infinity",
    "leading zero": "01",
    "fraction": "1.5",
    "empty text": '""',
    "blank text": '" "',
    "NUL": '"a\\u0000b"',
    "lone high surrogate": f'"{LONE}"',
    "lone low surrogate": '"\\udc00"',
    "surrogate pair": '"\\ud83d\\ude00"',
    "newline": '"a\\nb"',
    "escape": '"\\u001b[31m"',
    "right to left": '"\\u202e"',
    "composed": '"\\u00e9"',
    "decomposed": '"e\\u0301"',
    "long text": f'"{"x" * 100_000}"',
    "array": "[]",
    "object": "{}",
    "array of texts": '["a","b"]',
    "deep array": nested(300),
    "deeper array": nested(970),
    "very deep array": nested(5000),
    "deep object": objects(250),
    "wide array": f"[{','.join(['1'] * 20_000)}]",
    "wide object": "{" + ",".join(f'"k{n}":{n}' for n in range(5_000)) + "}",
    "repeated key": '{"a":1,"a":2}',
    "empty key": '{"":1}',
    "surrogate key": f'{{"{LONE}":1}}',
    "never": '"9999-12-31T23:59:59-05:00"',
    "year one": '"0001-01-01T00:00:00+05:00"',
    "year 10000": '"10000-01-01T00:00:00Z"',
    "leap second": '"2026-06-30T23:59:60Z"',
    "no zone": '"2026-06-30T23:59:00"',
    "date": '"2026-06-30"',
    "no date": '"yesterday"',
    "seconds": "1766000000",
    "milliseconds": "1766000000000",
    "far seconds": "1e18",
}

WHOLE: Final[dict[str, bytes]] = {
    "empty line": b"",
    "blanks": b"   \t ",
    "byte order mark": b'\xef\xbb\xbf{"id":"{n}"}',
    "carriage return": b'{"id":"{n}"}\r',
    "no UTF-8": b'{"id":"\xff\xfe"}',
    "overlong UTF-8": b'{"id":"\xc0\xaf"}',
    "cut UTF-8": b'{"id":"\xe2\x82"}',
    "UTF-8 surrogate": b'{"id":"\xed\xa0\x80"}',
    "UTF-16": '{"id":"{n}"}'.encode("utf-16"),
    "NUL byte": b'{"id":"{n}\x00"}',
    "only NULs": b"\x00" * 1000,
    "bare number": b"1",
    "bare text": b'"text"',
    "bare null": b"null",
    "bare array": b"[1,2,3]",
    "cut object": b'{"id":"{n}"',
    "two objects": b'{"id":"{n}"}{"id":"{n}"}',
    "trailing comma": b'{"id":"{n}",}',
    "single quotes": b"{'id':'{n}'}",
    "comment": b'{"id":"{n}"} // why',
    "plain text": b"not JSON at all",
    "CSV": b"id,x\n1,2",
    "self follower": b'{"id":"{n}","follows":"{n}"}',
    "same id": b'{"id":"same","x":"{n}"}',
    "no id": b'{"x":"{n}"}',
    "deep array alone": nested(2_000).encode(),
    "deep object alone": objects(2_000).encode(),
    "unclosed arrays": b"[" * 100_000,
    "long number": b'{"id":"{n}","x":' + b"9" * 50_000 + b"}",
    "two fields deep": b'{"id":"{n}","kind":' + nested(340).encode() + b',"x":' + nested(340).encode() + b"}",
    "numbers in deep arrays": b'{"id":"{n}","kind":' + b"[" * 190 + b",".join([b"7"] * 50_000) + b"]" * 190 + b"}",
    "1 MB text": b'{"id":"{n}","x":"' + b"y" * 1_000_000 + b'"}',
    "10,000 short texts": b'{"id":"{n}","x":[' + b",".join([b'"\\u0001"'] * 10_000) + b"]}",
}

EVENTS: Final[dict[str, bytes]] = {
    **WHOLE,
    **{f"{name} as {field}": message(value, field=field) for name, value in VALUES.items() for field in FIELDS},
}
"""Every kind of odd line, by name; `{n}` in it stands for a number of its own."""


def line(kind: str, number: int) -> bytes:
    """Return one line of this kind, without its newline."""
    return EVENTS[kind].replace(b"{n}", b"%d" % number).replace(b"\n", b"")


def choose(chance: random.Random) -> str:
    """Return a kind."""
    return chance.choice(_NAMES)


_NAMES: Final = tuple(EVENTS)
