"""One job and its runner, from registration to completion: they begin and end together.

Invariant: whatever a runner sent before it died is stored under its own job or not at all. The next runner has a new
job, whose leases have new epochs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from pydantic import ValidationError

from headrace.errors import ApiRefused, ApiUnavailable, Fenced
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import retry_until_available
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.gc_freeze import gc_frozen
from headrace.triggerer.ipc.messages import Call, Drain, Drained, Frame, JobOver, Report, RunTriggers, Stopped, Workload
from headrace.triggerer.supervisor.api_proxy import ApiProxy
from headrace.triggerer.supervisor.held_leases import HeldLeases
from headrace.triggerer.supervisor.runner_exit import RunnerExit, crashed, stuck
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.supervisor.watchdog import LoopWatchdog
from headrace.wire.calls.execution import CLEAN_UP_TRIGGERS, LOAD_TRIGGERS
from headrace.wire.control.jobs import DesiredState, Heartbeat, HeartbeatAnswer, JobRegistered
from headrace.wire.control.triggers import CleanupTriggers, LoadTriggers

_WORKLOAD_PAGE = 500  # workloads in one call; a page is parsed in one step, which blocks the runner's loop

_CLEANUP_PAGE = 5_000  # triggers that one call confirms as stopped

_STOP_REQUESTED = RunnerExit("Stopped on request.", requested=True)

_CONTENT_STATUSES = frozenset({400, 413, 422})  # statuses of refusals of the content, not of the sender

_CLOSE_SECONDS = 5.0  # seconds in which upstreams can close after all work in flight has finished


@dataclass(frozen=True)
class CapacityPolicy:
    """The number of triggers that this triggerer leases, and its queues."""

    capacity: int = 20_000
    queues: tuple[str, ...] = ("default",)


class ShutdownRequest:
    """Requests to this process: to stop (`stop`), and to stop without draining (`hurry`)."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def on_signal(self) -> None:
        """Handle a signal: the first sets `stop`, the second sets `hurry`."""
        (self.hurry if self.stop.is_set() else self.stop).set()


