"""The supervisor's side of the runner's API calls: forwards requests and responses unchanged."""

from __future__ import annotations

import asyncio
from typing import Protocol
from urllib.parse import unquote

from headrace.errors import ApiError, ApiRefused
from headrace.triggerer.ipc.api_calls import failed
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import MAX_FRAME_BYTES, Call, CallSucceeded

_MAX_CALLS = 64
MAX_ANSWER_BYTES = MAX_FRAME_BYTES - 1024


class Forwarder(Protocol):
    """Forwards requests of another process."""

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Return the response body. Raises `ApiError`."""
        ...


class ApiProxy:
    """Forwards up to `_MAX_CALLS` calls concurrently. At the limit, nothing more is read from the runner."""

    def __init__(self, api: Forwarder, link: Channel) -> None:
        self._api = api
        self._link = link
        self._slots = asyncio.Semaphore(_MAX_CALLS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def forward(self, call: Call) -> None:
        """Start one call, when fewer than `_MAX_CALLS` are in flight."""
        await self._slots.acquire()
        task = asyncio.create_task(self._answer(call), name=f"{call.method} {call.path}")
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def close(self, seconds: float) -> None:
        """Finish calls in flight within `seconds`, then cancel them: requests that the runner sent before it died may be stored."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.result()

    async def _answer(self, call: Call) -> None:
        try:
            # The runner runs users' code: it may work for the job, but not change the job's own state.
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
    """Return whether a runner may call `path` in any spelling: the client drops dot segments, tabs and line breaks."""
    written = unquote(path.partition("?")[0])
    segments = written.split("/")
    if not written.isprintable() or "\\" in written or {".", "..", ""} & set(segments[1:]):
        return False
    return segments[:2] == ["", "execution"] and len(segments) > 2 and not segments[2].startswith("jobs")
