"""What a notification of a bucket says. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TypeAlias

from headrace.sources.objects.location import StoredObject


class Notified(NamedTuple):
    """The object of a notification. `etag` has no quotes, and is empty if the notification has none."""

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


def milliseconds(text: str | None) -> int | None:
    """Return a time of a notification in milliseconds since 1970, or None if it is not valid."""
    try:
        return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        return None
