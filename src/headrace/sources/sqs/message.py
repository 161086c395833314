"""Messages of SQS as raw events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.sources.sqs.envelopes import Record, Step, has_several_records, unpack
from headrace.triggers.raw_event import Message

HEADER_ATTRIBUTES: Final = ("MessageDeduplicationId", "SequenceNumber", "AWSTraceHeader")
"""System attributes that become headers."""


def raw_events(message: Mapping[str, Any], lane: str, decoding: Sequence[Step]) -> list[Message]:
    """Return the raw events of a received message, as the client describes it."""
    records = unpack(message["Body"], decoding, _headers(message))
    several = has_several_records(decoding)
    id = message["MessageId"]
    return [_raw_event(message, record, lane, f"{id}/{number}" if several else id) for number, record in enumerate(records)]


def group_of(message: Mapping[str, Any]) -> str | None:
    """Return the message group, or None for a message of a standard queue without one."""
    group = message.get("Attributes", {}).get("MessageGroupId")
    return None if group is None else str(group)


def _raw_event(message: Mapping[str, Any], record: Record, lane: str, id: str) -> Message:
    attributes = message.get("Attributes", {})
    return Message(
        record.data,
        lane,
        None,
        record.key if record.key is not None else group_of(message),
        _number(attributes.get("ApproximateReceiveCount")),
        record.headers,
        _number(attributes.get("SentTimestamp")),
        record.id or id,
        record.malformed,
    )


def _headers(message: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    system = message.get("Attributes", {})
    headers += [(name, str(system[name]).encode()) for name in HEADER_ATTRIBUTES if name in system]
    for name, attribute in message.get("MessageAttributes", {}).items():
        value = attribute.get("StringValue", attribute.get("BinaryValue"))
        headers.append((name, value.encode(errors="surrogatepass") if isinstance(value, str) else value))
    return headers


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None
