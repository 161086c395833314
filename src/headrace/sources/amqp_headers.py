"""Headers of AMQP messages as raw events have them. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from headrace.sources.decoding import ATTRIBUTE_PREFIX

_CLOUD_EVENTS_PREFIXES: Final = ("cloudEvents:", "cloudEvents_")


def header_name(name: str) -> str:
    """Return the name of a header. Attributes of CloudEvents get the prefix that the decoder knows."""
    for prefix in _CLOUD_EVENTS_PREFIXES:
        if name.startswith(prefix):
            return ATTRIBUTE_PREFIX + name[len(prefix) :]
    return name


def header_bytes(value: Any) -> bytes | None:
    """Return the value of a header as bytes: a text in UTF-8, any other value as text or JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, datetime):
        return value.isoformat().encode()
    return json.dumps(value, default=_text, ensure_ascii=False).encode(errors="surrogatepass")


def _text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    return value.isoformat() if isinstance(value, datetime) else str(value)
