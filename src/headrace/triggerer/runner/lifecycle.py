"""Run the turns of one Python trigger, and restart it after failures as the API decides.

There may be 20,000 of these, most of them idle. A trigger that works has no task here, only in its trigger process.
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

CANCEL_SECONDS: Final = 10.0
"""Time limit for a filter to end after it was cancelled."""

CLEANUP_SECONDS: Final = 5.0
"""Time limit for `cleanup`; after it, the cleanup is abandoned."""

LONG_WAIT_SECONDS: Final = 10.0
"""If a trigger waits longer than this for its restart, its raw events go to its backlog meanwhile."""

log = structlog.get_logger(__name__)


class ReportFailure(Protocol):
    """Reports a failed trigger and returns the decision."""

    async def __call__(self, context: TriggerContext, error: BaseException, *, upstream: bool = False) -> FailureRecorded:
        """Return the decision. `upstream`: the trigger is not the cause."""
        ...


class ReportStreamFailure(Protocol):
    """Reports a stream that failed with all its watches."""

    async def __call__(self, stream: str, watches: Sequence[TriggerContext], error: BaseException) -> float:
        """Return the seconds until the stream may open again."""
        ...


class TriggerLifecycle:
    """The turns of one trigger, one after the other. It subscribes when it begins, and receives everything that is read from then on."""

    __slots__ = ("_backoff", "_ending", "_execution", "_heartbeat", "_processes", "_report_failure", "_subscribe", "_task", "_turn")

    def __init__(
        self,
        execution: TriggerExecution,
        subscribe: Callable[[TriggerExecution], None],
        report_failure: ReportFailure,
        heartbeat: SharedHeartbeat,
        processes: TriggerProcesses,
    ) -> None:
        self._execution = execution
        self._subscribe = subscribe
        self._report_failure = report_failure
        self._heartbeat = heartbeat
        self._processes = processes
        self._task: asyncio.Task[None] | None = None
        self._turn: Turn | None = None
        self._ending = False
        self._backoff: Backoff | None = None

    def begin(self, after: float = 0.0) -> None:
        """Start the trigger after `after` seconds."""
        if after > 0:
            self._start_task(self._begin_after(after))
            return
        execution = self._execution
        try:
            with self._heartbeat.at(self._running.trigger_id):
                self._subscribe(execution)
        except Exception as error:
            self._start_task(self._recover(TurnEnd(error)))
            return
        self._task = None
        self._turn = self._processes.begin(
            self._running.trigger_id,
            self._running.name,
            execution.workload,
            execution.subscription,
            acks=execution.acks,
            fire=execution.fired,
            on_end=self._on_turn_end,
        )

    def fail(self, error: Exception) -> None:
        """End the current turn, whose filter may hang, and begin another: the stream has failed the subscriber."""
        turn = self._turn
        if turn is not None and not self._ending:
            self._turn = None
            self._start_task(self._replace(turn, error))

    def end(self) -> None:
        """Begin no more turns; `stop` must follow."""
        self._ending = True

    async def stop(self, *, until: float, dropped: bool = False) -> None:
        """End the trigger and release its resources. `dropped`: no task run waits for it any more. A slow cleanup is abandoned."""
        self._ending = True
        task, turn = self._task, self._turn
        self._task = self._turn = None
        if task is not None:
            task.cancel()
            await asyncio.wait({task}, timeout=_remaining(until, CANCEL_SECONDS))
        if turn is not None:
            await self._cancel(turn, _remaining(until, CANCEL_SECONDS))
        await self._leave(until, dropped=dropped)

    @property
    def _running(self) -> TriggerContext:
        return self._execution.context

    def _start_task(self, what: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(what, name=self._running.name)
        self._task.add_done_callback(_log_internal_error)

    def _on_turn_end(self, end: TurnEnd) -> None:
        """Handle a turn that ended by itself."""
        if self._ending or self._turn is None:
            return
        self._turn = None
        if end.moved:
            self._execution.requeue()
            self.begin()
        elif end.error is None and self._execution.key is None:
            log.info("trigger ended", trigger=self._running.name)
            if self._execution.is_awaited:
                return  # `stop` decides whether to clean up
            self._start_task(self._leave(asyncio.get_running_loop().time() + CLEANUP_SECONDS))
        elif end.error is None:
            # It stays registered, so its backlog would collect raw events that it never reads.
            returned = RuntimeError("The filter returned; it is expected to read for as long as the stream lives.")
            self._start_task(self._recover(end._replace(error=returned)))
        else:
            self._start_task(self._recover(end))

    async def _replace(self, turn: Turn, error: Exception) -> None:
        await self._cancel(turn, CANCEL_SECONDS)
        await self._recover(TurnEnd(error))

    async def _recover(self, end: TurnEnd) -> None:
        execution, error = self._execution, end.error
        if error is None:
            raise RuntimeError("There is nothing to recover from.")
        # If it read ahead in a process that ended, its current raw event is unknown, and its log must not name another
        # one.
        context = execution.frozen_context() if end.charge else self._running._replace(get_origin=None)
        # If the stream has ended, the filter's error is not the trigger's own failure.
        ended = execution.stream_error
        attempts = await self._charge(end, error)
        if ended is not None and isinstance(ended.__cause__, StreamMoved):
            await self._begin_after(0.0)
            return
        # The trigger will get past this raw event, or never see it again: each raw event has its own attempts and
        # waits, and ends as a dead letter. How often the trigger itself may fail is the API's decision.
        decision = await self._report_failure(
            context, ended or error, upstream=attempts > 0 or ended is not None or not end.caused_by_trigger
        )
        if decision.decision == "parked":
            with log_as(context):
                log.error("trigger parked; its events go to the backlog", trigger=self._running.name, restarts=decision.restarts)
            await execution.leave()
            return
        seconds = self._wait(attempts) if attempts else decision.retry_in
        if seconds > LONG_WAIT_SECONDS:
            await execution.leave()
        await self._begin_after(seconds)

    async def _charge(self, end: TurnEnd, error: Exception) -> int:
        """Requeue the trigger's raw event. Return the number of its failures, or 0 if the trigger itself has failed."""
        execution = self._execution
        if not end.loaded:
            await execution.leave()  # raw events go to its backlog, since its next start is unknown
            return 0
        if not end.charge:
            execution.requeue()
            return 0
        attempts = execution.record_failure(error)
        return 0 if isinstance(error, ProcessEnded) else attempts

    def _wait(self, attempts: int) -> float:
        if attempts == 1 or self._backoff is None:
            self._backoff = Backoff(first=0.5, max_seconds=5.0)
        return self._backoff.next()

    async def _begin_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self._ending:
            self.begin()

    async def _cancel(self, turn: Turn, seconds: float) -> None:
        if not await turn.cancel(seconds):
            turn.abandon()
            log.error(
                "filter abandoned: not ended after cancellation, or process blocked",
                trigger=self._running.name,
            )

    async def _leave(self, until: float, *, dropped: bool = False) -> None:
        """Leave the stream and call `cleanup`. A cleanup that hangs or raises is logged and abandoned."""
        await self._execution.leave()
        seconds = _remaining(until, CLEANUP_SECONDS)
        workload = self._execution.workload if dropped else None
        ended, failure = await self._processes.release(self._running.trigger_id, workload, seconds=seconds)
        with log_as(self._running):
            if not ended:
                log.error("cleanup abandoned: time limit exceeded", trigger=self._running.name, seconds=round(seconds, 1))
            elif failure is not None:
                log.error("cleanup failed", trigger=self._running.name, exc_info=error_of(failure))


def _remaining(until: float, limit: float) -> float:
    return max(0.0, min(limit, until - asyncio.get_running_loop().time()))


def _log_internal_error(task: asyncio.Task[None]) -> None:
    """Log an internal error, because no caller awaits these tasks."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("trigger stopped by an internal error", trigger=task.get_name(), exc_info=error)
