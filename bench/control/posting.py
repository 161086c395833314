"""An HTTP client with minimal overhead: requests are prepared bytes, and of a response it reads only the status and the length.

A common HTTP client uses as much processor time per request as the measured server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, cast
from urllib.parse import urlsplit

END: Final = b"\r\n\r\n"
LENGTH: Final = b"content-length:"


def rendered(url: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes of a POST request."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode() + END + body


async def post(url: str, request: Callable[[], bytes], connections: int, seconds: float) -> int:
    """Post for `seconds`, one request at a time on each connection; return the number of responses."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    loop = asyncio.get_running_loop()
    until = perf_counter() + seconds
    posting = [(await loop.create_connection(lambda: _Posting(request, until), host, port))[1] for _ in range(connections)]
    return sum(await asyncio.gather(*(one.over for one in posting)))


class _Posting(asyncio.Protocol):
    """One connection. At the end, `over` has the number of responses, or the first response that is an error."""

    _transport: asyncio.WriteTransport

    def __init__(self, request: Callable[[], bytes], until: float) -> None:
        self._request = request
        self._until = until
        self._responses = 0
        self._read = b""
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        read = self._read = self._read + data
        head = read.find(END)
        if head < 0 or len(read) < head + len(END) + _length(read[:head].lower()):
            return
        self._read = b""
        if read.startswith(b"HTTP/1.1 2"):
            self._responses += 1
            self._next()
        else:
            self._fail(read[:500].decode(errors="replace"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self._fail(f"the connection was lost: {error}")

    def _next(self) -> None:
        if perf_counter() < self._until:
            self._transport.write(self._request())
        else:
            self.over.set_result(self._responses)
            self._transport.close()

    def _fail(self, why: str) -> None:
        self.over.set_exception(RuntimeError(why))
        self._transport.close()


def _length(head: bytes) -> int:
    begin = head.index(LENGTH) + len(LENGTH)
    end = head.find(b"\r\n", begin)
    return int(head[begin:] if end < 0 else head[begin:end])
