"""Hands events of the log to the task runs that wait for them, in causal order, as soon as they are stored.

While no run waits nothing is read: the bell of the task runs says when one begins to. While one does, the store's commits wake it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from headrace.store import Store

LOOK_AGAIN: Final = 1.0
"""Seconds after which what became due by time alone is found, while a run waits."""

WORK: Final = "events for task runs"


class EventWaitDispatcher:
    """Lets the task runs of one store go on. Any number of apis may have one: an event is claimed once, and given to a run once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rung = asyncio.Event()
        self._committed = asyncio.Event()
        self._over = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Dispatch as long as the body runs."""
        loop = asyncio.get_running_loop()

        def set_soon(event: asyncio.Event) -> None:
            with suppress(RuntimeError):  # the loop has closed since
                loop.call_soon_threadsafe(event.set)

        forget = [self._store.observe(lambda: set_soon(self._committed)), self._store.task_runs.bell.listen(lambda: set_soon(self._rung))]
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            for one in forget:
                one()
            self._over = True  # it ends what a thread is at, which no cancellation does
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            self._rung.clear()
            self._committed.clear()
            try:
                waited_for, busy = await asyncio.to_thread(self._round)
            except Exception as error:
                await asyncio.sleep(self._store.background.record_failure(WORK, error))
                continue
            self._store.background.record_success(WORK)
            if not waited_for:
                await self._rung.wait()
            elif not busy:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN):
                        await self._committed.wait()

    def _round(self) -> tuple[bool, bool]:
        """Read, claim and hand on once; whether any run waits, and whether there was anything to do."""
        waiting = self._store.event_waits
        taken = waiting.take()
        if taken is None:
            return False, False
        if taken.claims:
            waiting.hand(taken.claims, lambda: not self._over)
        return True, taken.read or bool(taken.claims)
