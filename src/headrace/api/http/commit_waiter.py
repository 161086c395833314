"""Await results of the writer's thread, with one wake-up of the loop for all results of a commit."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class CommitWaiter:
    """Pass results to the running loop. `asyncio.wrap_future` wakes the loop once for each, which costs more than
    all other work.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._woken = False

    async def __call__(self, answer: Future[T]) -> T:
        """Return the result of `answer`, or raise its error."""
        waiting: asyncio.Future[T] = self._loop.create_future()
        answer.add_done_callback(lambda done: self._bring(waiting, done))
        return await waiting

    def _bring(self, waiting: asyncio.Future[Any], done: Future[Any]) -> None:
        """Append the result, in the writer's thread, and wake the loop unless a wake-up is pending."""
        self._done.append((waiting, done))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Cleared before any result is read: a result that is appended later wakes the loop again.
        self._woken = False
        while self._done:
            waiting, done = self._done.popleft()
            if waiting.done():  # the request was cancelled
                continue
            error = done.exception()
            if error is None:
                waiting.set_result(done.result())
            else:
                waiting.set_exception(error)
