"""One triggerer: starts a runner, holds a job for it, and when either is over begins again with both."""

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
from headrace.wire.control.jobs import CompleteJob, RegisterJob
from headrace.wire.control.triggers import DeclareProject, TriggerFailure

T = TypeVar("T")

_LONG_LIFE = 60.0  # seconds; a runner that lived longer than this is followed by the next without a wait
_LAST_WORDS = 5.0  # seconds to say goodbye in


@dataclass(frozen=True)
class Policy:
    """How a triggerer works: its share, its patience with its runner, and the seconds to finish in what is under way at the end."""

    share: CapacityPolicy = field(default_factory=CapacityPolicy)
    patience: WatchdogPolicy = field(default_factory=WatchdogPolicy)
    drain_seconds: float = 10.0


class Supervisor:
    """Runs until told to stop. It imports nothing of the user's: whatever that does, the job lives."""

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
        self._backoff = Backoff(first=0.5, most=30.0)
        self._log = structlog.get_logger(__name__)

    async def run(self, orders: ShutdownRequest) -> None:
        """Work until told to stop.

        Raises:
            ProjectError: The project cannot be used.
            ApiError: The api does not take what this version says.
        """
        loop = asyncio.get_running_loop()
        while not orders.stop.is_set():
            began = loop.time()
            runner = await self._start_runner()
            try:
                end = await self._one_job(runner, orders)
            finally:
                await runner.close()
            if end is None or end.asked:
                return
            if loop.time() - began > _LONG_LIFE:
                self._backoff.reset()
            wait = self._backoff.next()
            self._log.warning("beginning again with a new runner and a new job", reason=end.reason, retry_in=round(wait, 2))
            await _unless(orders.stop, asyncio.sleep(wait))

    async def _one_job(self, runner: RunnerProcess, orders: ShutdownRequest) -> RunnerExit | None:
        """Return how it ended, or None if told to stop before it began."""
        imported = await _unless(orders.stop, self._imported(runner))
        if imported is None or isinstance(imported, RunnerExit):
            return imported
        tenure: RunnerSession | None = None
        try:
            tenure = await self._begin(runner, imported.project, orders)
            if tenure is None:
                return None
            # The job is completed also where an order to stop comes meanwhile.
            died = await _unless(orders.stop, self._declare(runner, imported))
            end = died or await tenure.run(orders)
        except Fenced as fenced:
            end = RunnerExit(str(fenced), lost=True)
        if tenure is not None:
            await tenure.close(_LAST_WORDS)
            if not end.lost:
                await self._farewell(tenure, end)
        return end

    async def _begin(self, runner: RunnerProcess, project: str, orders: ShutdownRequest) -> RunnerSession | None:
        """Register a job for this runner; return None if an order to stop comes first."""
        job = self._next_job(project)
        registered = await _unless(orders.stop, retry_until_available(lambda: self._api.register(job), "register"))
        if registered is None:
            return None
        self._log.info("job registered", job=registered.job_id, project=job.project, runner=runner.pid)
        bind_process(job=registered.job_id)
        return RunnerSession(self._api, runner, registered, self._policy.share, self._policy.patience, self._policy.drain_seconds)

    async def _imported(self, runner: RunnerProcess) -> Page | ProjectLoaded | RunnerExit:
        """Wait until the runner has imported the project; return its first frame."""
        match await runner.link.receive():
            case Page() | ProjectLoaded() as first:
                return first
            case ProjectInvalid(message, hint):
                raise ProjectError(message, hint=hint)
            case _:
                return RunnerExit(f"The runner ended with {await runner.ended()} before it had imported the project.")

    async def _declare(self, runner: RunnerProcess, first: Page | ProjectLoaded) -> RunnerExit | None:
        """Pass the declaration on, each page when the runner has written it; return how the runner ended meanwhile, if it did.

        The pages are not parsed here: 100,000 triggers in one piece would hold up the loop for seconds.
        """
        frame: Frame | None = first
        while isinstance(frame, Page):
            await retry_until_available(partial(self._api.stage, frame.page), "declare")
            frame = await runner.link.receive()
        if not isinstance(frame, ProjectLoaded):
            return RunnerExit(f"The runner ended with {await runner.ended()} before it had declared the project.")
        project, declared = frame.project, DeclareProject.model_validate_json(frame.declaration)
        await retry_until_available(lambda: self._api.declare(project, declared), "declare")
        return None

    async def _farewell(self, tenure: RunnerSession, end: RunnerExit) -> None:
        """Say how it ended, while the old job's epochs still count."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                if end.culprit is not None:
                    await self._accuse(tenure, end.culprit, end.reason)
                await self._api.heartbeat(tenure.heartbeat())
                await self._api.complete(CompleteJob(state="succeeded" if end.asked else "failed", reason=end.reason))
        except (ApiError, TimeoutError) as trouble:
            self._log.warning("the job's end is not recorded, it will expire", error=str(trouble))
        else:
            self._log.info("job completed", reason=end.reason)

    async def _accuse(self, tenure: RunnerSession, culprit: BlamedTrigger, reason: str) -> None:
        epoch = tenure.epochs.get(culprit.trigger_id, 0)
        failure = TriggerFailure(epoch=epoch, type=culprit.type, message=reason, blocked=culprit.blocked, traceback=list(culprit.stack))
        verdict = await self._api.failure(culprit.trigger_id, failure)
        running = tenure.running(culprit.trigger_id)
        with log_as(running):  # nobody else writes its log any more: its runner is gone
            self._log.error(
                "trigger failed with its runner",
                trigger=running.name,
                error=f"{culprit.type}: {reason}",
                verdict=verdict.verdict,
                stack="\n".join(culprit.stack),
            )


async def _unless(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
    """Return what `work` comes to; None: `stop` was set before."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait({working, stopping})
