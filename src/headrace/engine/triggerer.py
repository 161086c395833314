"""One triggerer: registers a job, holds leases, runs their triggers, says that it lives, and ends in order."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import structlog

from headrace.engine.backoff import Backoff
from headrace.engine.leases import Leases
from headrace.engine.outbox import Outbox
from headrace.engine.reports import stream_report
from headrace.engine.runner import Limits, Runner
from headrace.engine.uploader import Uploader
from headrace.errors import ApiError, ApiUnavailable, Fenced
from headrace.logs.structured import bind_process
from headrace.ports.control_plane import TriggererControl
from headrace.wire.jobs import CompleteJob, Heartbeat, RegisterJob
from headrace.wire.triggers import DeclareProject, TriggerFailure

T = TypeVar("T")

_CAPACITY = 10_000  # triggers
_QUEUES = ["default"]
_LAST_WORDS = 5.0  # seconds to say goodbye in


@dataclass(frozen=True)
class Identity:
    """Who this process is to the api."""

    job: RegisterJob
    declared: DeclareProject


class Triggerer:
    """Runs until told to stop. When its job is declared dead (it was silent for too long), it begins again as a new one."""

    def __init__(
        self, api: TriggererControl, identity: Identity, next_registration: Callable[[], str], limits: Limits | None = None
    ) -> None:
        self._api = api
        self._limits = limits or Limits()
        self._identity = identity
        self._next_registration = next_registration
        self._log = structlog.get_logger(__name__)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""
        job = self._identity.job
        while not stop.is_set():
            try:
                await self._one_job(job, stop)
            except ExceptionGroup as group:
                fault = _first(group)
                if not isinstance(fault, Fenced):
                    raise fault from group
                self._log.warning("this job is over, beginning a new one", reason=str(fault))
                job = job.model_copy(update={"registration_id": self._next_registration(), "replaces": job.registration_id})

    async def _one_job(self, job: RegisterJob, stop: asyncio.Event) -> None:
        registered = await self._insist(lambda: self._api.register(job), stop)
        if registered is None:
            return
        bind_process(job=registered.job_id)
        self._log.info("job registered", job=registered.job_id, project=job.project)
        await self._insist(lambda: self._api.declare(job.project, self._identity.declared), stop)
        leases, outbox = Leases(), Outbox()
        report = _Failures(self._api, leases)
        async with asyncio.TaskGroup() as group:
            async with Runner(self._api, leases, outbox, report, self._limits) as runner:
                uploader = Uploader(self._api, outbox, runner.hub, leases.epochs)
                uploading = group.create_task(uploader.run(), name="uploader")
                beating = group.create_task(self._beat(runner, uploader, leases, registered.heartbeat, stop), name="heartbeat")
                await stop.wait()
                beating.cancel()
                self._log.info("stopping", queued=len(outbox))
            # the streams are closed now: what was confirmed is advanced, and the broker gives the rest again
            await self._farewell(runner)
            uploading.cancel()

    async def _farewell(self, runner: Runner) -> None:
        try:
            async with asyncio.timeout(_LAST_WORDS):
                await self._api.heartbeat(_heartbeat(runner))
                await self._api.complete(CompleteJob(state="succeeded"))
        except (ApiUnavailable, TimeoutError) as trouble:
            self._log.warning("the job's end is not recorded, it will expire", error=str(trouble))
        else:
            self._log.info("job completed")

    async def _beat(self, runner: Runner, uploader: Uploader, leases: Leases, every: float, stop: asyncio.Event) -> None:
        """Say that the job lives, and follow what the api answers."""
        while not stop.is_set():
            try:
                # Each time: a trigger that is new, or whose job has died, is nobody's until somebody asks.
                await self._load(runner, uploader, leases)
                answer = await self._api.heartbeat(_heartbeat(runner))
                runner.drain(answer.backlogs)
            except ApiUnavailable as trouble:
                self._log.warning("heartbeat not heard", error=str(trouble))
            else:
                if answer.wanted != "run":
                    self._log.info("the api wants this job to end", wanted=answer.wanted)
                    stop.set()
            await _either(stop, every)

    async def _load(self, runner: Runner, uploader: Uploader, leases: Leases) -> None:
        """Claim what there is to claim, and run what is held: no more and no less."""
        loaded = await self._api.load(_CAPACITY, _QUEUES)
        start, stop = leases.changes(loaded.leases)
        # Asked before anything changes here: an api that fails now is asked all of it again with the next beat.
        workloads = await self._api.workloads(start) if start else []
        leases.replace(loaded.leases)
        await runner.stop(stop, again=start)
        if workloads:
            self._log.info("triggers loaded", triggers=len(workloads))
            await runner.start(workloads)
        if start or stop:
            uploader.again()

    async def _insist(self, call: Callable[[], Awaitable[T]], stop: asyncio.Event) -> T | None:
        """Make a call until the api answers; None: told to stop before it did."""
        backoff = Backoff()
        while not stop.is_set():
            try:
                return await call()
            except ApiUnavailable as trouble:
                wait = backoff.next(trouble.retry_after)
                self._log.warning("api unavailable, trying again", error=str(trouble), retry_in=round(wait, 2))
                await _either(stop, wait)
        return None


class _Failures:
    """Tells the api which trigger failed, and why."""

    def __init__(self, api: TriggererControl, leases: Leases) -> None:
        self._api = api
        self._leases = leases
        self._log = structlog.get_logger(__name__)

    async def __call__(self, trigger_id: int, error: BaseException) -> None:
        lines = "".join(traceback.format_exception(error)).splitlines()
        self._log.error("trigger failed", trigger=trigger_id, error=f"{type(error).__name__}: {error}")
        failure = TriggerFailure(
            epoch=self._leases.epoch(trigger_id), kind=type(error).__name__, message=str(error), traceback=lines[-100:]
        )
        try:
            await self._api.failure(trigger_id, failure)
        except ApiError as trouble:  # if it is that this job is over, the heartbeat learns it too and ends the job
            self._log.warning("failure not recorded", trigger=trigger_id, error=str(trouble))


def _first(error: Exception) -> Exception:
    """Return the first exception in nested groups: what went wrong before the rest was cancelled."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _heartbeat(runner: Runner) -> Heartbeat:
    return Heartbeat(streams=[stream_report(runner.hub.statistics(key)) for key in runner.streams])


async def _either(stop: asyncio.Event, seconds: float) -> None:
    """Wait for `stop`, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
