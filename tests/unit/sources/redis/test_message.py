"""Raw events of entries."""

from __future__ import annotations

import pytest

from headrace.errors import MalformedEvent
from headrace.sources.redis.lane import Lane
from headrace.sources.redis.message import EntryFormat, StreamEntry, raw_event
from headrace.triggers.raw_event import Message

ENTRY = StreamEntry(Lane("orders", "aa", None, "0-0"), b"1700000000000-0", 1_700_000_000_000 << 20)


def made(format: EntryFormat, *fields: bytes) -> Message:
    return raw_event(format, ENTRY, fields, 2)


def test_a_payload_and_its_metadata() -> None:
    raw = made(EntryFormat("data", "who", "json"), b"who", b"Ada", b"data", b"[1]", b"x", b"\xff")
    assert (raw.value, raw.key, raw.delivery, raw.timestamp_ms) == ([1], "Ada", 2, 1_700_000_000_000)
    assert (raw.lane, raw.position, raw.headers) == ("orders@aa", ENTRY.position, {"who": "Ada", "x": "\ufffd"})


def test_the_last_of_equal_fields_counts() -> None:
    assert made(EntryFormat("data", None, "json"), b"data", b"1", b"data", b"2").value == 2
    assert made(EntryFormat(None, None, "json"), b"a", b"1", b"a", b"2").value == {"a": "2"}


@pytest.mark.parametrize(
    ("format", "fields", "reason"),
    [
        (EntryFormat("data", None, "json"), (b"other", b"1"), "The entry has no field 'data'."),
        (EntryFormat(None, None, "json"), (b"a", b"\xff"), "The field 'a' is not UTF-8."),
        (EntryFormat("data", None, "text"), (b"data", b"\xff"), "Not UTF-8"),
    ],
)
def test_an_entry_that_is_not_in_the_format_has_no_value(format: EntryFormat, fields: tuple[bytes, ...], reason: str) -> None:
    with pytest.raises(MalformedEvent, match=reason):
        _ = made(format, *fields).value
