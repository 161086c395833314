"""Events of Azure Event Grid about blobs, in both of its schemas. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.errors import MalformedEvent
from headrace.sources.objects.notified import Notified, milliseconds, trusted_etag

CREATED: Final = "Microsoft.Storage.BlobCreated"
UNFINISHED: Final = frozenset({"CreateFile", "SftpCreate"})
"""Requests that begin a blob. Another event follows when it is complete."""
_CONTAINERS: Final = "/blobServices/default/containers/"
_BLOBS: Final = "/blobs/"


class _Data(msgspec.Struct):
    api: str = ""
    eTag: str = ""  # noqa: N815  # the name of the service
    contentLength: int | None = None  # noqa: N815


class _Event(msgspec.Struct):
    """An event in the schema of Event Grid (`eventType`, `eventTime`), or a CloudEvent (`type`, `time`)."""

    subject: str
    data: _Data
    eventType: str = ""  # noqa: N815
    eventTime: str | None = None  # noqa: N815
    type: str = ""
    time: str | None = None


_decode: Final = msgspec.json.Decoder(_Event).decode


def parse_notification(data: bytes) -> Notified:
    """Return what one event says. Raises `MalformedEvent`."""
    try:
        event = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"The message is not an event about a blob: {error}.") from error
    container, separator, key = event.subject.removeprefix(_CONTAINERS).partition(_BLOBS)
    if not event.subject.startswith(_CONTAINERS) or not separator:
        raise MalformedEvent(f"The subject of the event is not a blob: {event.subject[:200]!r}.")
    is_created = CREATED in (event.eventType, event.type) and event.data.api not in UNFINISHED
    size, modified = event.data.contentLength, milliseconds(event.eventTime or event.time)
    return Notified(container, key, is_created, trusted_etag(event.data.eTag, size), size or 0, modified)
