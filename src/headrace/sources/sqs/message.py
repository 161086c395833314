"""Messages of SQS as raw events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from headrace.sources.sqs.envelopes import SYSTEM_HEADERS, Record, Step, has_several_records, reserved_names, unpack, unpack_again
from headrace.triggers.raw_event import Message, message_with


def raw_events(message: Mapping[str, Any], lane: str, decoding: Sequence[Step]) -> list[Message]:
    """Return the raw events of a received message, as the client describes it."""
    records = unpack(message["Body"], decoding, _headers(message, decoding))
    several = has_several_records(decoding)
    id = message["MessageId"]
    return [_raw_event(message, record, lane, f"{id}/{number}" if several else id) for number, record in enumerate(records)]


def undecoded_event(message: Mapping[str, Any], lane: str, decoding: Sequence[Step], malformed: str) -> Message:
    """Return the malformed raw event of a message whose decoding failed in an unexpected way: its body, id and group alone."""
    id = message["MessageId"]
    id = f"{id}/0" if has_several_records(decoding) else id
    return Message(message["Body"].encode(errors="surrogatepass"), lane, None, group_of(message), id=id, malformed=malformed)


def decode_record_again(message: Message, decoding: Sequence[Step]) -> Message:
    """Return a malformed record, decoded again from the step that failed. It stays malformed if it is not exactly one record now."""
    metadata = message.metadata
    records = unpack_again(message.data, decoding, metadata.headers)
    if len(records) != 1:
        reason = f"The message has {len(records)} records with the present decode, and a dead letter has one. Send it again."
        return message_with(replace(metadata, malformed=reason), message.data, message.lane, message.position)
    (record,) = records
    id = (metadata.id or "").partition("/")[0]
    if id and has_several_records(decoding):
        id = f"{id}/0"
    key = metadata.key if record.key is None else record.key
    decoded = replace(metadata, key=key, headers=tuple(record.headers), id=record.id or id or None, malformed=record.malformed)
    return message_with(decoded, record.data, message.lane, message.position)


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


def _headers(message: Mapping[str, Any], decoding: Sequence[Step]) -> list[tuple[str, bytes | None]]:
    """Return the message attributes, which the sender sets, then what the queue says: the last value of a name counts."""
    reserved = reserved_names(decoding)
    headers: list[tuple[str, bytes | None]] = []
    for name, attribute in message.get("MessageAttributes", {}).items():
        if name not in reserved:
            value = attribute.get("StringValue", attribute.get("BinaryValue"))
            headers.append((name, value.encode(errors="surrogatepass") if isinstance(value, str) else value))
    system = message.get("Attributes", {})
    headers += [(name, str(system[name]).encode()) for name in SYSTEM_HEADERS if name in system]
    return headers


def _number(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and text.isdecimal() else None
