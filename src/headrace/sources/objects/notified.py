"""What a notification of a bucket says. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from headrace.sources.objects.location import StoredObject

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Notified(NamedTuple):
    """The object of a notification. `etag` has no quotes. It is empty if the state of the object must be requested."""

    bucket: str
    key: str
    is_created: bool
    """Whether the object was written. Other notifications need no reading."""
    etag: str
    size: int
    modified_ms: int | None
    version: str | None = None

    @property
    def stored(self) -> StoredObject:
        """The state of the object."""
        return StoredObject(self.key, self.etag, self.size, self.modified_ms, self.version)


Parser: TypeAlias = Callable[[bytes], Notified]
"""Return what the value of a message says. Raises `MalformedEvent` if it is not a notification."""


def trusted_etag(etag: str | None, size: int | None) -> str:
    """Return the ETag of a notification, or an empty one if the state of the object must be requested.

    Some servers leave out the size, or send 0. An object of size 0 would be finished without being read.
    """
    return (etag or "").strip('"') if size is not None and size > 0 else ""


def milliseconds(text: str | None) -> int | None:
    """Return a time in milliseconds since 1970. Return None if it is not valid, or not in the years 1 to 9999 of UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return (moment - _EPOCH) // _MILLISECOND
