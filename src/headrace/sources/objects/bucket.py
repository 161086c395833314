"""The requests about one bucket, as the parts of the upstream need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.sources.objects.location import StoredObject


class Missing(Exception):
    """The object does not exist, or no longer in the state that was requested."""


class Conflict(Exception):
    """The object is not in the state that a conditional write requires."""


class Page(NamedTuple):
    """A part of a listing. `next` continues it; it is None after the last part."""

    objects: Sequence[StoredObject]
    next: str | None


class Content(NamedTuple):
    """The bytes of an object, and its ETag."""

    data: bytes
    etag: str


class Bucket(Protocol):
    """One bucket. All requests are bounded in time, and raise `StreamError` or `UpstreamError` if they fail."""

    async def list(self, prefix: str, continuation: str | None) -> Page:
        """Return up to 1,000 objects whose keys begin with `prefix`."""
        ...

    async def head(self, key: str, version: str | None = None) -> StoredObject:
        """Return the present state of an object, or that of its version. Raises `Missing`."""
        ...

    async def get(self, key: str) -> Content:
        """Return a whole object. Raises `Missing`."""
        ...

    async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end` of this state of an object. Raises `Missing`."""
        ...

    async def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object, if its ETag is `replaces`, or if it does not exist (None). Return the new ETag. Raises `Conflict`."""
        ...

    async def delete(self, key: str) -> None:
        """Delete an object; do nothing if it does not exist."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
