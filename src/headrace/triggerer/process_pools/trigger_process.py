"""The runner's side of one trigger process: sends commands, handles steps, detects blocking and exit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final, Protocol

import structlog

from headrace.triggerer.cooperative_yield import CooperativeYield
from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.messages import Call, Frame, ProjectInvalid
from headrace.triggerer.ipc.trigger_messages import Command, Commands, Ended, Ready, Release, Released, Steps
from headrace.triggerer.process_pools.turn import Batch, ProcessTurn
from headrace.triggerer.supervisor.api_proxy import ApiProxy, Forwarder
from headrace.triggerer.supervisor.runner_exit import exit_reason
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.supervisor.watchdog import LoopWatchdog
from headrace.wire.control.jobs import Blocked

MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
"""While this many bytes wait for a process, no more raw events are sent to it."""

MAX_BATCH_BYTES: Final = 32 * 1024 * 1024
"""No turn adds to a batch of this size: the frame size is limited, and each turn may add its largest raw events."""

MAX_FRAME_COMMANDS: Final = 1_000
"""Commands in one frame. Between two frames, the loops of both processes serve other tasks."""

MAX_FILLED_TURNS: Final = 256
"""Turns that fill one batch."""

_CALLS_SECONDS: Final = 1.0  # seconds in which API calls of a process that ended can finish

log = structlog.get_logger(__name__)


class Owner(Protocol):
    """Receives the state changes of a process."""

    def on_ready(self, process: TriggerProcess) -> None:
        """Handle that the process has imported the project."""
        ...

    def on_stalled(self, process: TriggerProcess, seconds: float) -> None:
        """Handle that the loop of the process has not turned for `seconds`. Called at each check."""
        ...

    def on_lost(self, process: TriggerProcess, reason: str, blamed: int | None, blocked: Blocked | None) -> None:
        """Handle the end of a process. `blamed`: the trigger whose code ran. `blocked`: the block for which it was killed."""
        ...

    def on_steps(self) -> None:
        """Handle that triggers of the process may have fired."""
        ...


class TriggerProcess:
    """Runs the turns of its `members`. Commands wait until the process is ready."""

    def __init__(
        self,
        start: Callable[[], Awaitable[RunnerProcess]],
        api: Forwarder,
        owner: Owner,
        policy: WatchdogPolicy,
        name: Callable[[int], str],
        changed: Callable[[], None],
    ) -> None:
        self._start = start
        self._api = api
        self._owner = owner
        self._policy = policy
        self._name = name
        self._changed = changed
        self.members: set[int] = set()
        self.turns: dict[int, ProcessTurn] = {}
        self.began = asyncio.get_running_loop().time()
        self.ready = False
        self._has_low_priority = False
        self._releases: dict[int, asyncio.Future[Failure | None]] = {}
        self._commands: list[Command] = []
        self._turns_to_fill: dict[ProcessTurn, None] = {}
        self._flushing = False
        self._process: RunnerProcess | None = None
        self._watchdog: LoopWatchdog | None = None
        self._flushed: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run(), name="trigger process")

    @property
    def blocked(self) -> Blocked | None:
        """The current block, or None."""
        return None if self._watchdog is None else self._watchdog.blocked

    @property
    def is_blocked(self) -> bool:
        """Whether the loop of the process does not turn."""
        return self.blocked is not None

    @property
    def running(self) -> int | None:
        """The trigger whose code holds the loop now, or None."""
        return None if self._process is None else self._process.heartbeat.running

    def lower_priority(self) -> None:
        """Lower the priority of the process permanently."""
        if self._process is not None and not self._has_low_priority:
            self._has_low_priority = True
            self._process.lower_priority()

    def send(self, command: Command) -> None:
        """Queue a command; commands are sent in order."""
        self._commands.append(command)
        self._flush_soon()

    def wake(self, turn: ProcessTurn) -> None:
        """Request that the turn fills the next batch."""
        self._turns_to_fill[turn] = None
        self._flush_soon()

    async def release(self, trigger_id: int, workload: bytes | None, *, seconds: float) -> tuple[bool, Failure | None]:
        """Remove a trigger from the process and clean it up. Return whether the cleanup ended in time, and its failure or None.

        Does not wait for a blocked process.
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
        """Kill the process."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        lost: tuple[str, int | None, Blocked | None]
        try:
            self._process = process = await self._start()
            try:
                lost = await self._supervise(process)
            finally:
                await process.close()
        except Exception as error:  # after an internal error, its triggers must still restart
            log.exception("trigger process abandoned after an internal error")
            lost = str(error), None, None
        self._lost(*lost)

    async def _supervise(self, process: RunnerProcess) -> tuple[str, int | None, Blocked | None]:
        """Supervise the process until it ends; return the arguments of `_lost`."""
        self._watchdog = LoopWatchdog(process, self._policy, self._name, self._changed, self._stalled)
        watching = asyncio.create_task(self._watchdog.run())
        listening = asyncio.create_task(self._listen(process))
        try:
            await asyncio.wait({watching, listening}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                blocked = watching.result()
                return f"The process was blocked for {blocked.seconds:.0f} s.", blocked.trigger_id, blocked
            return listening.result() or exit_reason(await process.wait_ended()), process.heartbeat.running, None
        finally:
            watching.cancel()
            listening.cancel()
            await asyncio.wait({watching, listening})

    def _lost(self, reason: str, blamed: int | None, blocked: Blocked | None) -> None:
        self._process = None
        for released in self._releases.values():
            if not released.done():
                released.set_result(None)
        self._owner.on_lost(self, reason, blamed, blocked)

    async def _listen(self, process: RunnerProcess) -> str:
        """Handle the frames of the process until it ends. Return the reason that it sent, or ""."""
        proxy, reason = ApiProxy(self._api, process.link), ""
        yielder = CooperativeYield()
        try:
            while (frame := await process.link.receive()) is not None:
                if isinstance(frame, ProjectInvalid):
                    reason = frame.message
                elif isinstance(frame, Call):
                    await proxy.forward(frame)
                else:
                    self._handle(frame)
                await yielder.checkpoint()
        finally:
            await proxy.close(_CALLS_SECONDS)
        return reason

    def _handle(self, frame: Frame) -> None:
        if isinstance(frame, Ready):
            self.ready = True
            self._flush_soon()
            self._owner.on_ready(self)
        elif isinstance(frame, Steps):
            for step in frame.steps:
                if isinstance(step, Released):
                    self._released(step)
                elif (turn := self.turns.get(step.turn)) is not None:
                    if isinstance(step, Ended):
                        del self.turns[step.turn]
                    turn.take(step)
            self._owner.on_steps()

    def _released(self, step: Released) -> None:
        released = self._releases.get(step.trigger_id)
        if released is not None and not released.done():
            released.set_result(step.failure)

    def _stalled(self, seconds: float) -> None:
        self._owner.on_stalled(self, seconds)

    def _flush_soon(self) -> None:
        if self.ready and not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        process = self._process
        self._flushing = False
        if process is None or not (self._commands or self._turns_to_fill):
            return
        if len(self._commands) > MAX_FRAME_COMMANDS:
            # without raw events: one of them may be for a turn whose command is not sent yet
            process.link.post(Commands(self._commands[:MAX_FRAME_COMMANDS], [], []))
            del self._commands[:MAX_FRAME_COMMANDS]
            self._flush_soon()
            return
        batch = Batch()
        is_congested = process.link.queued >= MAX_QUEUED_BYTES
        if not is_congested:
            self._fill(batch)
        commands, self._commands = self._commands, []
        if commands or batch.delivered:
            process.link.post(Commands(commands, batch.raws, batch.delivered))
        if not self._turns_to_fill:
            return
        if is_congested or batch.size >= MAX_BATCH_BYTES:
            self._flushing = True
            self._flushed = asyncio.create_task(self._flush_later(process), name="trigger process reads")
        else:
            self._flush_soon()

    def _fill(self, batch: Batch) -> None:
        for turn in [*islice(self._turns_to_fill, MAX_FILLED_TURNS)]:
            if batch.size >= MAX_BATCH_BYTES:
                return
            del self._turns_to_fill[turn]
            if turn.number in self.turns:
                turn.fill(batch)

    async def _flush_later(self, process: RunnerProcess) -> None:
        await process.link.wait_flushed()
        self._flushing = False
        self._flush_soon()
