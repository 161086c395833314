"""Calls of the API that the supervisor makes for the runner."""

from __future__ import annotations

import asyncio
from itertools import count

from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import Call, CallFailed, CallSucceeded

_KINDS: dict[str, type[ApiError]] = {kind.__name__: kind for kind in (ApiError, ApiUnavailable, ApiRefused, Fenced)}


class ApiCalls:
    """Calls in flight, by number."""

    def __init__(self, link: Channel) -> None:
        self._link = link
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def call(self, method: str, path: str, content: bytes | None) -> bytes:
        """Return the API's response body. Raises the error that the call raised in the supervisor."""
        number = next(self._numbers)
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = response
        self._idle.clear()
        try:
            await self._link.send(Call(number, method, path, content))
            return await response
        finally:
            del self._waiting[number]
            if not self._waiting:
                self._idle.set()

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Make a call for a trigger process. Raises `ApiError`."""
        return await self.call(method, path, content)

    def complete(self, frame: CallSucceeded | CallFailed) -> None:
        """Complete the call with this number. Ignore a call that was cancelled meanwhile."""
        waiting = self._waiting.get(frame.number)
        if waiting is None or waiting.done():
            return
        if isinstance(frame, CallSucceeded):
            waiting.set_result(frame.content)
        else:
            waiting.set_exception(_error(frame))

    async def wait_idle(self) -> None:
        """Wait until no call is in flight."""
        await self._idle.wait()


def failed(number: int, error: ApiError) -> CallFailed:
    """Return the frame that reports `error` to the runner."""
    kind = next(name for name, kind in reversed(_KINDS.items()) if isinstance(error, kind))
    retry_after = error.retry_after if isinstance(error, ApiUnavailable) else None
    return CallFailed(number, kind, str(error), error.hint, error.status, error.problem, retry_after)


def _error(frame: CallFailed) -> ApiError:
    error = _KINDS[frame.kind](frame.message, hint=frame.hint, status=frame.status, problem=frame.problem)
    if isinstance(error, ApiUnavailable):
        error.retry_after = frame.retry_after
    return error
