"""uvicorn whose shutdown ends the open event streams before it waits for connections."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from headrace.api.admin.live_status import LiveStatus


class Server(uvicorn.Server):
    """Serve an app of `create_app` with `config`. An open event stream would prevent a plain server from stopping."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._live: LiveStatus = app.state.live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: accept no connections, end the event streams, and finish running responses."""
        self._live.close()
        await super().shutdown(sockets)
