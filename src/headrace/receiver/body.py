"""Read the body of a request, within limits of its size, its time, and the memory of all requests in progress together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Final

from headrace.sources.http.rejection import RequestRejected

Receive = Callable[[], Awaitable[Any]]
Hold = Callable[[int], AbstractContextManager[object]]
"""Counts bytes in memory until the block ends; see `BodyReader.holding`."""

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_BODIES_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the bodies of all requests in progress, and of their messages."""
BODY_SECONDS: Final = 20.0


class SenderDisconnected(Exception):
    """The connection was closed before the body was complete."""


class BodyReader:
    """Reads bodies, and counts the bytes of the requests in progress."""

    def __init__(self, max_bodies_bytes: int = MAX_BODIES_BYTES, seconds: float = BODY_SECONDS) -> None:
        self._max_bodies_bytes = max_bodies_bytes
        self._seconds = seconds
        self._held = 0

    @asynccontextmanager
    async def reading(self, headers: Mapping[str, str], receive: Receive) -> AsyncIterator[bytes]:
        """Read a body, and count its bytes until the block ends.

        Raises:
            RequestRejected: The body is too large or too slow, or all bodies together are too large.
            SenderDisconnected: The sender closed the connection.
        """
        announced = headers.get("content-length", "")
        if announced.isdecimal() and (len(announced) > 18 or int(announced) > MAX_BODY_BYTES):
            raise _too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    more = True
                    while more:
                        message = await receive()
                        if message["type"] == "http.disconnect":
                            raise SenderDisconnected
                        chunk = message.get("body", b"")
                        more = message.get("more_body", False)
                        size += len(chunk)
                        self._held += len(chunk)
                        if size > MAX_BODY_BYTES:
                            raise _too_large()
                        self._require_room()
                        chunks.append(chunk)
            except TimeoutError:
                raise RequestRejected(408, "timeout", f"The body was not complete after {self._seconds:g} s.", "Send it at once.") from None
            yield b"".join(chunks)
        finally:
            self._held -= size

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count the bytes of a request's messages until the block ends. Raises `RequestRejected` if all requests together are too large.

        Each message has its own metadata, so that the messages of a small body may be large.
        """
        self._held += size
        try:
            self._require_room()
            yield
        finally:
            self._held -= size

    def _require_room(self) -> None:
        if self._held > self._max_bodies_bytes:
            raise RequestRejected(503, "unavailable", "Too many requests are in progress.", "Send the request again later.")


def _too_large() -> RequestRejected:
    return RequestRejected(413, "too-large", f"The body is larger than {MAX_BODY_BYTES:,} bytes.", "Send smaller batches.")
