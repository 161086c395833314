"""Main loop of a triggerer: start a runner, hold a job for it, and restart both when either ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from headrace.errors import ApiError, Fenced, ProjectError
from headrace.logs.setup import bind_process
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import Backoff, retry_until_available
from headrace.triggerer.context import log_as
from headrace.triggerer.ipc.messages import Frame, Page, ProjectInvalid, ProjectLoaded
from headrace.triggerer.supervisor.runner_exit import BlamedTrigger, RunnerExit
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.session import CapacityPolicy, RunnerSession, ShutdownRequest
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.wire.calls.execution import REPORT_FAILURE
from headrace.wire.control.jobs import CompleteJob, RegisterJob
from headrace.wire.control.triggers import DeclareProject, TriggerFailure

T = TypeVar("T")

_LONG_UPTIME_SECONDS = 60.0  # seconds; after a longer uptime of the runner, the next starts without a wait
_COMPLETE_SECONDS = 5.0  # seconds in which the job is completed


@dataclass(frozen=True)
class Policy:
    """Settings of a triggerer: its capacity, the limits for a blocked runner, and the seconds to drain in."""

    capacity: CapacityPolicy = field(default_factory=CapacityPolicy)
    watchdog: WatchdogPolicy = field(default_factory=WatchdogPolicy)
    drain_seconds: float = 10.0


class Supervisor:
    """Runs until stopped. It imports no users' code, so no user's code can end the job."""

    def __init__(
        self,
        api: TriggererApi,
        start_runner: Callable[[], Awaitable[RunnerProcess]],
        next_job: Callable[[str], RegisterJob],
        policy: Policy,
    ) -> None:
        self._api = api
        self._start_runner = start_runner
        self._next_job = next_job
        self._policy = policy
        self._backoff = Backoff(first=0.5, max_seconds=30.0)
        self._log = structlog.get_logger(__name__)

    async def run(self, shutdown: ShutdownRequest) -> None:
        """Run until stopped.

        Raises:
            ProjectError: The project cannot be used.
            ApiError: The API does not support this version.
        """
        loop = asyncio.get_running_loop()
        while not shutdown.stop.is_set():
            began = loop.time()
            runner = await self._start_runner()
            try:
                end = await self._one_job(runner, shutdown)
            finally:
                await runner.close()
            if end is None or end.requested:
                return
            if loop.time() - began > _LONG_UPTIME_SECONDS:
                self._backoff.reset()
            wait = self._backoff.next()
            self._log.warning("restarting with a new runner and a new job", reason=end.reason, retry_in=round(wait, 2))
            await _run_unless_stopped(shutdown.stop, asyncio.sleep(wait))

    async def _one_job(self, runner: RunnerProcess, shutdown: ShutdownRequest) -> RunnerExit | None:
        """Run one job; return why it ended, or None if it was stopped before it began."""
        imported = await _run_unless_stopped(shutdown.stop, self._imported(runner))
        if imported is None or isinstance(imported, RunnerExit):
            return imported
        session: RunnerSession | None = None
        try:
            session = await self._begin(runner, imported.project, shutdown)
            if session is None:
                return None
            # If a stop request arrives meanwhile, the job is still completed.
            died = await _run_unless_stopped(shutdown.stop, self._declare(runner, imported))
            end = died or await session.run(shutdown)
        except Fenced as fenced:
            end = RunnerExit(str(fenced), lost=True)
        if session is not None:
            await session.close(_COMPLETE_SECONDS)
            if not end.lost:
                await self._complete_job(session, end)
        return end

    async def _begin(self, runner: RunnerProcess, project: str, shutdown: ShutdownRequest) -> RunnerSession | None:
        """Register a job for this runner. Return None if a stop request arrives first."""
        job = self._next_job(project)
        registered = await _run_unless_stopped(shutdown.stop, retry_until_available(lambda: self._api.register(job), "register"))
        if registered is None:
            return None
        self._log.info("job registered", job=registered.job_id, project=job.project, runner=runner.pid)
        bind_process(job=registered.job_id)
        return RunnerSession(self._api, runner, registered, self._policy.capacity, self._policy.watchdog, self._policy.drain_seconds)

    async def _imported(self, runner: RunnerProcess) -> Page | ProjectLoaded | RunnerExit:
        """Wait until the runner has imported the project; return its first frame."""
        match await runner.link.receive():
            case Page() | ProjectLoaded() as first:
                return first
            case ProjectInvalid(message, hint):
                raise ProjectError(message, hint=hint)
            case _:
                return RunnerExit(f"The runner ended with {await runner.wait_ended()} before it had imported the project.")

    async def _declare(self, runner: RunnerProcess, first: Page | ProjectLoaded) -> RunnerExit | None:
        """Forward the declaration, page by page. Return why the runner ended meanwhile, or None.

        The pages are not parsed here: 100,000 triggers at once would block the loop for seconds.
        """
        frame: Frame | None = first
        while isinstance(frame, Page):
            await retry_until_available(partial(self._api.stage, frame.page), "declare")
            frame = await runner.link.receive()
        if not isinstance(frame, ProjectLoaded):
            return RunnerExit(f"The runner ended with {await runner.wait_ended()} before it had declared the project.")
        project, declared = frame.project, DeclareProject.model_validate_json(frame.declaration)
        await retry_until_available(lambda: self._api.declare(project, declared), "declare")
        return None

    async def _complete_job(self, session: RunnerSession, end: RunnerExit) -> None:
        """Report why the job ended, while its epochs are still valid."""
        try:
            async with asyncio.timeout(_COMPLETE_SECONDS):
                if end.blamed is not None:
                    await self._report_blamed(session, end.blamed, end.reason)
                await self._api.heartbeat(session.heartbeat())
                await self._api.complete(CompleteJob(state="succeeded" if end.requested else "failed", reason=end.reason))
        except (ApiError, TimeoutError) as error:
            self._log.warning("job end not recorded; the job will expire", error=str(error))
        else:
            self._log.info("job completed", reason=end.reason)

    async def _report_blamed(self, session: RunnerSession, blamed: BlamedTrigger, reason: str) -> None:
        epoch = session.epochs.get(blamed.trigger_id, 0)
        failure = TriggerFailure(epoch=epoch, type=blamed.type, message=reason, blocked=blamed.blocked, traceback=list(blamed.stack))
        decision = await self._api.request(REPORT_FAILURE, failure, trigger_id=blamed.trigger_id)
        running = session.running(blamed.trigger_id)
        with log_as(running):  # its runner has ended, so no other process writes this log
            self._log.error(
                "trigger failed with its runner",
                trigger=running.name,
                error=f"{blamed.type}: {reason}",
                decision=decision.decision,
                stack="\n".join(blamed.stack),
            )


async def _run_unless_stopped(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
    """Return the result of `work`, or None if `stop` was set first."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait({working, stopping})
