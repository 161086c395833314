"""Requests as messages: JSON, lines of JSON, forms, and CloudEvents in their three modes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace.core.matching.paths import METADATA_FIELD, JsonPath
from headrace.core.signatures.schemes import Scheme
from headrace.core.values.message_text import MessageMetadata, encode_metadata
from headrace.core.values.text import id_part, storable_id
from headrace.errors import MalformedEvent
from headrace.sources.decoding import CONTENT_TYPE, Decoded
from headrace.sources.http.cloud_events import BATCH, FAMILY, STRUCTURED, binary_event, events_of_batch, is_binary, structured_event
from headrace.sources.http.forms import FORM, form_json
from headrace.sources.http.rejection import RequestRejected, reject_invalid, reject_too_large
from headrace.sources.http.request_headers import is_compressed, media_type, stored_headers
from headrace.sources.outgoing import MAX_MESSAGE_BYTES, OutgoingMessage
from headrace.triggers.raw_event import RawEvent

LINES: Final = ("application/x-ndjson", "application/jsonl")
CONTENT_ENCODING: Final = "content-encoding"
MAX_REQUEST_MESSAGES: Final = 10_000
MAX_STORED_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of the messages of one request, each with its metadata and key."""
_JSON: Final = "application/json"


class RequestDecoding(NamedTuple):
    """How the requests of an endpoint become messages: where the id and the key are, and which further headers are stored."""

    scheme: Scheme
    key: JsonPath | None = None
    headers: tuple[str, ...] = ()


class DecodedRequest(NamedTuple):
    """The messages of a request, the JSON value of a body that is one, and the bytes that the messages need in the queue."""

    messages: list[OutgoingMessage]
    value: Any
    stored_bytes: int


def decode_request(decoding: RequestDecoding, headers: Mapping[str, str], body: bytes, now_ms: int) -> DecodedRequest:
    """Return the messages of a request. `headers` have names in lower case. Raises `RequestRejected`."""
    if is_compressed(coding := headers.get(CONTENT_ENCODING, "")):
        raise RequestRejected(
            415, "unsupported-media-type", f"The Content-Encoding {coding[:100]!r} is not supported.", "Send the body uncompressed."
        )
    maker = _MessageMaker(decoding, headers, now_ms)
    value = _add_messages(maker, decoding.scheme, headers, body)
    return DecodedRequest(maker.messages, value, maker.stored_bytes)


def json_value(body: bytes, name: str = "The body") -> Any:
    """Return the value of a JSON text. Raises `RequestRejected` if it is too long for a message, or a watch could not read it."""
    if len(body) > MAX_MESSAGE_BYTES:
        reject_too_large(
            f"A message of {len(body):,} bytes is too long: at most {MAX_MESSAGE_BYTES:,}.",
            "Store large content elsewhere, and send its address.",
        )
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


def _add_messages(maker: _MessageMaker, scheme: Scheme, headers: Mapping[str, str], body: bytes) -> Any:
    """Add the messages of a request to `maker`, and return the JSON value of a body that is one."""
    kind = media_type(headers.get(CONTENT_TYPE, ""))
    if kind.name == STRUCTURED:
        value = json_value(body)
        maker.add_cloud_event(structured_event(body), value)
        return value
    if kind.name == BATCH:
        _add_batch(maker, body)
        return None
    if kind.name.startswith(FAMILY):
        raise _unsupported(headers, f"Use {STRUCTURED} or {BATCH}.")
    if is_binary(headers):
        decoded = binary_event(headers, body)
        value = json_value(decoded.data)
        maker.add_cloud_event(decoded, value)
        return value
    if not kind.is_utf8:
        raise _unsupported(headers, "Send UTF-8.")
    if not body:
        reject_invalid("The body is empty.", "Send one JSON value.")
    if kind.name in LINES:
        _add_lines(maker, body, scheme.delivery_id(headers, None))
        return None
    if kind.name == FORM:
        body = form_json(body)
    elif not kind.is_json:
        raise _unsupported(headers, f"Send JSON with the Content-Type {_JSON}, a form, or a CloudEvent.")
    value = json_value(body)
    maker.add(body, value, None, scheme.delivery_id(headers, value))
    return value


