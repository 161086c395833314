"""Dispatch events of the log to waiting task runs, in causal order, once they are stored.

While no run waits, nothing is read: a signal of the task runs reports the first wait. While one waits, the store's
commits wake the dispatcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from headrace.store import Store

LOOK_AGAIN: Final = 1.0
"""Seconds between two checks for waits that end by time alone, while a run waits."""

WORK: Final = "events for task runs"


class EventWaitDispatcher:
    """Dispatch events to the task runs of one store. Any number of API servers may have one. Invariant: an event is
    claimed once, and each run receives it once.
    """

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
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(event.set)

        unsubscribers = [
            self._store.observe(lambda: set_soon(self._committed)),
            self._store.task_runs.commit_signal.listen(lambda: set_soon(self._rung)),
        ]
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            for one in unsubscribers:
                one()
            self._over = True  # it stops the work of a thread, which a cancellation cannot
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
        """Read, claim and dispatch once; return whether any run waits, and whether there was work."""
        waiting = self._store.event_waits
        taken = waiting.take()
        if taken is None:
            return False, False
        if taken.claims:
            waiting.deliver(taken.claims, lambda: not self._over)
        return True, taken.read or bool(taken.claims)
