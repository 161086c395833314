"""Await what the writer's thread answers, with one wake-up of the loop for all answers of a commit."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class CommitWaiter:
    """Brings answers into the loop that runs. `asyncio.wrap_future` wakes the loop once for each, which costs more than all the rest."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._woken = False

    async def __call__(self, answer: Future[T]) -> T:
        """Return what `answer` gets, or raise it."""
        waiting: asyncio.Future[T] = self._loop.create_future()
        answer.add_done_callback(lambda done: self._bring(waiting, done))
        return await waiting

    def _bring(self, waiting: asyncio.Future[Any], done: Future[Any]) -> None:
        """In the writer's thread: keep the answer, and wake the loop unless it is awake already."""
        self._done.append((waiting, done))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # Cleared before anything is taken: what is appended after that wakes the loop again.
        self._woken = False
        while self._done:
            waiting, done = self._done.popleft()
            if waiting.done():  # whoever asked is gone
                continue
            error = done.exception()
            if error is None:
                waiting.set_result(done.result())
            else:
                waiting.set_exception(error)
