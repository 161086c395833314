"""One trigger process, as the runner sees it: what it is told, what it says, and when it is silent or gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.messages import Call, Frame, ProjectInvalid
from headrace.triggerer.ipc.trigger_messages import Command, Commands, Ended, Ready, Release, Released, Steps
from headrace.triggerer.process_pools.turn import Batch, ProcessTurn
from headrace.triggerer.supervisor.api_proxy import ApiProxy, Forwarder
from headrace.triggerer.supervisor.runner_exit import ended
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.supervisor.watchdog import LoopWatchdog
from headrace.wire.control.jobs import Blocked

MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
"""While so many bytes wait for a process, raw events stay on the books of this one."""

MAX_BATCH_BYTES: Final = 32 * 1024 * 1024
"""No turn adds to a batch that has so many bytes: a frame has a largest size, and each turn may add its largest raw events."""

_LAST_CALLS: Final = 1.0  # seconds that the calls of a process have to end when it is gone

log = structlog.get_logger(__name__)


class Owner(Protocol):
    """Is told what becomes of a process."""

    def is_ready(self, process: TriggerProcess) -> None:
        """The project is imported there."""
        ...

    def is_silent(self, process: TriggerProcess, seconds: float) -> None:
        """Its loop has not turned for so long."""
        ...

    def is_lost(self, process: TriggerProcess, reason: str, culprit: int | None, blocked: Blocked | None) -> None:
        """It is gone; `culprit`: the trigger whose code ran, `blocked`: it was ended for this."""
        ...

    def took_steps(self) -> None:
        """Its triggers may have fired."""
        ...


class TriggerProcess:
    """Runs the turns of its `members`. What it is told before it is ready waits."""

    def __init__(
        self,
        start: Callable[[], Awaitable[RunnerProcess]],
        api: Forwarder,
        owner: Owner,
        patience: WatchdogPolicy,
        name: Callable[[int], str],
        changed: Callable[[], None],
    ) -> None:
        self._start = start
        self._api = api
        self._owner = owner
        self._patience = patience
        self._name = name
        self._changed = changed
        self.members: set[int] = set()
        self.turns: dict[int, ProcessTurn] = {}
        self.began = asyncio.get_running_loop().time()
        self.ready = False
        self._has_low_priority = False
        self._releases: dict[int, asyncio.Future[Failure | None]] = {}
        self._commands: list[Command] = []
        self._woken: dict[ProcessTurn, None] = {}
        self._flushing = False
        self._process: RunnerProcess | None = None
        self._watchman: LoopWatchdog | None = None
        self._flushed: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run(), name="trigger process")

    @property
    def blocked(self) -> Blocked | None:
        """What blocks it now."""
        return None if self._watchman is None else self._watchman.blocked

    @property
    def is_blocked(self) -> bool:
        """Whether its loop does not turn."""
        return self.blocked is not None

    @property
    def running(self) -> int | None:
        """The trigger whose code holds its loop now."""
        return None if self._process is None else self._process.pulse.running

    def lower_priority(self) -> None:
        """Lower the priority of the process from now on."""
        if self._process is not None and not self._has_low_priority:
            self._has_low_priority = True
            self._process.lower_priority()

    def send(self, command: Command) -> None:
        """Send a command, in time, after those before it."""
        self._commands.append(command)
        self._flush_soon()

    def wake(self, turn: ProcessTurn) -> None:
        """Ask the turn, in time, what there is to deliver."""
        self._woken[turn] = None
        self._flush_soon()

    async def release(self, trigger_id: int, workload: bytes | None, *, seconds: float) -> tuple[bool, Failure | None]:
        """Remove a trigger from the process and clean it up; return whether that ended in time, and how it failed.

        A blocked process is not waited for.
        """
        released = self._releases[trigger_id] = asyncio.get_running_loop().create_future()
        self.members.discard(trigger_id)
        self.send(Release(trigger_id, workload))
        if self.is_blocked:
            seconds = 0.0
        try:
            async with asyncio.timeout(seconds):
                return True, await released
        except TimeoutError:
            return False, None
        finally:
            self._releases.pop(trigger_id, None)

    async def close(self) -> None:
        """End it at once."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        lost: tuple[str, int | None, Blocked | None]
        try:
            self._process = process = await self._start()
            try:
                lost = await self._live(process)
            finally:
                await process.close()
        except Exception as error:  # a fault of ours must not leave its triggers standing
            log.exception("a trigger process is given up")
            lost = str(error), None, None
        self._lost(*lost)

    async def _live(self, process: RunnerProcess) -> tuple[str, int | None, Blocked | None]:
        """Return how it was lost."""
        self._watchman = LoopWatchdog(process, self._patience, self._name, self._changed, self._silent)
        watching = asyncio.create_task(self._watchman.run())
        listening = asyncio.create_task(self._listen(process))
        try:
            await asyncio.wait({watching, listening}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                blocked = watching.result()
                return f"The process was blocked for {blocked.seconds:.0f} s.", blocked.trigger_id, blocked
            return listening.result() or ended(await process.ended()), process.pulse.running, None
        finally:
            watching.cancel()
            listening.cancel()
            await asyncio.wait({watching, listening})

    def _lost(self, reason: str, culprit: int | None, blocked: Blocked | None) -> None:
        self._process = None
        for released in self._releases.values():
            if not released.done():
                released.set_result(None)
        self._owner.is_lost(self, reason, culprit, blocked)

    async def _listen(self, process: RunnerProcess) -> str:
        """Take what it says, until it is gone; return why, where it said so."""
        relay, reason = ApiProxy(self._api, process.link), ""
        try:
            while (frame := await process.link.receive()) is not None:
                if isinstance(frame, ProjectInvalid):
                    reason = frame.message
                elif isinstance(frame, Call):
                    await relay.forward(frame)
                else:
                    self._hear(frame)
        finally:
            await relay.close(_LAST_CALLS)
        return reason

    def _hear(self, frame: Frame) -> None:
        if isinstance(frame, Ready):
            self.ready = True
            self._flush_soon()
            self._owner.is_ready(self)
        elif isinstance(frame, Steps):
            for step in frame.steps:
                if isinstance(step, Released):
                    self._released(step)
                elif (turn := self.turns.get(step.turn)) is not None:
                    if isinstance(step, Ended):
                        del self.turns[step.turn]
                    turn.take(step)
            self._owner.took_steps()

    def _released(self, step: Released) -> None:
        released = self._releases.get(step.trigger_id)
        if released is not None and not released.done():
            released.set_result(step.failure)

    def _silent(self, seconds: float) -> None:
        self._owner.is_silent(self, seconds)

    def _flush_soon(self) -> None:
        if self.ready and not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        process = self._process
        self._flushing = False
        if process is None or not (self._commands or self._woken):
            return
        batch = Batch()
        if process.link.queued < MAX_QUEUED_BYTES:
            while self._woken and batch.size < MAX_BATCH_BYTES:
                turn = next(iter(self._woken))
                del self._woken[turn]
                if turn.number in self.turns:
                    turn.fill(batch)
        commands, self._commands = self._commands, []
        if commands or batch.delivered:
            process.link.post(Commands(commands, batch.raws, batch.delivered))
        if self._woken:
            self._flushing = True
            self._flushed = asyncio.create_task(self._flush_later(process), name="trigger process reads")

    async def _flush_later(self, process: RunnerProcess) -> None:
        await process.link.flushed()
        self._flushing = False
        self._flush_soon()