def _add_batch(maker: _MessageMaker, body: bytes) -> None:
    """Add the message of each event of a batch."""
    events = events_of_batch(body)
    _check_count(len(events))
    for number, event in enumerate(map(bytes, events), 1):
        name = f"Event {number} of the batch"
        value = json_value(event, name)
        maker.add_cloud_event(structured_event(event, f"{name}: "), value)


def _add_lines(maker: _MessageMaker, body: bytes, id: str | None) -> None:
    """Add the message of each line. Its id is that of the request and the number of the line."""
    lines = list(islice((line for line in BytesIO(body) if line.strip()), MAX_REQUEST_MESSAGES + 1))
    _check_count(len(lines))
    prefix = None if id is None else id_part(id)
    for number, line in enumerate(lines, 1):
        data = line.removesuffix(b"\n")
        maker.add(data, json_value(data, f"Line {number}"), None, None if prefix is None else f"{prefix}/{number}")


def _check_count(count: int) -> None:
    if count > MAX_REQUEST_MESSAGES:
        reject_too_large(f"The request has more than {MAX_REQUEST_MESSAGES:,} messages.", "Send smaller batches.")


class _MessageMaker:
    """Makes the messages of one request.

    A small body can have many messages, and each is stored with the headers. So their bytes together have a limit, and messages without
    an id share their metadata.
    """

    def __init__(self, decoding: RequestDecoding, headers: Mapping[str, str], now_ms: int) -> None:
        stored = stored_headers(headers, decoding.headers)
        self._headers = tuple((name, value.encode(errors="replace")) for name, value in stored.items())
        self._now_ms = now_ms
        self.messages: list[OutgoingMessage] = []
        self.stored_bytes = 0
        self._key_path = decoding.key
        self._header_key: str | None = None
        if decoding.key is not None and decoding.key.reads_metadata:
            self._key_path = None
            self._header_key = _key_text(decoding.key.find({METADATA_FIELD: {"headers": stored}}))

    def add_cloud_event(self, event: Decoded, value: Any) -> None:
        """Add the message of a CloudEvent. Its key is `partitionkey`, or else `subject`. Raises `RequestRejected`."""
        keys = (value.get(name) for name in ("partitionkey", "subject")) if isinstance(value, dict) else ()
        self.add(event.data, value, next((key for key in keys if isinstance(key, str) and key), None), event.id)

    def add(self, data: bytes, value: Any, key: str | None, id: str | None) -> None:
        """Add a message. Raises `RequestRejected` if all messages of the request are too long together."""
        own_key = self._header_key if self._key_path is None else _key_text(self._key_path.find(value))
        metadata = self._metadata_without_id if id is None else self._metadata(storable_id(id))
        message = OutgoingMessage(data, None, own_key or key, metadata)
        self.stored_bytes += len(data) + len(message.metadata or b"") + len(message.key or "")
        if self.stored_bytes > MAX_STORED_BYTES:
            reject_too_large(
                f"The messages of the request have more than {MAX_STORED_BYTES:,} bytes. Each is stored with the headers of the request.",
                "Send smaller batches, or shorter headers.",
            )
        self.messages.append(message)

    @cached_property
    def _metadata_without_id(self) -> bytes:
        return self._metadata(None)

    def _metadata(self, id: str | None) -> bytes:
        return encode_metadata(MessageMetadata(headers=self._headers, timestamp_ms=self._now_ms, id=id))


def _key_text(value: Any) -> str | None:
    """Return the text of a key, or None if the value is neither a text nor a number of at most 64 bits."""
    if isinstance(value, bool) or (isinstance(value, int) and value.bit_length() > 64):
        return None
    return str(value) if isinstance(value, str | int | float) else None


def _unsupported(headers: Mapping[str, str], hint: str) -> RequestRejected:
    content_type = headers.get(CONTENT_TYPE, "")[:100]
    return RequestRejected(415, "unsupported-media-type", f"The Content-Type {content_type!r} is not supported.", hint)
