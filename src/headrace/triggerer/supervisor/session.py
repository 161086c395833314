"""One job and its runner, from the first claim to the end: they begin and end together.

The law: what a runner may still have sent when it died is stored under its own job, or not at all. The next runner has a job of its own,
whose leases have new epochs.
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
from headrace.triggerer.gc_freeze import made_to_stay
from headrace.triggerer.ipc.messages import Call, Drain, Drained, Frame, JobOver, Report, RunTriggers, Stopped, Workload
from headrace.triggerer.supervisor.api_proxy import ApiProxy
from headrace.triggerer.supervisor.held_leases import HeldLeases
from headrace.triggerer.supervisor.runner_exit import RunnerExit, died, stuck
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.supervisor.watchdog import LoopWatchdog
from headrace.wire.control.jobs import Heartbeat, HeartbeatAnswer, JobRegistered, Wanted

_PAGE = 500  # workloads in one call: they are read in one piece, also in the runner, where nothing else runs meanwhile

_CLEANED = 5_000  # triggers that one call gives back

_ASKED = RunnerExit("Stopped on request.", asked=True)

_OF_ITS_CONTENT = frozenset({400, 413, 422})  # statuses of refusals that are about what was sent, not about who sent it

_CLOSING = 5.0  # seconds that upstreams have to close in, once nothing is under way any more


@dataclass(frozen=True)
class CapacityPolicy:
    """How many triggers this triggerer takes, and of which queues."""

    capacity: int = 20_000
    queues: tuple[str, ...] = ("default",)


class ShutdownRequest:
    """What this process was told: to end (`stop`), and to be quick about it (`hurry`)."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()

    def told(self) -> None:
        """Take one signal: the first says stop, the second hurry."""
        (self.hurry if self.stop.is_set() else self.stop).set()


