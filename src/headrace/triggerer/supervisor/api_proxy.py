"""The supervisor's side of the runner's calls: each is sent to the api as it is, and answered as it is."""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import unquote

from headrace.errors import ApiError, ApiRefused
from headrace.triggerer.ipc.api_calls import failed
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import MOST_BYTES, Call, CallSucceeded

_AT_ONCE = 64
MAX_ANSWER_BYTES = MOST_BYTES - 1024


class Forwarder(Protocol):
    """Forwards requests of another process."""

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Return the body of the answer; raises `ApiError`."""
        ...


class ApiProxy:
    """At most so many calls at once; while they are under way, no more is read from the runner."""

    def __init__(self, api: Forwarder, link: Channel) -> None:
        self._api = api
        self._link = link
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    async def forward(self, call: Call) -> None:
        """Begin one call."""
        await self._room.acquire()
        task = asyncio.create_task(self._answer(call), name=f"{call.method} {call.path}")
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def close(self, seconds: float) -> None:
        """Finish calls in flight within this number of seconds: requests that the runner sent before it died may be stored."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled():
            task.result()

    async def _answer(self, call: Call) -> None:
        try:
            # The runner runs users' code: it works for the job, but the job's own life is not its to change.
            if not _may(call.path):
                raise ApiRefused(f"A runner may not call {call.path}.")
            content = await self._api.forward(call.method, call.path, call.content)
            if len(content) > MAX_ANSWER_BYTES:
                raise ApiRefused(f"The answer to {call.path} has {len(content)} bytes: too many for a runner.", problem="too-large")
        except ApiError as error:
            await self._link.send(failed(call.number, error))
        else:
            await self._link.send(CallSucceeded(call.number, content))


def _may(path: str) -> bool:
    """Return whether a runner may call `path`, however it is written: the client drops dot segments, tabs and line breaks."""
    written = unquote(path.partition("?")[0])
    segments = written.split("/")
    if not written.isprintable() or "\\" in written or {".", "..", ""} & set(segments[1:]):
        return False
    return segments[:2] == ["", "execution"] and len(segments) > 2 and not segments[2].startswith("jobs")
