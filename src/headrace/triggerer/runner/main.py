"""Main loop of the runner, the process in which users' code is imported. It calls the API only through its supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from headrace.errors import Fenced
from headrace.ports.triggerer_api import TriggererApi
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
from headrace.triggerer.runner.dead_letter_copier import DeadLetterCopiers, MakeSender, no_sender
from headrace.triggerer.runner.failure_reporter import FailureReporter
from headrace.triggerer.runner.instructions import Instructions
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.runner.placement.loaded_trigger import LoadedTrigger
from headrace.triggerer.runner.runner import Limits, Runner
from headrace.triggerer.runner.stream_reports import heartbeat
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.task_groups import run_until_first_ends
from headrace.wire.control.triggers import RunTrigger, Workloads

_HANDOVER_SECONDS = 10.0  # seconds in which raw events in flight are resolved before their stream is handed over


class RunnerMain:
    """Executes the supervisor's instructions until `Drain`, or until the supervisor ends.

    `api` sends through `calls`. After the supervisor has ended, no call gets an answer, so nothing more is confirmed or
    advanced.
    """

    def __init__(
        self,
        link: Channel,
        calls: ApiCalls,
        api: TriggererApi,
        limits: Limits,
        heartbeat: SharedHeartbeat,
        start_process: Callable[[], Awaitable[RunnerProcess]],
        make_sender: MakeSender = no_sender,
    ) -> None:
        self._make_sender = make_sender
        self._start_process = start_process
        self._link = link
        self._calls = calls
        self._api = api
        self._limits = limits
        self._heartbeat = heartbeat
        self._instructions = Instructions()
        self._log = structlog.get_logger(__name__)

    async def run(self, report_seconds: float) -> None:
        """Run until everything has stopped."""
        leases, outbox = Leases(), Outbox()
        failures = FailureReporter(self._api, leases)
        processes = TriggerProcesses(self._start_process, self._calls, outbox, self._limits.watchdog)
        producers = ProducerProcesses(self._start_process, self._calls, self._limits.watchdog)
        copiers = DeadLetterCopiers(self._api, self._make_sender)
        runner = Runner(self._api, leases, outbox, failures, failures.stream, self._limits, processes, producers, self._heartbeat, copiers)
        uploader = Uploader(self._api, outbox, runner.manager, leases.epochs, copiers.wake)
        await run_until_first_ends(
            {
                "supervisor's words": self._listen(),
                "supervisor's orders": self._work(runner, uploader, leases, outbox),
                "uploader": self._upload(uploader),
                "reports": self._report(runner, report_seconds),
            }
        )

    async def _listen(self) -> None:
        while (frame := await self._link.receive()) is not None:
            self._handle(frame)
        # This process must not outlive its supervisor: another triggerer may have the leases already.

    def _handle(self, frame: Frame) -> None:
        if isinstance(frame, CallSucceeded | CallFailed):
            self._calls.complete(frame)
        elif isinstance(frame, Workload | RunTriggers | Drain):
            self._instructions.put(frame)

    async def _work(self, runner: Runner, uploader: Uploader, leases: Leases, outbox: Outbox) -> None:
        async with runner:
            while isinstance(instruction := await self._instructions.get(), RunTriggers):
                await self._apply_leases(instruction, runner, uploader, leases)
            await self._drain(runner, outbox, instruction.seconds)
        # The streams are closed now. Confirmed raw events are advanced, and the broker delivers the others again.
        await self._link.send(Report(await heartbeat(runner.manager, runner.streams, runner.blocked, runner.copiers)))
        await self._link.send(Drained())

    async def _apply_leases(self, leased: RunTriggers, runner: Runner, uploader: Uploader, leases: Leases) -> None:
        """Run the leased triggers, stop the released ones, and confirm the stopped ones."""
        start, stop = leases.changes(leased.epochs, leased.released)
        released = [one for one in stop if one not in leased.epochs]
        # Update the leases first. Items of triggers that only changed are stored under their new epochs, items of
        # released ones under their last epochs, which are valid until the triggers are confirmed as stopped. The
        # streams could not quiesce while these items are fenced.
        leases.update(leased.epochs, leased.released)
        if start or stop:
            uploader.resend_fenced()
        loaded = await self._load(leased, start, runner)
        moved = runner.moved(loaded)
        if released or moved:
            self._log.info("stopping released and moved triggers", released=len(released), moved=len(moved))
            await self._quiesce_within(_HANDOVER_SECONDS, runner, [*released, *moved])
        stopped = leases.stopped(released, leased.cleanup)
        if stop:
            # A moved trigger stays leased, so it is not confirmed as stopped, but it does not stay at its old stream.
            await runner.stop(stop, again=set(start).difference(moved), dropped=leased.dropped)
        if loaded:
            await runner.begin(loaded)
            self._log.info("triggers started", triggers=len(loaded))
        # After this message the old epochs are invalid: items still queued under them would be fenced permanently, and
        # with them all other triggers that fired on the same events. The API requests the confirmation again with each
        # heartbeat.
        confirmed = {one: stopped[one] for one in stopped.keys() - uploader.pending_triggers(stopped)}
        if confirmed:
            await self._link.send(Stopped(confirmed))
        runner.drain(leased.backlogs)
        leases.drop_released(uploader.pending_triggers(leases.released()))
        uploader.drop_stale()

    async def _load(self, leased: RunTriggers, start: Iterable[int], runner: Runner) -> list[LoadedTrigger]:
        """Load the triggers to start."""
        workloads_by_id: dict[int, RunTrigger] = {}
        for page in leased.workloads:
            workloads_by_id |= {one.trigger_id: one for one in Workloads.model_validate_json(page).workloads}
            await asyncio.sleep(0)
        # If instructions were merged, one may name a trigger that a later one released.
        return await runner.load(workloads_by_id[one] for one in start if one in workloads_by_id)

    async def _drain(self, runner: Runner, outbox: Outbox, seconds: float) -> None:
        self._log.info("reading stopped; finishing events in flight", queued=len(outbox))
        if await self._quiesce_within(seconds, runner, None):
            self._log.info("events in flight finished")

    async def _quiesce_within(self, seconds: float, runner: Runner, trigger_ids: Iterable[int] | None) -> bool:
        """Quiesce the streams of these triggers and store their events; return whether that finished in time."""
        try:
            async with asyncio.timeout(seconds):
                await runner.quiesce(trigger_ids)
                await self._calls.wait_idle()
        except TimeoutError:
            self._log.warning("events in flight not finished in time; the upstream redelivers them", seconds=seconds)
            return False
        return True

    async def _upload(self, uploader: Uploader) -> None:
        try:
            await uploader.run()
        except Fenced as fenced:
            await self._link.send(JobOver(str(fenced)))
            await asyncio.Event().wait()  # the supervisor ends this process: nothing of the old job may continue

    async def _report(self, runner: Runner, interval_seconds: float) -> None:
        while True:
            await self._link.send(Report(await heartbeat(runner.manager, runner.streams, runner.blocked, runner.copiers)))
            await asyncio.sleep(interval_seconds)
