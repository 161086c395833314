"""Keep one trigger that is written in Python at work: start it again when it fails or is failed, as the api says.

There may be 20,000 of these, most of them idle: one that works is no task here, only in its trigger process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

import structlog

from headrace.errors import StreamMoved
from headrace.retry import Backoff
from headrace.triggerer.context import TriggerContext, log_as
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.process_pools.trigger_pool import TriggerProcesses
from headrace.triggerer.process_pools.turn import ProcessEnded, Turn, TurnEnd, error_of
from headrace.triggerer.runner.execution import TriggerExecution
from headrace.wire.control.triggers import FailureRecorded

STUBBORN: Final = 10.0
"""Seconds that a filter has to end once it is cancelled."""

CLEANUP: Final = 5.0
"""Seconds that `cleanup` may take before it is left behind."""

LONG_WAIT: Final = 10.0
"""Where a trigger waits longer than these seconds to begin again, its raw events go into its backlog meanwhile."""

log = structlog.get_logger(__name__)


class Failed(Protocol):
    """Is told which trigger failed, and with what; says what comes next."""

    async def __call__(self, running: TriggerContext, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
        """Return the verdict; `upstream`: it is not the trigger's own fault."""
        ...


class StreamFailed(Protocol):
    """Is told that a stream failed, and with it its declared watches; says when to open it again."""

    async def __call__(self, stream: str, watches: Sequence[TriggerContext], error: BaseException) -> float:
        """Return in how many seconds."""
        ...


