"""Keep one trigger that is written in Python at work: start it again when it fails or is failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from headrace.engine.backoff import Backoff
from headrace.engine.firing import Firing
from headrace.errors import StreamEnded
from headrace.wire.triggers import RunTrigger

Failed = Callable[[int, BaseException], Awaitable[None]]

_LONG_LIFE = 60.0  # seconds; a turn that lasted longer than this is followed by a short wait
_STUBBORN = 10.0  # seconds that a filter has to end once it is cancelled


class Keeper:
    """One trigger's turns, one after the other. It subscribes when it is made, so that it gets what is read from then on."""

    def __init__(self, workload: RunTrigger, firing: Firing, subscribe: Callable[[], None], failed: Failed) -> None:
        self._workload = workload
        self._firing = firing
        self._subscribe = subscribe
        self._failed = failed
        self._turn: asyncio.Task[None] | None = None
        self._cause: Exception | None = None
        self._log = structlog.get_logger(__name__).bind(trigger=workload.name)
        self._task = asyncio.create_task(self._keep(self._refusal()), name=f"trigger {workload.name}")

    def fail(self, error: Exception) -> None:
        """End the present turn, whose filter may hang, and begin another: the stream has failed the subscriber."""
        self._cause = error
        if self._turn is not None:
            self._turn.cancel()

    def cancel(self) -> None:
        """Let the trigger end."""
        self._task.cancel()

    async def stopped(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait({self._task})

    async def _keep(self, refusal: Exception | None) -> None:
        backoff = Backoff(first=0.5, most=60.0)
        loop = asyncio.get_running_loop()
        try:
            while True:
                while refusal is not None:
                    await self._failed(self._workload.trigger_id, refusal)
                    await asyncio.sleep(backoff.next())
                    refusal = self._refusal()
                began = loop.time()
                error = await self._one_turn()
                if error is None:
                    self._log.info("trigger is done")
                    return
                if loop.time() - began > _LONG_LIFE:
                    backoff.reset()
                if self._firing.fault(error) == 1:
                    backoff.reset()  # it got past what it failed on before: each raw event has waits of its own
                await self._failed(self._workload.trigger_id, error)
                await asyncio.sleep(backoff.next())
                refusal = self._refusal()
        finally:
            await self._firing.leave()

    def _refusal(self) -> Exception | None:
        """Subscribe; return what that raised: a user's trigger has a word in it."""
        try:
            self._subscribe()
        except Exception as error:
            return error
        return None

    async def _one_turn(self) -> Exception | None:
        """Run the trigger until it raises, is failed, or returns (None; on a shared stream that is an error)."""
        self._cause = None
        self._turn = asyncio.create_task(self._firing.run(), name=f"turn of {self._workload.name}")
        try:
            await asyncio.wait({self._turn})
        finally:
            if not self._turn.done():
                self._turn.cancel()
                _, stubborn = await asyncio.wait({self._turn}, timeout=_STUBBORN)
                if stubborn:
                    self._log.error("the filter does not end although it was cancelled; it is left behind")
            elif not self._turn.cancelled():
                self._turn.exception()  # it is told, or, where this task was cancelled, of no interest any more
        if self._turn.cancelled():
            return self._why()
        error = self._turn.exception()
        if error is None and self._firing.key is not None:
            # It stays registered: what is read from now on would be kept for it and never asked for.
            return StreamEnded("The filter returned; it is expected to read for as long as the stream lives.")
        if error is None or isinstance(error, Exception):
            return error
        raise error

    def _why(self) -> Exception:
        """Return what the turn was ended for."""
        return self._cause or RuntimeError("The trigger's filter cancelled itself.")
