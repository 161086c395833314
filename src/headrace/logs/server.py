"""Serve the logs of one process to the API while the process lives."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from headrace.errors import ResourceError
from headrace.logs.names import LogName, run_log_name, trigger_log
from headrace.logs.query import MEDIA_TYPE, LogQuery, respond
from headrace.logs.read_tokens import ReadTokens

TRIGGER: Final = "/logs/triggers/{trigger}/{job}"
RUN: Final = "/logs/runs/{run}"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class LogServerConfig:
    """What to serve: the logs below `root`, to requests with a token made with `key`.

    The server listens on loopback if the API runs on this host, else on all addresses, under the name `hostname`.
    """

    root: Path
    key: str
    api_url: str
    hostname: str

    @property
    def local(self) -> bool:
        """Whether the API runs on this host."""
        return (urlsplit(self.api_url).hostname or "") in _LOOPBACK


@asynccontextmanager
async def serve_logs(config: LogServerConfig) -> AsyncIterator[str]:
    """Serve logs on a free port; yields the URL to register.

    Raises:
        ResourceError: This host does not allow listening.
    """
    runner = web.AppRunner(_app(config), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        host = "127.0.0.1" if config.local else ""
        try:
            listener = socket.create_server((host, 0))
        except OSError as error:
            raise ResourceError(f"Cannot listen on this host, so no log is served: {error.strerror}.") from error
        await web.SockSite(runner, listener).start()
        yield f"http://{host or config.hostname}:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()


@contextmanager
def serve_logs_in_thread(config: LogServerConfig) -> Iterator[str]:
    """Serve logs in a thread, for code without a loop of its own; yields the URL to register."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="logs", daemon=True)
    thread.start()
    server = serve_logs(config)
    try:
        url = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
        try:
            yield url
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _app(config: LogServerConfig) -> web.Application:
    tokens = ReadTokens(config.key)

    async def trigger(request: web.Request) -> web.StreamResponse:
        _check(tokens, request)
        return await _send(config.root, trigger_log(_number(request, "trigger"), _number(request, "job")), request)

    async def run(request: web.Request) -> web.StreamResponse:
        _check(tokens, request)
        return await _send(config.root, run_log_name(request.match_info["run"]), request)

    app = web.Application()
    app.router.add_get(TRIGGER, trigger)
    app.router.add_get(RUN, run)
    return app


def _check(tokens: ReadTokens, request: web.Request) -> None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not tokens.verify(token, request.rel_url.raw_path):
        raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})


def _number(request: web.Request, name: str) -> int:
    text = request.match_info[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise web.HTTPNotFound
    return int(text)


async def _send(root: Path, name: LogName, request: web.Request) -> web.StreamResponse:
    try:
        query = LogQuery.parse(request.query)
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    log = await respond(root, name, query)
    response = web.StreamResponse(headers=log.headers | {"Content-Type": MEDIA_TYPE})
    await response.prepare(request)
    await response.write(log.data)
    if log.more is not None:
        try:
            async for data in log.more:
                await response.write(data)
        finally:
            await log.more.aclose()
    await response.write_eof()
    return response
