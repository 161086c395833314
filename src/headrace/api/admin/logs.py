"""Admin routes of logs, in pages or followed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from headrace.api.admin.live_status import LiveStatus
from headrace.api.admin.log_locator import LocalLog, LogLocator, RemoteLog, never, unavailable_log
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.logs.query import END, JOB, MEDIA_TYPE, START, LogQuery, respond
from headrace.logs.read_tokens import ReadTokens
from headrace.wire.calls import admin as calls

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
MAX_FOLLOWERS = 100
"""Concurrent followers: each takes a thread of the API server."""
_LOOK_INTERVAL_SECONDS = 1.0  # between two checks whether a run has ended
_FINAL_WAIT_SECONDS = 2.5  # for the last lines; those of another host are polled every two seconds
_CONNECT_TIMEOUT_SECONDS = 5.0  # in which a process must respond with its log

After = Annotated[int | None, Query(ge=0, le=2**62, description="The offset in bytes to begin at: Headrace-Log-End of the page before.")]
Last = Annotated[int | None, Query(ge=0, le=100_000, description="Start with this number of last lines.")]
Job = Annotated[int | None, Query(ge=1, le=2**62, description="The log of this job, where several ran the trigger.")]
Follow = Annotated[bool, Query(description="Go on as the log grows.")]


class Logs:
    """Serves the logs that `locator` finds, of this host and of others."""

    def __init__(self, locator: LogLocator, passes: ReadTokens, live: LiveStatus) -> None:
        self.locator = locator
        self._passes = passes
        self._live = live
        self._followers = 0
        self._leaving: set[asyncio.Task[None]] = set()

    async def send(self, source: LocalLog | RemoteLog, query: LogQuery) -> Response:
        """Return the response to a request."""
        if query.follow and self._followers >= MAX_FOLLOWERS:
            raise Refusal(
                503, "unavailable", f"{MAX_FOLLOWERS} follow logs already.", hint="Try again later.", headers={"Retry-After": "5"}
            )
        headers, more = await (self._local(source, query) if isinstance(source, LocalLog) else self._remote(source, query))
        return StreamingResponse(
            self._counted(more, source.ended) if query.follow else more, media_type=MEDIA_TYPE, headers=HEADERS | headers
        )

    async def _local(self, source: LocalLog, query: LogQuery) -> tuple[dict[str, str], AsyncGenerator[bytes]]:
        response = await respond(source.root, source.name, query, source.successor)

        async def content() -> AsyncGenerator[bytes]:
            yield response.data
            if response.more is not None:
                try:
                    async for data in response.more:
                        yield data
                finally:
                    await response.more.aclose()

        return response.headers, content()

    async def _remote(self, source: RemoteLog, query: LogQuery) -> tuple[dict[str, str], AsyncGenerator[bytes]]:
        """Forward the response of the process that writes the log."""
        async with AsyncExitStack() as stack:
            timeout = httpx.Timeout(_CONNECT_TIMEOUT_SECONDS, read=None if query.follow else _CONNECT_TIMEOUT_SECONDS)
            http = await stack.enter_async_context(httpx.AsyncClient(timeout=timeout, trust_env=False))
            headers = {"Authorization": f"Bearer {self._passes.create(source.path, time.time())}"}
            request = http.build_request("GET", f"{source.job.log_url}{source.path}", params=query.query(), headers=headers)
            try:
                response = await http.send(request, stream=True)
            except httpx.TransportError as error:
                raise unavailable_log(source.job) from error
            stack.push_async_callback(response.aclose)
            if not response.is_success:
                raise unavailable_log(source.job)
            held = stack.pop_all()

        async def content() -> AsyncGenerator[bytes]:
            async with held:
                with suppress(httpx.TransportError):  # the process has ended: the next request reads its last lines from the file
                    async for data in response.aiter_bytes():
                        yield data

        return {name: response.headers[name] for name in (START, END, JOB) if name in response.headers}, content()

    async def _counted(self, more: AsyncGenerator[bytes], ended: Callable[[], bool]) -> AsyncGenerator[bytes]:
        """Yield from `more` until the API server closes, or until the log has `ended` and its last lines had time to arrive."""
        self._followers += 1
        closing = asyncio.create_task(self._live.closed(), name="log follower")
        final_wait = _FinalWait(ended)
        reading = asyncio.ensure_future(anext(more, None))
        try:
            while True:
                await final_wait.unless(reading, closing)
                if not reading.done() or (data := reading.result()) is None:
                    return
                yield data
                reading = asyncio.ensure_future(anext(more, None))
        finally:
            self._followers -= 1
            closing.cancel()
            # A task of its own: if the client has disconnected, the server cancels this one again at each await.
            leaving = asyncio.create_task(_leave(reading, more), name="end of a log follower")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)


async def _leave(reading: asyncio.Future[bytes | None], more: AsyncGenerator[bytes]) -> None:
    """Cancel the read of a log, and close its source."""
    reading.cancel()
    await asyncio.wait({reading})
    await more.aclose()


class _FinalWait:
    """Wait for lines after the end of a run. The worker reports the end to the API first, and lines of other hosts arrive later."""

    def __init__(self, ended: Callable[[], bool]) -> None:
        self._ended = ended
        self._since: float | None = None

    async def unless(self, *before: asyncio.Future[Any]) -> None:
        """Wait until they have arrived, or until one of these is done."""
        while True:
            done, _ = await asyncio.wait(before, timeout=_LOOK_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if done or await self._said():
                return

    async def _said(self) -> bool:
        now = time.monotonic()
        if self._since is None and self._ended is not never and await asyncio.to_thread(self._ended):
            self._since = now
        return self._since is not None and now - self._since > _FINAL_WAIT_SECONDS


async def _logs(request: Request) -> Logs:
    """Return the logs of the app."""
    logs: Logs = request.app.state.logs
    return logs


LogsOf = Annotated[Logs, Depends(_logs)]

router = APIRouter(tags=["admin"])


@route(router, calls.GET_TRIGGER_LOG, response_class=StreamingResponse)
async def trigger_log(
    called: str, logs: LogsOf, job: Job = None, after: After = None, last: Last = None, follow: Follow = False
) -> Response:
    """Return the log of a trigger, by name or id, as JSON lines: of a job, or else of the last job that ran it."""
    return await logs.send(await asyncio.to_thread(logs.locator.trigger, called, job), LogQuery(after, last, follow))


@route(router, calls.GET_RUN_LOG, response_class=StreamingResponse)
async def run_log(called: str, logs: LogsOf, after: After = None, last: Last = None, follow: Follow = False) -> Response:
    """Return the log of a task run, by its id or the start of it, as JSON lines."""
    return await logs.send(await asyncio.to_thread(logs.locator.run, called), LogQuery(after, last, follow))
