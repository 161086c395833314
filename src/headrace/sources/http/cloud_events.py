"""CloudEvents 1.0 over HTTP in structured, batched and binary mode. Each becomes the JSON format of the event, as from other upstreams.

The official library decodes `data` into Python values, so that a number such as `2.50` changes. Here the text of the sender is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import msgspec

from headrace.errors import MalformedEvent
from headrace.sources.decoding import ATTRIBUTE_PREFIX, CONTENT_TYPE, Decoded, decode_cloudevent
from headrace.sources.http.rejection import reject_invalid

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
FAMILY: Final = "application/cloudevents"
HEADER_PREFIX: Final = "ce-"
_decode_batch: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def structured_event(text: bytes, where: str = "") -> Decoded:
    """Return the event of a text in structured mode, which is valid JSON. Raises `RequestRejected`, which begins with `where`."""
    return _event(text, {CONTENT_TYPE: STRUCTURED}, where)


def events_of_batch(body: bytes) -> list[msgspec.Raw]:
    """Return the texts of the events of a batch. Raises `RequestRejected` if the body is not a JSON array."""
    try:
        return _decode_batch(body)
    except msgspec.ValidationError:
        reject_invalid("The body is not a batch of CloudEvents: it is not a JSON array.", f"One event has the Content-Type {STRUCTURED}.")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reject_invalid(f"The body cannot be used. Not valid JSON: {error}.", "Send JSON in UTF-8.")


def binary_event(headers: Mapping[str, str], body: bytes) -> Decoded:
    """Return the event of a request in binary mode. Raises `RequestRejected`."""
    attributes = {
        ATTRIBUTE_PREFIX + name.removeprefix(HEADER_PREFIX): _header_text(value)
        for name, value in headers.items()
        if name.startswith(HEADER_PREFIX)
    }
    return _event(body or None, attributes | {CONTENT_TYPE: headers.get(CONTENT_TYPE, "")}, "")


def is_binary(headers: Mapping[str, str]) -> bool:
    """Return whether the headers have the attributes of a CloudEvent."""
    return f"{HEADER_PREFIX}specversion" in headers


def _event(body: bytes | None, headers: Mapping[str, str], where: str) -> Decoded:
    try:
        return decode_cloudevent(body, [(name, value.encode(errors="replace")) for name, value in headers.items() if value])
    except MalformedEvent as error:
        reject_invalid(f"{where}{error}", "Send CloudEvents 1.0.")


def _header_text(value: str) -> str:
    """Return the text of an attribute in a header, which is percent-encoded. Invalid sequences stay as they are."""
    if len(value) > 1 and value.startswith('"') and value.endswith('"'):
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value
