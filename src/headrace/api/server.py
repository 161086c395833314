"""uvicorn, taught where headers end, and to end the open streams of frames before it waits for its connections."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.api.admin.live_status import LiveStatus
from headrace.api.middleware.body_limit import MOST_HEADERS

TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """HTTP whose headers end: httptools itself would keep them until there is no memory left."""

    _read: int | None = None

    def data_received(self, data: bytes) -> None:
        """Take what came; hang up where the headers are still not at their end."""
        begun = self._read is not None  # what came with the end of the body before is not counted
        super().data_received(data)
        if begun and self._read is not None:
            self._read += len(data)
            if self._read > MOST_HEADERS and not self.transport.is_closing():
                self.transport.write(TOO_LONG)
                self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._read = 0

    def on_headers_complete(self) -> None:
        """Count no more: bodies are the app's to limit."""
        self._read = None
        super().on_headers_complete()


class Server(uvicorn.Server):
    """Serves an app of `create_app` as `config` says. A browser that looks on would keep a plain server from stopping."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._live: LiveStatus = app.state.live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: no new connections, no more frames, and what is being answered is finished."""
        self._live.close()
        await super().shutdown(sockets)
