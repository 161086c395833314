"""uvicorn, taught to end the open streams of frames before it waits for its connections: a browser would keep it from stopping."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from headrace.api.live import Live


class Server(uvicorn.Server):
    """Serves an app of `create_app` as `config` says."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._live: Live = app.state.live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop: no new connections, no more frames, and what is being answered is finished."""
        self._live.close()
        await super().shutdown(sockets)
