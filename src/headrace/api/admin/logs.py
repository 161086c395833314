"""GET /api/v1/logs/…: the logs of triggers and runs, by page or followed as they grow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from headrace.api.admin.live_status import LiveStatus
from headrace.api.admin.log_locator import LocalLog, LogLocator, RemoteLog, gone, never
from headrace.api.http.problems import Refusal
from headrace.logs.query import END, JOB, MEDIA_TYPE, START, LogQuery, answer
from headrace.logs.read_tokens import ReadTokens

HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
MOST_FOLLOWERS = 100
"""How many may follow a log at once: each of them costs the api a thread."""
_LOOK = 1.0  # seconds between two looks whether a run has ended
_LAST_WORDS = 2.5  # seconds; another host's lines are looked for every two
_CONNECT = 5.0  # seconds in which a process must answer for its log

After = Annotated[int | None, Query(ge=0, le=2**62, description="The offset in bytes to begin at: Headrace-Log-End of the page before.")]
Last = Annotated[int | None, Query(ge=0, le=100_000, description="Start with this number of last lines.")]
Job = Annotated[int | None, Query(ge=1, le=2**62, description="The log of this job, where several ran the trigger.")]
Follow = Annotated[bool, Query(description="Go on as the log grows.")]


class _Logs:
    """Answers for logs, wherever they are."""

    def __init__(self, passes: ReadTokens, live: LiveStatus) -> None:
        self._passes = passes
        self._live = live
        self._followers = 0
        self._leaving: set[asyncio.Task[None]] = set()

    async def send(self, place: LocalLog | RemoteLog, asked: LogQuery) -> Response:
        """Return the answer to a request."""
        if asked.follow and self._followers >= MOST_FOLLOWERS:
            raise Refusal(
                503, "unavailable", f"{MOST_FOLLOWERS} follow logs already.", hint="Try again later.", headers={"Retry-After": "5"}
            )
        headers, more = await (self._local(place, asked) if isinstance(place, LocalLog) else self._remote(place, asked))
        return StreamingResponse(
            self._counted(more, place.ended) if asked.follow else more, media_type=MEDIA_TYPE, headers=HEADERS | headers
        )

    async def _local(self, place: LocalLog, asked: LogQuery) -> tuple[dict[str, str], AsyncGenerator[bytes]]:
        found = await answer(place.root, place.name, asked, place.successor)

        async def content() -> AsyncGenerator[bytes]:
            yield found.data
            if found.more is not None:
                try:
                    async for data in found.more:
                        yield data
                finally:
                    await found.more.aclose()

        return found.headers, content()

    async def _remote(self, place: RemoteLog, asked: LogQuery) -> tuple[dict[str, str], AsyncGenerator[bytes]]:
        """Pass on what the process says that writes the log."""
        async with AsyncExitStack() as stack:
            timeout = httpx.Timeout(_CONNECT, read=None if asked.follow else _CONNECT)
            http = await stack.enter_async_context(httpx.AsyncClient(timeout=timeout, trust_env=False))
            headers = {"Authorization": f"Bearer {self._passes.make(place.path, time.time())}"}
            request = http.build_request("GET", f"{place.job.log_url}{place.path}", params=asked.query(), headers=headers)
            try:
                response = await http.send(request, stream=True)
            except httpx.TransportError as error:
                raise gone(place.job) from error
            stack.push_async_callback(response.aclose)
            if not response.is_success:
                raise gone(place.job)
            held = stack.pop_all()

        async def content() -> AsyncGenerator[bytes]:
            async with held:
                with suppress(httpx.TransportError):  # the process is gone: what was logged since is read when it is asked for again
                    async for data in response.aiter_bytes():
                        yield data

        return {name: response.headers[name] for name in (START, END, JOB) if name in response.headers}, content()

    async def _counted(self, more: AsyncGenerator[bytes], ended: Callable[[], bool]) -> AsyncGenerator[bytes]:
        """Yield what `more` does until the api closes, or the log has `ended` and its writer has had time for its last words."""
        self._followers += 1
        closing = asyncio.create_task(self._live.closed(), name="log follower")
        last_words = _LastWords(ended)
        reading = asyncio.ensure_future(anext(more, None))
        try:
            while True:
                await last_words.unless(reading, closing)
                if not reading.done() or (data := reading.result()) is None:
                    return
                yield data
                reading = asyncio.ensure_future(anext(more, None))
        finally:
            self._followers -= 1
            closing.cancel()
            # A task of its own: where the client has left, the server cancels this one again at each await.
            leaving = asyncio.create_task(_leave(reading, more), name="end of a log follower")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await asyncio.shield(leaving)


async def _leave(reading: asyncio.Future[bytes | None], more: AsyncGenerator[bytes]) -> None:
    """Cancel the reading of a log, and close what it reads from."""
    reading.cancel()
    await asyncio.wait({reading})
    await more.aclose()


class _LastWords:
    """What is still logged after a run has ended: the worker told the API first, and lines of other hosts arrive a little later."""

    def __init__(self, ended: Callable[[], bool]) -> None:
        self._ended = ended
        self._since: float | None = None

    async def unless(self, *before: asyncio.Future[Any]) -> None:
        """Wait until they are said, or one of these is done before."""
        while True:
            done, _ = await asyncio.wait(before, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
            if done or await self._said():
                return

    async def _said(self) -> bool:
        now = time.monotonic()
        if self._since is None and self._ended is not never and await asyncio.to_thread(self._ended):
            self._since = now
        return self._since is not None and now - self._since > _LAST_WORDS


def router_for(finder: LogLocator, passes: ReadTokens, live: LiveStatus) -> APIRouter:
    """Return the routes of the logs that `finder` finds."""
    router = APIRouter(tags=["admin"])
    logs = _Logs(passes, live)

    @router.get("/api/v1/logs/triggers/{called}", response_class=StreamingResponse)
    async def trigger_log(
        called: str,
        job: Job = None,
        after: After = None,
        last: Last = None,
        follow: Follow = False,
    ) -> Response:
        """Return the log of a trigger, given its name or id, as JSON lines; of one job, or of the one that runs it now or ran it last."""
        return await logs.send(await asyncio.to_thread(finder.trigger, called, job), LogQuery(after, last, follow))

    @router.get("/api/v1/logs/runs/{called:path}", response_class=StreamingResponse)
    async def run_log(called: str, after: After = None, last: Last = None, follow: Follow = False) -> Response:
        """Return the log of a run, given its id or the beginning of it, as JSON lines."""
        return await logs.send(await asyncio.to_thread(finder.run, called), LogQuery(after, last, follow))

    return router
