"""Assign triggers to processes. A trigger that blocks or ends its process runs alone from then on.

All triggers begin in one common process. A standby process has imported the project in advance. If a trigger blocks, it
keeps its process, and all others restart in the standby process. If it is unknown which trigger blocks, the triggers
are divided between two processes, until the cause is alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from itertools import count
from typing import Final

import structlog

from headrace.errors import ProcessFailed
from headrace.streams.subscribers.subscription import Subscription
from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.trigger_messages import Cancel, Described, Fired, OutboxCapacity, Release
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.process_pools.description import Description
from headrace.triggerer.process_pools.trigger_process import TriggerProcess
from headrace.triggerer.process_pools.turn import ProcessEnded, Turn, TurnEnd, error_of
from headrace.triggerer.supervisor.api_proxy import Forwarder
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.wire.control.jobs import Blocked

BLOCKED_SECONDS: Final = 0.5
"""If a process is blocked for this long, the other triggers leave it."""

READY_SECONDS: Final = 10.0
"""How long streams wait until a trigger process has imported the project."""

MAX_PROCESSES: Final = 16
"""Trigger processes of one triggerer. At this limit, triggers that block share processes."""

SHORT_LIFE_SECONDS: Final = 60.0
"""If a process ends sooner for an unknown reason, its triggers are divided."""

log = structlog.get_logger(__name__)


class TriggerProcesses:
    """The trigger processes of one runner. `start` starts a process; `api` makes its calls; `outbox` receives fired events."""

    def __init__(self, start: Callable[[], Awaitable[RunnerProcess]], api: Forwarder, outbox: Outbox, policy: WatchdogPolicy) -> None:
        self._start_runner = start
        self._api = api
        self._outbox = outbox
        self._policy = policy
        self._numbers = count(1)
        self._processes: dict[TriggerProcess, None] = {}
        self._common: TriggerProcess | None = None
        self._standby: TriggerProcess | None = None
        self._assigned: dict[int, TriggerProcess] = {}
        self._names: dict[int, str] = {}
        self._suspects: set[int] = set()
        self._waiting_for_capacity: asyncio.Task[None] | None = None
        self._became_ready = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def blocked(self) -> Blocked | None:
        """The longest current block of a process, or None."""
        blocks = [process.blocked for process in self._processes if process.blocked is not None]
        return max(blocks, key=lambda one: one.seconds, default=None)

    def begin(
        self,
        trigger_id: int,
        name: str,
        workload: bytes,
        subscription: Subscription | None,
        *,
        acks: bool | None,
        fire: Callable[[Fired], None],
        on_end: Callable[[TurnEnd], None],
    ) -> Turn:
        """Begin a turn of a trigger. `fire` receives its events, `on_end` its end. Neither is called during this call."""
        process = self._assigned.get(trigger_id)
        if process is None:
            process = self._assign(trigger_id)
        self._names[trigger_id] = name
        number, exact = next(self._numbers), trigger_id in self._suspects
        turn = Turn(number, trigger_id, subscription, carrier=process, fire=fire, on_end=on_end, exact=exact)
        process.turns[number] = turn
        turn.begin(workload, acks=acks)
        return turn

    def describe(self, trigger_id: int, name: str, workload: bytes) -> asyncio.Future[Described | TurnEnd]:
        """Return the upstream of a trigger as its process describes it, or the end of a turn without a description."""
        process = self._assigned.get(trigger_id)
        if process is None:
            process = self._assign(trigger_id)
        self._names[trigger_id] = name
        answer: asyncio.Future[Described | TurnEnd] = asyncio.get_running_loop().create_future()

        def on_end(end: Described | TurnEnd) -> None:
            if not answer.done():
                answer.set_result(end)

        description = Description(next(self._numbers), trigger_id, on_end)
        process.turns[description.number] = description
        process.send(description.begin(workload))
        return answer

    async def wait_ready(self) -> None:
        """Wait up to `READY_SECONDS` for processes to become ready. Raw events that are read earlier would only queue."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while any(process.members and not process.ready for process in self._processes):
                    self._became_ready.clear()
                    await self._became_ready.wait()
        except TimeoutError:
            log.warning("trigger process not ready in time; reading without it", seconds=READY_SECONDS)

    async def release(self, trigger_id: int, workload: bytes | None, *, seconds: float) -> tuple[bool, Failure | None]:
        """Remove a trigger without a turn permanently. Return whether its cleanup returned in time, and the cleanup's failure or None.

        With a `workload`, no task run waits for the trigger any more: it is loaded for the cleanup if necessary.
        """
        process = self._assigned.pop(trigger_id, None)
        if process is None and workload is not None and not self._closed:
            process = self._assign(trigger_id)
            self._assigned.pop(trigger_id, None)
        self._names.pop(trigger_id, None)
        self._suspects.discard(trigger_id)
        if process is None:
            return True, None
        released = await process.release(trigger_id, workload, seconds=seconds)
        if not process.members and process is not self._common and process in self._processes:
            await self._end(process)
        return released

    async def close(self) -> None:
        """Kill all processes."""
        self._closed = True
        if self._waiting_for_capacity is not None:
            self._waiting_for_capacity.cancel()
        processes = [*self._processes]
        self._processes.clear()
        await asyncio.gather(*(process.close() for process in processes))
        if self._ending:
            await asyncio.wait(self._ending)

    def on_ready(self, process: TriggerProcess) -> None:
        """Prepare a standby process if the common process has several triggers."""
        self._became_ready.set()
        if process is self._common and len(process.members) > 1:
            self._stand_by()

    def on_stalled(self, process: TriggerProcess, seconds: float) -> None:
        """Move the other triggers out of a blocked process, and lower its priority."""
        blamed = process.running
        if seconds < BLOCKED_SECONDS or not process.members:
            return
        if blamed in process.members:
            process.lower_priority()
        if len(process.members) < 2:
            return
        if blamed in process.members:
            log.warning("trigger isolated: it blocked a shared process", trigger=self._name(blamed), others=len(process.members) - 1)
            self._suspects.add(blamed)
            self._move(process, process.members - {blamed}, self._take_empty())
        elif seconds > self._policy.blocked:
            log.warning("triggers divided: their process is blocked by unknown code", triggers=len(process.members))
            self._divide(process)
            ending = asyncio.create_task(self._end(process), name="end of a blocked process")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def on_lost(self, process: TriggerProcess, reason: str, blamed: int | None, blocked: Blocked | None) -> None:
        """Restart the triggers of a process that ended. The trigger that ended it fails and restarts alone."""
        self._processes.pop(process, None)
        self._became_ready.set()
        if self._closed:
            return
        members = set(process.members)
        if blamed is None and len(members) == 1:
            (blamed,) = members
        log.error("trigger process lost", reason=reason, trigger=self._name(blamed), triggers=len(members))
        if process is self._standby:
            self._standby = None
            if process.ready:  # a process that ended before it was ready would do so again
                self._stand_by()
            return
        if process is self._common:
            self._common = None
        if not process.ready:
            self._give_up(process, members, reason)
            return
        if blamed not in members:
            self._restart(process, members, reason)
            return
        self._move(process, members - {blamed}, None if members == {blamed} else self._take_empty())
        self._blame(process, blamed, reason, blocked)

    def on_steps(self) -> None:
        """Pause the triggers while the outbox is full."""
        if self._outbox.is_full and self._waiting_for_capacity is None:
            self._send_capacity(available=False)
            self._waiting_for_capacity = asyncio.create_task(self._wait_for_capacity(), name="room for what triggers fire")

    def _restart(self, process: TriggerProcess, members: Collection[int], reason: str) -> None:
        """Restart all triggers of a process that ended for an unknown reason."""
        if asyncio.get_running_loop().time() - process.began >= SHORT_LIFE_SECONDS:
            self._move(process, members, self._take_empty())
        elif len(self._processes) < MAX_PROCESSES:
            self._divide(process)
        else:
            self._give_up(process, members, reason)

    def _give_up(self, process: TriggerProcess, members: Collection[int], reason: str) -> None:
        """Fail all triggers without blame. They restart according to the API's restart policy."""
        for trigger_id in members:
            self._assigned.pop(trigger_id, None)
        turns, process.turns = [*process.turns.values()], {}
        for turn in turns:
            turn.finish(TurnEnd(ProcessFailed(f"The trigger's process does not run: {reason}"), charge=False, caused_by_trigger=False))

    def _blame(self, process: TriggerProcess, blamed: int, reason: str, blocked: Blocked | None) -> None:
        self._suspects.add(blamed)
        self._assigned.pop(blamed, None)
        kind = "RunnerDied" if blocked is None else "Blocked"
        stack = [] if blocked is None else blocked.stack
        error = error_of(Failure(kind, reason, stack), ProcessEnded, 0.0 if blocked is None else blocked.seconds)
        for turn in [turn for turn in process.turns.values() if turn.trigger_id == blamed]:
            del process.turns[turn.number]
            turn.finish(TurnEnd(error, charge=turn.is_exact))

    def _assign(self, trigger_id: int) -> TriggerProcess:
        if trigger_id in self._suspects:
            process = self._alone()
        else:
            if self._common is None:
                self._common = self._take_empty()
            process = self._common
            if process.ready and process.members:
                self._stand_by()
        self._assigned[trigger_id] = process
        process.members.add(trigger_id)
        return process

    def _alone(self) -> TriggerProcess:
        if len(self._processes) < MAX_PROCESSES:
            return self._start_process()
        # The limit is reached: triggers that block share a process, and only with each other.
        shared = [one for one in self._processes if one.members and one.members <= self._suspects]
        return min(shared, key=lambda one: len(one.members)) if shared else self._start_process()

    def _divide(self, process: TriggerProcess) -> None:
        members = sorted(process.members)
        half = len(members) // 2
        self._move(process, members[:half], self._start_process())
        self._move(process, members[half:], self._take_empty())

    def _move(self, process: TriggerProcess, members: Collection[int], other: TriggerProcess | None) -> None:
        """Restart these triggers in another process, without blame."""
        if other is None or not members:
            return
        if process is self._common or self._common is None:
            self._common = other
        moved = set(members)
        process.members -= moved
        other.members |= moved
        for trigger_id in moved:
            self._assigned[trigger_id] = other
        for turn in [turn for turn in process.turns.values() if turn.trigger_id in moved]:
            del process.turns[turn.number]
            # If the old process recovers, it must not continue with these turns.
            process.send(Cancel(turn.number))
            turn.finish(TurnEnd(moved=True))
        for trigger_id in moved:
            process.send(Release(trigger_id, None))

    def _take_empty(self) -> TriggerProcess:
        """Return an empty process: the standby process if there is one."""
        process, self._standby = self._standby, None
        if process is None:
            return self._start_process()
        self._stand_by()
        return process

    def _stand_by(self) -> None:
        if self._standby is None and not self._closed:
            self._standby = self._start_process()

    def _start_process(self) -> TriggerProcess:
        process = TriggerProcess(self._start_runner, self._api, self, self._policy, self._name, lambda: None)
        self._processes[process] = None
        if self._waiting_for_capacity is not None:
            process.send(OutboxCapacity(available=False))
        return process

    async def _end(self, process: TriggerProcess) -> None:
        self._processes.pop(process, None)
        await process.close()

    async def _wait_for_capacity(self) -> None:
        await self._outbox.wait_capacity()
        self._waiting_for_capacity = None
        self._send_capacity(available=True)

    def _send_capacity(self, *, available: bool) -> None:
        for process in self._processes:
            process.send(OutboxCapacity(available))

    def _name(self, trigger_id: int | None) -> str:
        return "" if trigger_id is None else self._names.get(trigger_id, str(trigger_id))
