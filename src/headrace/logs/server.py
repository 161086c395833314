"""The logs of one process, served to the api while the process lives."""

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
from headrace.logs.query import MEDIA_TYPE, LogQuery, answer
from headrace.logs.read_tokens import ReadTokens

TRIGGER: Final = "/logs/triggers/{trigger}/{job}"
RUN: Final = "/logs/runs/{run}"
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class LogServerConfig:
    """What to serve and to whom: the logs below `root`, to requests with a token made with `key`.

    It listens on loopback only where the api is there too; else on every address, under the name `hostname`.
    """

    root: Path
    key: str
    api_url: str
    hostname: str

    @property
    def local(self) -> bool:
        """Whether the api is on this machine."""
        return (urlsplit(self.api_url).hostname or "") in _LOOPBACK


@asynccontextmanager
async def serving(what: LogServerConfig) -> AsyncIterator[str]:
    """Serve logs on a free port; gives the url to register.

    Raises:
        ResourceError: Listening is not possible on this machine.
    """
    runner = web.AppRunner(_app(what), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        host = "127.0.0.1" if what.local else ""
        try:
            listener = socket.create_server((host, 0))
        except OSError as error:
            raise ResourceError(f"Cannot listen on this host, so no log is served: {error.strerror}.") from error
        await web.SockSite(runner, listener).start()
        yield f"http://{host or what.hostname}:{listener.getsockname()[1]}"
    finally:
        await runner.cleanup()


@contextmanager
def serving_in_thread(what: LogServerConfig) -> Iterator[str]:
    """Serve logs beside code that has no loop of its own; gives the url to register."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="logs", daemon=True)
    thread.start()
    served = serving(what)
    try:
        url = asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result()
        try:
            yield url
        finally:
            asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _app(what: LogServerConfig) -> web.Application:
    passes = ReadTokens(what.key)

    async def trigger(request: web.Request) -> web.StreamResponse:
        _check(passes, request)
        return await _send(what.root, trigger_log(_number(request, "trigger"), _number(request, "job")), request)

    async def run(request: web.Request) -> web.StreamResponse:
        _check(passes, request)
        return await _send(what.root, run_log_name(request.match_info["run"]), request)

    app = web.Application()
    app.router.add_get(TRIGGER, trigger)
    app.router.add_get(RUN, run)
    return app


def _check(passes: ReadTokens, request: web.Request) -> None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not passes.opens(given, request.rel_url.raw_path):
        raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})


def _number(request: web.Request, name: str) -> int:
    text = request.match_info[name]
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise web.HTTPNotFound
    return int(text)


async def _send(root: Path, name: LogName, request: web.Request) -> web.StreamResponse:
    try:
        asked = LogQuery.parse(request.query)
    except ValueError as error:
        raise web.HTTPBadRequest(text=str(error)) from error
    found = await answer(root, name, asked)
    response = web.StreamResponse(headers=found.headers | {"Content-Type": MEDIA_TYPE})
    await response.prepare(request)
    await response.write(found.data)
    if found.more is not None:
        try:
            async for data in found.more:
                await response.write(data)
        finally:
            await found.more.aclose()
    await response.write_eof()
    return response
