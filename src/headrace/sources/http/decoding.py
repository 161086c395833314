"""Requests as messages: JSON, lines of JSON, forms, and CloudEvents in their three modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.core.matching.paths import METADATA_FIELD, JsonPath
from headrace.core.signatures.schemes import Scheme
from headrace.core.values.message_text import MessageMetadata, encode_metadata
from headrace.core.values.text import id_part, storable_id
from headrace.errors import MalformedEvent
from headrace.sources.decoding import CONTENT_TYPE, Decoded
from headrace.sources.http.cloud_events import BATCH, FAMILY, STRUCTURED, batch_of_events, binary_event, is_binary, structured_event
from headrace.sources.http.forms import FORM, form_json
from headrace.sources.http.rejection import RequestRejected, reject_invalid
from headrace.sources.http.request_headers import media_type, stored_headers
from headrace.sources.outgoing import MAX_MESSAGE_BYTES, OutgoingMessage
from headrace.triggers.raw_event import RawEvent

LINES: Final = ("application/x-ndjson", "application/jsonl")
_JSON: Final = "application/json"


class RequestDecoding(NamedTuple):
    """How the requests of an endpoint become messages: where the id and the key are, and which further headers are stored."""

    scheme: Scheme
    key: JsonPath | None = None
    headers: tuple[str, ...] = ()


class DecodedRequest(NamedTuple):
    """The messages of a request, and the JSON value of a body that is one."""

    messages: list[OutgoingMessage]
    value: Any


def decode_request(decoding: RequestDecoding, headers: Mapping[str, str], body: bytes, now_ms: int) -> DecodedRequest:
    """Return the messages of a request. `headers` have names in lower case. Raises `RequestRejected`."""
    kind = media_type(headers.get(CONTENT_TYPE, ""))
    make = _MessageMaker(decoding, stored_headers(headers, decoding.headers), now_ms)
    if kind.name == STRUCTURED:
        value = json_value(body)
        return DecodedRequest([make.cloud_event(structured_event(body), value)], value)
    if kind.name == BATCH:
        value = json_value(body)
        return DecodedRequest([make.cloud_event(event, one) for event, one in zip(batch_of_events(body), value, strict=True)], value)
    if kind.name.startswith(FAMILY):
        raise _unsupported(headers, f"Use {STRUCTURED} or {BATCH}.")
    if is_binary(headers):
        event = binary_event(headers, body)
        value = json_value(event.data)
        return DecodedRequest([make.cloud_event(event, value)], value)
    if not kind.is_utf8:
        raise _unsupported(headers, "Send UTF-8.")
    if not body:
        reject_invalid("The body is empty.", "Send one JSON value.")
    if kind.name in LINES:
        lines = [line for line in body.split(b"\n") if line.strip()]
        id = decoding.scheme.delivery_id(headers, None)
        return DecodedRequest([make.line(line, id, number) for number, line in enumerate(lines, 1)], None)
    if kind.name == FORM:
        body = form_json(body)
    elif not kind.is_json:
        raise _unsupported(headers, f"Send JSON with the Content-Type {_JSON}, a form, or a CloudEvent.")
    value = json_value(body)
    return DecodedRequest([make.message(body, value, None, decoding.scheme.delivery_id(headers, value))], value)


def json_value(body: bytes, name: str = "The body") -> Any:
    """Return the value of a JSON text. Raises `RequestRejected` if a watch could not read it."""
    try:
        return RawEvent(body, "", 0).value
    except MalformedEvent as error:
        reject_invalid(f"{name} cannot be used. {error}", "Send JSON in UTF-8.")


def challenge_of(value: Any) -> str | None:
    """Return the challenge of a request by which Slack only asks whether the endpoint is the app's, or None."""
    if not isinstance(value, dict) or value.get("type") != "url_verification":
        return None
    challenge = value.get("challenge")
    return challenge if isinstance(challenge, str) else None


class _MessageMaker:
    """Makes the messages of one request."""

    def __init__(self, decoding: RequestDecoding, stored: Mapping[str, str], now_ms: int) -> None:
        self._key = decoding.key
        self._stored = stored
        self._headers: Sequence[tuple[str, bytes | None]] = [(name, value.encode(errors="replace")) for name, value in stored.items()]
        self._now_ms = now_ms

    def cloud_event(self, event: Decoded, value: Any) -> OutgoingMessage:
        """Return the message of a CloudEvent. Its key is `partitionkey`, or else `subject`."""
        keys = (value.get(name) for name in ("partitionkey", "subject")) if isinstance(value, dict) else ()
        return self.message(event.data, value, next((key for key in keys if isinstance(key, str) and key), None), event.id)

    def line(self, line: bytes, id: str | None, number: int) -> OutgoingMessage:
        """Return the message of a line. Its id is that of the request and the number of the line."""
        return self.message(line, json_value(line, f"Line {number}"), None, None if id is None else f"{id_part(id)}/{number}")

    def message(self, data: bytes, value: Any, key: str | None, id: str | None) -> OutgoingMessage:
        """Return a message. Raises `RequestRejected` if it is too long."""
        if len(data) > MAX_MESSAGE_BYTES:
            raise RequestRejected(
                413,
                "too-large",
                f"A message of {len(data):,} bytes is too long: at most {MAX_MESSAGE_BYTES:,}.",
                "Store large content elsewhere, and send its address.",
            )
        if self._key is not None:
            key = _key_text(self._key.find({METADATA_FIELD: {"headers": self._stored}} if self._key.reads_metadata else value)) or key
        metadata = MessageMetadata(headers=tuple(self._headers), timestamp_ms=self._now_ms, id=None if id is None else storable_id(id))
        return OutgoingMessage(data, None, key, encode_metadata(metadata))


def _key_text(value: Any) -> str | None:
    """Return the text of a key, or None if the value is neither a text nor a number of at most 64 bits."""
    if isinstance(value, bool) or (isinstance(value, int) and value.bit_length() > 64):
        return None
    return str(value) if isinstance(value, str | int | float) else None


def _unsupported(headers: Mapping[str, str], hint: str) -> RequestRejected:
    content_type = headers.get(CONTENT_TYPE, "")[:100]
    return RequestRejected(415, "unsupported-media-type", f"The Content-Type {content_type!r} is not supported.", hint)
