"""The runner's calls of the api, which the supervisor makes for it."""

from __future__ import annotations

import asyncio
from itertools import count

from headrace.errors import ApiError, ApiRefused, ApiUnavailable, Fenced
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import Call, CallFailed, CallSucceeded

_KINDS: dict[str, type[ApiError]] = {kind.__name__: kind for kind in (ApiError, ApiUnavailable, ApiRefused, Fenced)}


class ApiCalls:
    """Those under way, by number."""

    def __init__(self, link: Channel) -> None:
        self._link = link
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def call(self, method: str, path: str, content: bytes | None) -> bytes:
        """Return what the api answers; raises what the call raised in the supervisor."""
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._quiet.clear()
        try:
            await self._link.send(Call(number, method, path, content))
            return await answer
        finally:
            del self._waiting[number]
            if not self._waiting:
                self._quiet.set()

    async def forward(self, method: str, path: str, content: bytes | None) -> bytes:
        """Make the call of a trigger process. Raises `ApiError`."""
        return await self.call(method, path, content)

    def answered(self, frame: CallSucceeded | CallFailed) -> None:
        """Give an answer to who waits for it; one that waits no more misses nothing."""
        waiting = self._waiting.get(frame.number)
        if waiting is None or waiting.done():
            return
        if isinstance(frame, CallSucceeded):
            waiting.set_result(frame.content)
        else:
            waiting.set_exception(_error(frame))

    async def wait_idle(self) -> None:
        """Wait until none is under way."""
        await self._quiet.wait()


def failed(number: int, error: ApiError) -> CallFailed:
    """Return the frame that tells the runner of `error`."""
    kind = next(name for name, kind in reversed(_KINDS.items()) if isinstance(error, kind))
    retry_after = error.retry_after if isinstance(error, ApiUnavailable) else None
    return CallFailed(number, kind, str(error), error.hint, error.status, error.problem, retry_after)


def _error(frame: CallFailed) -> ApiError:
    error = _KINDS[frame.kind](frame.message, hint=frame.hint, status=frame.status, problem=frame.problem)
    if isinstance(error, ApiUnavailable):
        error.retry_after = frame.retry_after
    return error
