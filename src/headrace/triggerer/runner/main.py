"""The runner's process: the loop in which users' code runs. It knows the api through its supervisor only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from headrace.errors import Fenced
from headrace.ports.triggerer_api import TriggererApi
from headrace.triggerer.gc_freeze import made_to_stay
from headrace.triggerer.ipc.api_calls import ApiCalls
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.messages import (
    CallFailed,
    CallSucceeded,
    Drain,
    Drained,
    Frame,
    JobOver,
    Report,
    RunTriggers,
    Stopped,
    Workload,
)
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.outbox.uploader import Uploader
from headrace.triggerer.process_pools.producer_pool import ProducerProcesses
from headrace.triggerer.process_pools.trigger_pool import TriggerProcesses
from headrace.triggerer.runner.failure_reporter import FailureReporter
from headrace.triggerer.runner.instructions import Instructions
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.runner.runner import Limits, Runner
from headrace.triggerer.runner.stream_reports import heartbeat
from headrace.triggerer.side_by_side import until_one_ends
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.wire.control.triggers import RunTrigger, Workloads

_HANDOVER = 10.0  # seconds in which what is under way on a stream is resolved before the stream is given away


class RunnerMain:
    """Does what the supervisor says until it says to drain, or is gone.

    `api` sends through `calls`. When the supervisor is gone, nothing that was not confirmed can be advanced any more: no answer comes.
    """

    def __init__(
        self,
        link: Channel,
        calls: ApiCalls,
        api: TriggererApi,
        limits: Limits,
        pulse: SharedHeartbeat,
        start_process: Callable[[], Awaitable[RunnerProcess]],
    ) -> None:
        self._start_process = start_process
        self._link = link
        self._calls = calls
        self._api = api
        self._limits = limits
        self._pulse = pulse
        self._orders = Instructions()
        self._log = structlog.get_logger(__name__)

    async def run(self, report_every: float) -> None:
        """Work; return when everything has stopped."""
        leases, outbox = Leases(), Outbox()
        failures = FailureReporter(self._api, leases)
        processes = TriggerProcesses(self._start_process, self._calls, outbox, self._limits.patience)
        producers = ProducerProcesses(self._start_process, self._calls, self._limits.patience)
        runner = Runner(self._api, leases, outbox, failures, failures.stream, self._limits, processes, producers, self._pulse)
        uploader = Uploader(self._api, outbox, runner.hub, leases.epochs)
        await until_one_ends(
            {
                "supervisor's words": self._listen(),
                "supervisor's orders": self._work(runner, uploader, leases, outbox),
                "uploader": self._upload(uploader),
                "reports": self._report(runner, report_every),
            }
        )

    async def _listen(self) -> None:
        while (frame := await self._link.receive()) is not None:
            self._hear(frame)
        # nothing of this process may outlive its supervisor: another triggerer may have its leases already

    def _hear(self, frame: Frame) -> None:
        if isinstance(frame, CallSucceeded | CallFailed):
            self._calls.answered(frame)
        elif isinstance(frame, Workload | RunTriggers | Drain):
            self._orders.put(frame)

    async def _work(self, runner: Runner, uploader: Uploader, leases: Leases, outbox: Outbox) -> None:
        async with runner:
            while isinstance(order := await self._orders.get(), RunTriggers):
                await self._hold(order, runner, uploader, leases)
            await self._drain(runner, outbox, order.seconds)
        # the streams are closed now: what was confirmed is advanced, and the broker gives the rest again
        await self._link.send(Report(await heartbeat(runner.hub, runner.streams, runner.blocked)))
        await self._link.send(Drained())

    async def _hold(self, held: RunTriggers, runner: Runner, uploader: Uploader, leases: Leases) -> None:
        """Run what is held now, and no more what is gone; say what has stopped."""
        start, stop = leases.changes(held.epochs, held.gone)
        gone = [one for one in stop if one not in held.epochs]
        # First of all: what names a trigger that only changed is stored under its new epoch, and what names one that goes under its
        # last, which counts until it is said to have stopped. Nothing would come to rest while they are fenced.
        leases.update(held.epochs, held.gone)
        if start or stop:
            uploader.again()
        if gone:
            self._log.info("stopping triggers that are given back", triggers=len(gone))
            await self._within(_HANDOVER, runner, gone)
        stopped = leases.epochs([*gone, *(one for one in held.cleanup if one not in gone)])
        if stop:
            await runner.stop(stop, again=start, dropped=held.dropped)
        with made_to_stay(len(start)):
            found: dict[int, RunTrigger] = {}
            for page in held.workloads:
                found |= {one.trigger_id: one for one in Workloads.model_validate_json(page).workloads}
                await asyncio.sleep(0)
            # Where instructions were taken together, one may name what the next has taken away.
            if workloads := [found[one] for one in start if one in found]:
                await runner.start(workloads)
                self._log.info("triggers started", triggers=len(workloads))
        # With these words their last epochs end: what names one and is still to be stored would be fenced permanently, and with it whatever
        # else fired on it. The api asks again with each heartbeat.
        over = {one: stopped[one] for one in stopped.keys() - uploader.unanswered(stopped)}
        if over:
            await self._link.send(Stopped(over))
        runner.drain(held.backlogs)
        leases.forget(uploader.unanswered(leases.gone()))
        uploader.drop_stale()

    async def _drain(self, runner: Runner, outbox: Outbox, seconds: float) -> None:
        self._log.info("reading stopped; finishing events in flight", queued=len(outbox))
        if await self._within(seconds, runner, None):
            self._log.info("all that was read is done")

    async def _within(self, seconds: float, runner: Runner, trigger_ids: Iterable[int] | None) -> bool:
        """Stop the streams of these triggers and store what they fired; return whether that ended in time."""
        try:
            async with asyncio.timeout(seconds):
                await runner.quiesce(trigger_ids)
                await self._calls.wait_idle()
        except TimeoutError:
            self._log.warning("not all that was read is done in time: the upstream gives the rest again", seconds=seconds)
            return False
        return True

    async def _upload(self, uploader: Uploader) -> None:
        try:
            await uploader.run()
        except Fenced as fenced:
            await self._link.send(JobOver(str(fenced)))
            await asyncio.Event().wait()  # the supervisor ends this process: nothing of the old job may go on

    async def _report(self, runner: Runner, every: float) -> None:
        while True:
            await self._link.send(Report(await heartbeat(runner.hub, runner.streams, runner.blocked)))
            await asyncio.sleep(every)
