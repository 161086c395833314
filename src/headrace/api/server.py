"""uvicorn with a limit on headers. Its shutdown ends the open event streams before it waits for connections."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.api.admin.live_status import LiveStatus
from headrace.api.middleware.body_limit import MAX_HEADER_BYTES

TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """HTTP with a limit on headers: httptools itself would buffer them until memory is exhausted."""

    _read: int | None = None

    def data_received(self, data: bytes) -> None:
        """Process received data; close the connection if the headers exceed the limit."""
        begun = self._read is not None  # bytes after the end of the previous body are not counted
        super().data_received(data)
        if begun and self._read is not None:
            self._read += len(data)
            if self._read > MAX_HEADER_BYTES and not self.transport.is_closing():
                self.transport.write(TOO_LONG)
                self.transport.close()

    def on_message_begin(self) -> None:
        """Start the count."""
        super().on_message_begin()
        self._read = 0

    def on_headers_complete(self) -> None:
        """Stop the count: the app limits bodies."""
        self._read = None
        super().on_headers_complete()


class Server(uvicorn.Server):
    """Serve an app of `create_app` with `config`. An open event stream would prevent a plain server from stopping."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._live: LiveStatus = app.state.live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: accept no connections, end the event streams, and finish running responses."""
        self._live.close()
        await super().shutdown(sockets)
