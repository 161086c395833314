"""Keep one trigger that is written in Python at work: start it again when it fails or is failed, as the api says.

There may be 20,000 of these, most of them idle: one that works is one task and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from typing import Any, Final, Protocol

import structlog

from headrace.engine.backoff import Backoff
from headrace.engine.current import Running, current_trigger, speaking_for
from headrace.engine.firing import Firing
from headrace.engine.pulse import Marked, Pulse
from headrace.wire.triggers import FailureRecorded

STUBBORN: Final = 10.0
"""Seconds that a filter has to end once it is cancelled."""

CLEANUP: Final = 5.0
"""Seconds that `cleanup` may take before it is left behind."""

_LEFT_BEHIND: Final[set[asyncio.Task[None]]] = set()  # the loop itself holds no task

log = structlog.get_logger(__name__)


class Failed(Protocol):
    """Is told which trigger failed, and with what; says what comes next."""

    async def __call__(self, running: Running, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
        """Return the verdict; `upstream`: it is not the trigger's own fault."""
        ...


class StreamFailed(Protocol):
    """Is told that a stream failed, and with it its declared watches; says when to open it again."""

    async def __call__(self, stream: str, watches: Sequence[Running], error: BaseException) -> float:
        """Return in how many seconds."""
        ...


class Keeper:
    """One trigger's turns, one after the other. It subscribes when it begins, so that it gets what is read from then on."""

    __slots__ = ("_ending", "_failed", "_firing", "_pulse", "_subscribe", "_task", "_turning", "_waits")

    def __init__(self, firing: Firing, subscribe: Callable[[Firing], None], failed: Failed, pulse: Pulse) -> None:
        self._firing = firing
        self._subscribe = subscribe
        self._failed = failed
        self._pulse = pulse
        self._task: asyncio.Task[None] | None = None
        self._turning = False
        self._ending = False
        self._waits: Backoff | None = None

    def begin(self, after: float = 0.0) -> None:
        """Start the trigger, `after` so many seconds."""
        if after > 0:
            self._follow(self._later(after))
            return
        try:
            with self._pulse.at(self._running.trigger_id):
                self._subscribe(self._firing)
        except Exception as error:  # a user's trigger has a word in it: its `serialize`
            self._follow(self._recover(error))
            return
        context = copy_context()
        context.run(current_trigger.set, self._running)
        turn = Marked(self._firing.run(), self._pulse, self._running)
        self._task = asyncio.Task(turn, name=self._running.name, context=context)
        self._turning = True
        self._task.add_done_callback(self._turned)

    def fail(self, error: Exception) -> None:
        """End the present turn, whose filter may hang, and begin another: the stream has failed the subscriber."""
        turn = self._task
        if self._turning and turn is not None and not self._ending:
            self._turning = False
            self._follow(self._replace(turn, error))

    def end(self) -> None:
        """Begin no turn any more; `stop` is to follow."""
        self._ending = True

    async def stop(self, *, dropped: bool = False) -> None:
        """Let the trigger end, and release what it holds; `dropped`: nothing waits on it any more."""
        self._ending = True
        if self._task is not None:
            await self._ended(self._task)
        await self._leave(dropped=dropped)

    @property
    def _running(self) -> Running:
        return self._firing.running

    def _follow(self, what: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(what, name=self._running.name)
        self._task.add_done_callback(_told)

    def _turned(self, turn: asyncio.Task[None]) -> None:
        """See how a turn ended that nobody ended."""
        error = _why(turn)
        if self._ending or not self._turning:
            return
        self._turning = False
        if error is None and self._firing.key is None:
            log.info("trigger is done", trigger=self._running.name)
            self._follow(self._leave())
            return
        # It stays registered: what is read from now on would be kept for it and never asked for.
        returned = RuntimeError("The filter returned; it is expected to read for as long as the stream lives.")
        self._follow(self._recover(error or returned))

    async def _replace(self, turn: asyncio.Task[None], error: Exception) -> None:
        await self._ended(turn)
        await self._recover(error)

    async def _recover(self, error: Exception) -> None:
        failing, ended = self._firing.still(), self._firing.has_stream_ended
        attempts = self._firing.fault(error)
        # It got past what it failed on before, or will not see it again: each raw event has attempts and waits of its own, and ends as a
        # dead letter. How often the trigger itself may fail is the api's to say.
        verdict = await self._failed(failing, error, upstream=attempts > 0 or ended)
        if verdict.verdict == "parked":
            with speaking_for(self._running):
                log.error("trigger is parked; what is for it is kept", trigger=self._running.name, restarts=verdict.restarts)
            return
        await self._later(self._wait(attempts) if attempts else verdict.retry_in)

    def _wait(self, attempts: int) -> float:
        if attempts == 1 or self._waits is None:
            self._waits = Backoff(first=0.5, most=60.0)
        return self._waits.next()

    async def _later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self._ending:
            self.begin()

    async def _ended(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        _, stubborn = await asyncio.wait({task}, timeout=STUBBORN)
        if stubborn:
            log.error("the filter does not end although it was cancelled; it is left behind", trigger=self._running.name)

    async def _leave(self, *, dropped: bool = False) -> None:
        """Leave the stream and call `cleanup`. One that hangs or raises is named and left behind: nobody else waits for it."""
        await self._firing.leave()
        context = copy_context()
        context.run(current_trigger.set, self._running)
        cleanup = Marked(self._firing.cleanup(dropped=dropped), self._pulse, self._running)
        task = asyncio.Task(cleanup, name=f"cleanup of {self._running.name}", context=context)
        done, _ = await asyncio.wait({task}, timeout=CLEANUP)
        with speaking_for(self._running):
            if not done:
                task.cancel()
                _LEFT_BEHIND.add(task)
                task.add_done_callback(_LEFT_BEHIND.discard)
                log.error("cleanup does not return; it is left behind", trigger=self._running.name, seconds=CLEANUP)
            elif (error := _why(task)) is not None:
                log.error("cleanup failed", trigger=self._running.name, exc_info=error)


def _told(task: asyncio.Task[None]) -> None:
    """Say what is a fault of ours: nobody awaits these tasks."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a trigger is not kept any more", trigger=task.get_name(), exc_info=error)


def _why(turn: asyncio.Task[None]) -> Exception | None:
    """Return what the turn ended with; None: it returned."""
    if turn.cancelled():
        return RuntimeError("The trigger's filter cancelled itself.")
    error = turn.exception()
    if error is None or isinstance(error, Exception):
        return error
    return RuntimeError(f"The trigger raised {type(error).__name__}.")