class RunnerSession:
    """Claims, heartbeats and the relay for one runner under one job."""

    def __init__(
        self,
        api: TriggererApi,
        runner: RunnerProcess,
        job: JobRegistered,
        share: CapacityPolicy,
        patience: WatchdogPolicy,
        drain_seconds: float,
    ) -> None:
        self._api = api
        self._runner = runner
        self._job = job
        self._share = share
        self._drain_seconds = drain_seconds
        self._relay = ApiProxy(api, runner.link)
        self._watchman = LoopWatchdog(runner, patience, self._name, self._wake)
        self._running: dict[int, TriggerContext] = {}
        self._holding = HeldLeases()
        self.epochs: dict[int, int] = {}
        """What the runner was told to run."""
        self._beat_now = asyncio.Event()
        self._drained = asyncio.Event()
        self._reported = Heartbeat()
        self._log = structlog.get_logger(__name__)

    async def run(self, orders: ShutdownRequest) -> RunnerExit:
        """Work until there is a reason to end."""
        work: list[Coroutine[Any, Any, RunnerExit]] = [
            self._listen(orders),
            self._live(orders),
            self._watch(),
            self._reap(orders),
            self._obey(orders),
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
        """End the runner, and let its calls that are under way come to their end."""
        self._runner.kill()
        await self._relay.close(seconds)

    def heartbeat(self) -> Heartbeat:
        """Return what there is to say: what the runner reported last, and what blocks it, or else one of its trigger processes."""
        return self._reported.model_copy(update={"blocked": self._watchman.blocked or self._reported.blocked, "leases": False})

    async def _listen(self, orders: ShutdownRequest) -> RunnerExit:
        while (frame := await self._runner.link.receive()) is not None:
            if isinstance(frame, JobOver):
                return RunnerExit(frame.reason, lost=True)
            await self._hear(frame)
        return self._over(await self._runner.ended(), orders)

    async def _hear(self, frame: Frame) -> None:
        match frame:
            case Call():
                await self._relay.forward(frame)
            case Report(heartbeat):
                self._report(heartbeat)
            case Stopped(epochs):
                await self._give_back(epochs)
            case Drained():
                self._drained.set()

    def _report(self, heartbeat: bytes) -> None:
        try:
            self._reported = Heartbeat.model_validate_json(heartbeat)
        except ValidationError as error:
            self._log.error("report not understood", error=str(error))

    async def _give_back(self, epochs: dict[int, int]) -> None:
        stopped = list(epochs.items())
        try:
            for at in range(0, len(stopped), _CLEANED):
                part = dict(stopped[at : at + _CLEANED])
                await retry_until_available(partial(self._api.cleanup, list(part), part), "cleanup")
        except Fenced as fenced:
            self._log.warning("triggers not given back: the job is over", reason=str(fenced))
        else:
            self._log.info("triggers given back", triggers=len(epochs))

    async def _live(self, orders: ShutdownRequest) -> RunnerExit:
        """Say that the job lives, and follow what the api answers. It does so whatever the runner does."""
        while True:
            self._beat_now.clear()
            try:
                if not orders.stop.is_set():
                    await self._claim()
                answer = await self._beat()
            except ApiUnavailable as trouble:
                self._log.warning("heartbeat failed", error=str(trouble))
            except Fenced as fenced:
                return RunnerExit(str(fenced), lost=True)
            else:
                self._want(answer.wanted, orders)
                await self._tell_backlogs(answer.backlogs)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._job.heartbeat):
                    await self._beat_now.wait()

    async def _beat(self) -> HeartbeatAnswer:
        """Send a heartbeat; where the api refuses what it reports, one without that: the job lives all the same."""
        beat = self.heartbeat()
        try:
            return await self._api.heartbeat(beat)
        except ApiRefused as refused:
            if refused.status not in _OF_ITS_CONTENT:
                raise
            self._log.error("report refused", error=str(refused), hint=refused.hint, streams=len(beat.streams))
        return await self._api.heartbeat(Heartbeat(blocked=beat.blocked, leases=False))

    def _want(self, wanted: Wanted, orders: ShutdownRequest) -> None:
        if wanted == "run" or orders.stop.is_set():
            return
        self._log.info("the api wants this job to end", wanted=wanted)
        orders.stop.set()
        if wanted == "stop":
            orders.hurry.set()

    async def _claim(self) -> None:
        """Claim what there is to claim; have the runner run what is held, no more and no less."""
        # Each time: a trigger that is new, or whose job has died, is nobody's until somebody asks.
        while True:
            loaded = await self._api.load(self._share.capacity, list(self._share.queues), self._holding.revision)
            self._holding.update(loaded)
            if not loaded.more:
                break
        due = self._holding.due(self.epochs)
        if not due.start and not due.stop and not self._holding.revoked:
            self._holding.done()
            return
        with made_to_stay(len(due.start)):
            started = await self._fetch(due.start)
        # One whose workload did not come is held no more, or is again: the next answer says which.
        missing = [one for one in due.start if one not in started]
        gone = [*due.stop, *(one for one in missing if one in self.epochs)]
        for one in gone:
            del self.epochs[one]
            self._running.pop(one, None)
        self.epochs.update(started)
        self._holding.done(again=missing)
        revoked = list(self._holding.revoked)
        self._log.info("triggers held", triggers=len(self.epochs), new=len(started), revoked=len(revoked))
        await self._runner.link.send(RunTriggers(started, gone, [], revoked, {}, self._holding.dropped()))

    async def _fetch(self, trigger_ids: list[int]) -> dict[int, int]:
        """Pass the workloads of these triggers on to the runner, in pages; return the triggers of those that came, with their epochs."""
        started: dict[int, int] = {}
        for at in range(0, len(trigger_ids), _PAGE):
            page = await self._api.workloads(trigger_ids[at : at + _PAGE])
            self._running.update((one.trigger_id, TriggerContext(one.trigger_id, one.name, one.log_name)) for one in page.triggers)
            started.update(self._holding.epochs(one.trigger_id for one in page.triggers))
            await self._runner.link.send(Workload(page.content))
        return started

    async def _tell_backlogs(self, backlogs: dict[int, int]) -> None:
        if backlogs:
            await self._runner.link.send(RunTriggers(backlogs=backlogs))

    async def _watch(self) -> RunnerExit:
        blocked = await self._watchman.run()
        self._log.error("the runner is stuck, ending it", trigger=blocked.trigger, seconds=round(blocked.seconds))
        return stuck(blocked)

    async def _reap(self, orders: ShutdownRequest) -> RunnerExit:
        return self._over(await self._runner.ended(), orders)

    def _over(self, code: int, orders: ShutdownRequest) -> RunnerExit:
        """Return how it ended. A runner that drained ends by itself, which may be seen before its last words are heard."""
        if code == 0 and orders.stop.is_set():
            return _ASKED
        return died(code, self._runner.pulse.running)

    async def _obey(self, orders: ShutdownRequest) -> RunnerExit:
        await orders.stop.wait()
        self._log.info("stopping after events in flight; a second signal ends it at once")
        await self._runner.link.send(Drain(self._drain_seconds))
        hurrying = asyncio.create_task(orders.hurry.wait())
        drained = asyncio.create_task(self._drained.wait())
        try:
            # It has some time more than for what is under way: upstreams want to be closed.
            await asyncio.wait({hurrying, drained}, timeout=self._drain_seconds + _CLOSING, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurrying.cancel()
            drained.cancel()
        if not self._drained.is_set():
            self._log.warning("not everything has stopped in order: the upstreams give again what was not confirmed")
        return _ASKED

    def running(self, trigger_id: int) -> TriggerContext:
        """Return a trigger as the runner was told to run it."""
        return self._running.get(trigger_id) or TriggerContext(trigger_id, str(trigger_id), "")

    def _name(self, trigger_id: int) -> str:
        return self.running(trigger_id).name

    def _wake(self) -> None:
        self._beat_now.set()
