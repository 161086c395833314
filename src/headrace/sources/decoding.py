"""Decoders of message values: each makes the JSON of a raw event from the bytes and the headers of a message."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from headrace.core.values.text import id_part
from headrace.errors import MalformedEvent
from headrace.triggers.raw_event import Message, RawHeaders, message_with

Format: TypeAlias = Literal["json", "text", "base64", "cloudevents", "debezium"]
"""A format of message values. `json` takes the value unchanged."""

NULL: Final = b"null"
"""The JSON of a message without a value, by which a broker marks a deleted key."""

CONTENT_TYPE: Final = "content-type"
STRUCTURED_TYPE: Final = "application/cloudevents"
ATTRIBUTE_PREFIX: Final = "ce_"
REQUIRED_ATTRIBUTES: Final = ("id", "source", "specversion", "type")
"""The attributes that each CloudEvent has; their values are texts that are not empty."""
SPEC_VERSION: Final = "1.0"

_encode: Final = msgspec.json.Encoder().encode
_decode_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text: Final = msgspec.json.Decoder(str).decode
_check_json: Final = msgspec.json.Decoder().decode


class Decoded(NamedTuple):
    """The JSON of a raw event. `id` is the id that the format gives the message, or None."""

    data: bytes
    id: str | None = None


Decoder: TypeAlias = Callable[[bytes | None, RawHeaders], Decoded]
"""Decode a value. Raises `MalformedEvent` with the reason if it is not in the format."""


def decoded_message(
    decode: Decoder,
    value: bytes | None,
    lane: str,
    position: int | None,
    *,
    key: str | None = None,
    delivery: int | None = None,
    headers: RawHeaders = (),
    timestamp_ms: int | None = None,
    id: str | None = None,
) -> Message:
    """Return the message of a value. The id of its format replaces `id`. A value in another format makes a malformed message."""
    (data, own_id), reason = decode_or_reason(decode, value, headers)
    return Message(data, lane, position, key, delivery, headers, timestamp_ms, own_id or id, reason)


def decode_or_reason(decode: Decoder, value: bytes | None, headers: RawHeaders) -> tuple[Decoded, str | None]:
    """Return the decoded value and None, or the value as it is with the reason if it is not in the format."""
    try:
        return decode(value, headers), None
    except MalformedEvent as error:
        return Decoded(NULL if value is None else value), str(error)


def decode_again(decode: Decoder, message: Message, headers: RawHeaders | None = None) -> Message:
    """Return a malformed message, decoded again with its own headers or with these. An id of its format replaces its id."""
    metadata = message.metadata
    pairs = metadata.headers if headers is None else tuple(headers)
    (data, id), reason = decode_or_reason(decode, message.data, pairs)
    decoded = msgspec.structs.replace(metadata, headers=pairs, id=id or metadata.id, malformed=reason)
    return message_with(decoded, data, message.lane, message.position)


def decode_json(value: bytes | None, headers: RawHeaders) -> Decoded:
    """Return the value unchanged, and null for none. Triggers report text that is not JSON."""
    del headers
    return Decoded(NULL if value is None else value)


def decode_text(value: bytes | None, headers: RawHeaders) -> Decoded:
    """Return `{"text": …}`."""
    del headers
    if value is None:
        return Decoded(NULL)
    try:
        return Decoded(_encode({"text": value.decode()}))
    except UnicodeDecodeError as error:
        raise MalformedEvent(f"Not UTF-8: {error.reason} at byte {error.start}.") from error


def decode_base64(value: bytes | None, headers: RawHeaders) -> Decoded:
    """Return `{"base64": …}`."""
    del headers
    return Decoded(NULL if value is None else b'{"base64":"' + b64encode(value) + b'"}')


def decode_cloudevent(value: bytes | None, headers: RawHeaders) -> Decoded:
    """Return a CloudEvent in its JSON format, whether its attributes are in the value (structured) or in headers (binary).

    The id is made of `source` and `id`, which are unique together. A message without attributes and value is null.
    """
    content_type = next((content or b"" for name, content in headers if name.lower() == CONTENT_TYPE), b"").decode(errors="replace")
    attributes = {
        name[len(ATTRIBUTE_PREFIX) :].lower(): _attribute(name, content)
        for name, content in headers
        if name.lower().startswith(ATTRIBUTE_PREFIX) and content is not None
    }
    if value is None and not attributes:
        return Decoded(NULL)
    if content_type.lower().startswith(STRUCTURED_TYPE) or not attributes:
        return _structured(value)
    fields: dict[str, Any] = dict(attributes)
    if content_type:
        fields.setdefault("datacontenttype", content_type)
    if value is not None:
        fields |= _event_data(value, content_type)
    return Decoded(_encode(fields), _event_id(attributes))


def decode_debezium(value: bytes | None, headers: RawHeaders) -> Decoded:
    """Return the change event of Debezium's JSON converter, without the schema that it may have around it."""
    del headers
    if value is None:
        return Decoded(NULL)
    fields = _object(value)
    if fields.keys() == {"schema", "payload"}:
        payload = bytes(fields["payload"])
        if payload == NULL:
            return Decoded(NULL)
        fields, value = _object(payload), payload
    if "op" not in fields:
        raise MalformedEvent("Not a change event of Debezium: it has no field 'op'.")
    return Decoded(value)


DECODERS: Final[Mapping[str, Decoder]] = {
    "json": decode_json,
    "text": decode_text,
    "base64": decode_base64,
    "cloudevents": decode_cloudevent,
    "debezium": decode_debezium,
}


def _structured(value: bytes | None) -> Decoded:
    if value is None:
        raise MalformedEvent("Not a CloudEvent: the message has no value.")
    fields = _object(value)
    attributes: dict[str, str] = {}
    for name in REQUIRED_ATTRIBUTES:
        if name in fields:
            try:
                attributes[name] = _decode_text(fields[name])
            except msgspec.DecodeError as error:
                raise MalformedEvent(f"Not a CloudEvent: its attribute {name!r} is not a text.") from error
    return Decoded(value, _event_id(attributes))


def _event_id(attributes: Mapping[str, str]) -> str:
    """Return the id of an event. Raises `MalformedEvent` if a required attribute is absent or the version is unknown."""
    for name in REQUIRED_ATTRIBUTES:
        if not attributes.get(name):
            raise MalformedEvent(f"Not a CloudEvent: its attribute {name!r} is absent.")
    if attributes["specversion"] != SPEC_VERSION:
        raise MalformedEvent(f"Unknown version of CloudEvents: {attributes['specversion'][:20]!r}. Version {SPEC_VERSION} is known.")
    return f"{id_part(attributes['source'])}/{attributes['id']}"


def _event_data(value: bytes, content_type: str) -> dict[str, Any]:
    """Return the field for the data: JSON as it is, text as text, any other bytes as base64."""
    kind = content_type.partition(";")[0].strip().lower()
    if not kind or kind.endswith(("/json", "+json")):
        try:
            _check_json(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedEvent(f"The data of the CloudEvent are not JSON: {error}.") from error
        return {"data": msgspec.Raw(value)}
    if kind.startswith("text/"):
        try:
            return {"data": value.decode()}
        except UnicodeDecodeError:
            pass  # text in another character set stays bytes
    return {"data_base64": b64encode(value).decode()}


def _attribute(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise MalformedEvent(f"The header {name!r} of the CloudEvent is not UTF-8.") from error


def _object(value: bytes) -> dict[str, msgspec.Raw]:
    """Return the fields of a JSON object. Raises `MalformedEvent`."""
    try:
        return _decode_fields(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"Not a JSON object: {error}.") from error
