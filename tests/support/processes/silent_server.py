"""A server that accepts connections and is silent, so that clients stay in the handshake of HTTP/2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

SETTINGS: Final = b"\0\0\0\x04\0\0\0\0\0"
"""An empty frame of settings, with which a server of HTTP/2 ends the handshake."""
CHUNK: Final = 65_536


class SilentServer:
    """The connections of a server that reads, and says nothing before `end_handshakes`."""

    def __init__(self) -> None:
        self.address = ""
        self.accepted = 0
        """The number of all connections so far."""
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def open(self) -> int:
        """The number of connections that the client has not closed."""
        return len(self._open)

    def end_handshakes(self) -> None:
        """Let the handshakes of the open connections succeed."""
        for writer in self._open:
            writer.write(SETTINGS)

    def abort(self) -> None:
        """End the open connections."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until the client closes it."""
        self.accepted += 1
        self._open.add(writer)
        try:
            while await reader.read(CHUNK):
                pass
        except ConnectionError:
            pass  # closed too
        finally:
            self._open.discard(writer)
            writer.close()


@asynccontextmanager
async def silent_server() -> AsyncIterator[SilentServer]:
    """Start a server on loopback."""
    silent = SilentServer()
    server = await asyncio.start_server(silent.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    silent.address = f"{host}:{port}"
    try:
        yield silent
    finally:
        server.close()
        silent.abort()