class TriggerLifecycle:
    """One trigger's turns, one after the other. It subscribes when it begins, so that it gets what is read from then on."""

    __slots__ = ("_ending", "_failed", "_firing", "_processes", "_pulse", "_subscribe", "_task", "_turn", "_waits")

    def __init__(
        self,
        firing: TriggerExecution,
        subscribe: Callable[[TriggerExecution], None],
        failed: Failed,
        pulse: SharedHeartbeat,
        processes: TriggerProcesses,
    ) -> None:
        self._firing = firing
        self._subscribe = subscribe
        self._failed = failed
        self._pulse = pulse
        self._processes = processes
        self._task: asyncio.Task[None] | None = None
        self._turn: Turn | None = None
        self._ending = False
        self._waits: Backoff | None = None

    def begin(self, after: float = 0.0) -> None:
        """Start the trigger, `after` so many seconds."""
        if after > 0:
            self._follow(self._later(after))
            return
        firing = self._firing
        try:
            with self._pulse.at(self._running.trigger_id):
                self._subscribe(firing)
        except Exception as error:
            self._follow(self._recover(TurnEnd(error)))
            return
        self._task = None
        self._turn = self._processes.begin(
            self._running.trigger_id,
            self._running.name,
            firing.workload,
            firing.mailbox,
            acks=firing.acks,
            fire=firing.fired,
            on_end=self._turned,
        )

    def fail(self, error: Exception) -> None:
        """End the present turn, whose filter may hang, and begin another: the stream has failed the subscriber."""
        turn = self._turn
        if turn is not None and not self._ending:
            self._turn = None
            self._follow(self._replace(turn, error))

    def end(self) -> None:
        """Begin no turn any more; `stop` is to follow."""
        self._ending = True

    async def stop(self, *, until: float, dropped: bool = False) -> None:
        """End the trigger and release its resources. `dropped`: nothing waits for it any more. A slow cleanup is abandoned."""
        self._ending = True
        task, turn = self._task, self._turn
        self._task = self._turn = None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=_left(until, STUBBORN))
        if turn is not None:
            await self._cancelled(turn, _left(until, STUBBORN))
        await self._leave(until, dropped=dropped)

    @property
    def _running(self) -> TriggerContext:
        return self._firing.running

    def _follow(self, what: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(what, name=self._running.name)
        self._task.add_done_callback(_told)

    def _turned(self, end: TurnEnd) -> None:
        """Handle a turn that ended by itself."""
        if self._ending or self._turn is None:
            return
        self._turn = None
        if end.moved:
            self._firing.requeue()
            self.begin()
        elif end.error is None and self._firing.key is None:
            log.info("trigger is done", trigger=self._running.name)
            if self._firing.awaited:
                return  # its cleanup is decided when it is stopped
            self._follow(self._leave(asyncio.get_running_loop().time() + CLEANUP))
        elif end.error is None:
            # It stays registered: what is read from now on would be kept for it and never asked for.
            returned = RuntimeError("The filter returned; it is expected to read for as long as the stream lives.")
            self._follow(self._recover(end._replace(error=returned)))
        else:
            self._follow(self._recover(end))

    async def _replace(self, turn: Turn, error: Exception) -> None:
        await self._cancelled(turn, STUBBORN)
        await self._recover(TurnEnd(error))

    async def _recover(self, end: TurnEnd) -> None:
        firing, error = self._firing, end.error
        if error is None:
            raise RuntimeError("There is nothing to recover from.")
        # Where it read ahead in a process that is gone, nobody knows which raw event it was at: its log must not name another.
        failing = firing.still() if end.charge else self._running._replace(place=None)
        # Whatever its filter made of that, the end of the stream is no failure of its own.
        ended = firing.stream_error
        attempts = await self._charge(end, error)
        if ended is not None and isinstance(ended.__cause__, StreamMoved):
            await self._later(0.0)
            return
        # It got past what it failed on before, or will not see it again: each raw event has attempts and waits of its own, and ends as a
        # dead letter. How often the trigger itself may fail is the api's to say.
        verdict = await self._failed(failing, ended or error, upstream=attempts > 0 or ended is not None or not end.own)
        if verdict.verdict == "parked":
            with log_as(failing):
                log.error("trigger parked; its events go to the backlog", trigger=self._running.name, restarts=verdict.restarts)
            await firing.leave()
            return
        seconds = self._wait(attempts) if attempts else verdict.retry_in
        if seconds > LONG_WAIT:
            await firing.leave()
        await self._later(seconds)

    async def _charge(self, end: TurnEnd, error: Exception) -> int:
        """Requeue the trigger's raw event; return how often it has failed on it, or 0 if the trigger itself has failed."""
        firing = self._firing
        if not end.loaded:
            await firing.leave()  # what comes meanwhile is kept for it: nobody can say when it will be there
            return 0
        if not end.charge:
            firing.requeue()
            return 0
        attempts = firing.fault(error)
        return 0 if isinstance(error, ProcessEnded) else attempts

    def _wait(self, attempts: int) -> float:
        if attempts == 1 or self._waits is None:
            self._waits = Backoff(first=0.5, most=5.0)
        return self._waits.next()

    async def _later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self._ending:
            self.begin()

    async def _cancelled(self, turn: Turn, seconds: float) -> None:
        if not await turn.cancel(seconds):
            turn.abandon()
            log.error(
                "the filter does not end although it was cancelled, or its process is blocked; it is left behind",
                trigger=self._running.name,
            )

    async def _leave(self, until: float, *, dropped: bool = False) -> None:
        """Leave the stream and call `cleanup`. One that hangs or raises is named and abandoned."""
        await self._firing.leave()
        seconds = _left(until, CLEANUP)
        workload = self._firing.workload if dropped else None
        ended, failure = await self._processes.release(self._running.trigger_id, workload, seconds=seconds)
        with log_as(self._running):
            if not ended:
                log.error("cleanup does not return; it is left behind", trigger=self._running.name, seconds=round(seconds, 1))
            elif failure is not None:
                log.error("cleanup failed", trigger=self._running.name, exc_info=error_of(failure))


def _left(until: float, most: float) -> float:
    return max(0.0, min(most, until - asyncio.get_running_loop().time()))


def _told(task: asyncio.Task[None]) -> None:
    """Say what is a fault of ours: nobody awaits these tasks."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a trigger is not kept any more", trigger=task.get_name(), exc_info=error)
