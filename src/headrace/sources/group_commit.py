"""Group commit: write the items of several callers together. A commit costs one sync of the disk, whatever its size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class GroupCommit(Generic[T, R]):
    """Call `write` with all waiting items, one call at a time. Items that arrive during a call are in the next one.

    `write` returns one result for each item. If it raises, every caller of that group gets the error and may submit
    again.
    """

    def __init__(self, write: Callable[[list[T]], Awaitable[Sequence[R]]]) -> None:
        self._write = write
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, one: T) -> R:
        """Return the result once `one` is written. A cancelled caller no longer waits, but `one` may still be written."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((one, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="headrace group commit")
        return await answer

    async def aclose(self) -> None:
        """Wait until no write is running."""
        while self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        group: list[tuple[T, asyncio.Future[R]]] = []
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                try:
                    answers = await self._write([one for one, _ in group])
                except Exception as error:
                    for _, answer in group:
                        if not answer.done():
                            answer.set_exception(error)
                else:
                    for (_, answer), result in zip(group, answers, strict=True):
                        if not answer.done():
                            answer.set_result(result)
        finally:
            self._running = None
            for _, answer in group + self._waiting:
                answer.cancel()