class RunnerSession:
    """Leases, heartbeats and proxied API calls of one runner under one job."""

    def __init__(
        self,
        api: TriggererApi,
        runner: RunnerProcess,
        job: JobRegistered,
        capacity: CapacityPolicy,
        policy: WatchdogPolicy,
        drain_seconds: float,
    ) -> None:
        self._api = api
        self._runner = runner
        self._job = job
        self._capacity = capacity
        self._drain_seconds = drain_seconds
        self._proxy = ApiProxy(api, runner.link)
        self._watchdog = LoopWatchdog(runner, policy, self._name, self._wake)
        self._running: dict[int, TriggerContext] = {}
        self._leases = HeldLeases()
        self.epochs: dict[int, int] = {}
        """The triggers of the last instructions to the runner, with their epochs."""
        self._beat_now = asyncio.Event()
        self._drained = asyncio.Event()
        self._reported = Heartbeat()
        self._log = structlog.get_logger(__name__)

    async def run(self, shutdown: ShutdownRequest) -> RunnerExit:
        """Run until the job ends; return why."""
        work: list[Coroutine[Any, Any, RunnerExit]] = [
            self._listen(shutdown),
            self._heartbeat_loop(shutdown),
            self._watch(),
            self._wait_exit(shutdown),
            self._drain_on_stop(shutdown),
        ]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(task for task in tasks if task in done).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def close(self, seconds: float) -> None:
        """Kill the runner, and finish its calls in flight."""
        self._runner.kill()
        await self._proxy.close(seconds)

    def heartbeat(self) -> Heartbeat:
        """Return the runner's last report with the current block, of the runner or else of one of its trigger processes."""
        return self._reported.model_copy(update={"blocked": self._watchdog.blocked or self._reported.blocked, "leases": False})

    async def _listen(self, shutdown: ShutdownRequest) -> RunnerExit:
        while (frame := await self._runner.link.receive()) is not None:
            if isinstance(frame, JobOver):
                return RunnerExit(frame.reason, lost=True)
            await self._handle(frame)
        return self._exit(await self._runner.wait_ended(), shutdown)

    async def _handle(self, frame: Frame) -> None:
        match frame:
            case Call():
                await self._proxy.forward(frame)
            case Report(heartbeat):
                self._report(heartbeat)
            case Stopped(epochs):
                await self._confirm_stopped(epochs)
            case Drained():
                self._drained.set()

    def _report(self, heartbeat: bytes) -> None:
        try:
            self._reported = Heartbeat.model_validate_json(heartbeat)
        except ValidationError as error:
            self._log.error("report invalid", error=str(error))

    async def _confirm_stopped(self, epochs: dict[int, int]) -> None:
        stopped = list(epochs.items())
        try:
            for at in range(0, len(stopped), _CLEANUP_PAGE):
                part = dict(stopped[at : at + _CLEANUP_PAGE])
                released = CleanupTriggers(trigger_ids=list(part), epochs=part)
                await retry_until_available(partial(self._api.request, CLEAN_UP_TRIGGERS, released), "cleanup")
        except Fenced as fenced:
            self._log.warning("triggers not released: job ended", reason=str(fenced))
        else:
            self._log.info("triggers released", triggers=len(epochs))

    async def _heartbeat_loop(self, shutdown: ShutdownRequest) -> RunnerExit:
        """Send heartbeats and apply the answers, independent of what the runner does."""
        while True:
            self._beat_now.clear()
            try:
                if not shutdown.stop.is_set():
                    await self._sync_leases()
                answer = await self._beat()
            except ApiUnavailable as error:
                self._log.warning("heartbeat failed", error=str(error))
            except Fenced as fenced:
                return RunnerExit(str(fenced), lost=True)
            else:
                self._apply_desired_state(answer.desired_state, shutdown)
                await self._send_backlogs(answer.backlogs)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._job.heartbeat):
                    await self._beat_now.wait()

    async def _beat(self) -> HeartbeatAnswer:
        """Send a heartbeat. If the API refuses the report, send one without it, so that the job stays alive."""
        beat = self.heartbeat()
        try:
            return await self._api.heartbeat(beat)
        except ApiRefused as error:
            if error.status not in _CONTENT_STATUSES:
                raise
            self._log.error("report refused", error=str(error), hint=error.hint, streams=len(beat.streams))
        return await self._api.heartbeat(Heartbeat(blocked=beat.blocked, leases=False))

    def _apply_desired_state(self, desired_state: DesiredState, shutdown: ShutdownRequest) -> None:
        if desired_state == "run" or shutdown.stop.is_set():
            return
        self._log.info("stop requested by the API", desired_state=desired_state)
        shutdown.stop.set()
        if desired_state == "stop":
            shutdown.hurry.set()

    async def _sync_leases(self) -> None:
        """Lease the triggers that are available, and instruct the runner to run exactly the leased ones."""
        # Each time, because a new trigger, or one whose job has died, stays unassigned until a job requests triggers.
        while True:
            request = LoadTriggers(capacity=self._capacity.capacity, queues=list(self._capacity.queues), since=self._leases.revision)
            loaded = await self._api.request(LOAD_TRIGGERS, request)
            self._leases.update(loaded)
            if not loaded.more:
                break
        due = self._leases.due(self.epochs)
        if not due.start and not due.stop and not self._leases.revoked:
            self._leases.done()
            return
        with gc_frozen(len(due.start)):
            started = await self._fetch(due.start)
        # A trigger without a workload is released, or leased again. The next answer says which.
        missing = [one for one in due.start if one not in started]
        released = [*due.stop, *(one for one in missing if one in self.epochs)]
        for one in released:
            del self.epochs[one]
            self._running.pop(one, None)
        self.epochs.update(started)
        self._leases.done(again=missing)
        revoked = dict(self._leases.revoked)
        self._log.info("leases changed", triggers=len(self.epochs), new=len(started), revoked=len(revoked))
        await self._runner.link.send(RunTriggers(started, released, [], revoked, {}, self._leases.dropped()))

    async def _fetch(self, trigger_ids: list[int]) -> dict[int, int]:
        """Forward the workloads of these triggers to the runner, in pages. Return the triggers of the pages, with their epochs."""
        started: dict[int, int] = {}
        for at in range(0, len(trigger_ids), _WORKLOAD_PAGE):
            page = await self._api.workloads(trigger_ids[at : at + _WORKLOAD_PAGE])
            self._running.update((one.trigger_id, TriggerContext(one.trigger_id, one.name, one.log_name)) for one in page.triggers)
            started.update(self._leases.epochs(one.trigger_id for one in page.triggers))
            await self._runner.link.send(Workload(page.content))
        return started

    async def _send_backlogs(self, backlogs: dict[int, int]) -> None:
        if backlogs:
            await self._runner.link.send(RunTriggers(backlogs=backlogs))

    async def _watch(self) -> RunnerExit:
        blocked = await self._watchdog.run()
        self._log.error("runner stuck, killing it", trigger=blocked.trigger, seconds=round(blocked.seconds))
        return stuck(blocked)

    async def _wait_exit(self, shutdown: ShutdownRequest) -> RunnerExit:
        return self._exit(await self._runner.wait_ended(), shutdown)

    def _exit(self, code: int, shutdown: ShutdownRequest) -> RunnerExit:
        """Return why the runner ended. After draining it exits by itself, which may be visible before its last frame is read."""
        if code == 0 and shutdown.stop.is_set():
            return _STOP_REQUESTED
        return crashed(code, self._runner.heartbeat.running)

    async def _drain_on_stop(self, shutdown: ShutdownRequest) -> RunnerExit:
        await shutdown.stop.wait()
        self._log.info("stopping after events in flight; a second signal ends it at once")
        await self._runner.link.send(Drain(self._drain_seconds))
        hurrying = asyncio.create_task(shutdown.hurry.wait())
        drained = asyncio.create_task(self._drained.wait())
        try:
            # The runner gets extra time to close its upstreams.
            await asyncio.wait({hurrying, drained}, timeout=self._drain_seconds + _CLOSE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurrying.cancel()
            drained.cancel()
        if not self._drained.is_set():
            self._log.warning("drain incomplete; the upstreams redeliver unconfirmed events")
        return _STOP_REQUESTED

    def running(self, trigger_id: int) -> TriggerContext:
        """Return the context of a trigger that the runner was instructed to run."""
        return self._running.get(trigger_id) or TriggerContext(trigger_id, str(trigger_id), "")

    def _name(self, trigger_id: int) -> str:
        return self.running(trigger_id).name

    def _wake(self) -> None:
        self._beat_now.set()
