"""Which trigger runs in which process. A trigger that blocks or ends its process is alone in it from then on.

All triggers begin in one common process. Another, in which the project is imported already, stands by: where a trigger blocks, the others
begin again there at once, and it stays where it is. If it is unknown which trigger it was, they are divided between two processes,
until it is alone.
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
from headrace.triggerer.ipc.trigger_messages import Cancel, Described, Fired, Release, Room
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.process_pools.description import Description
from headrace.triggerer.process_pools.trigger_process import TriggerProcess
from headrace.triggerer.process_pools.turn import ProcessEnded, Turn, TurnEnd, error_of
from headrace.triggerer.supervisor.api_proxy import Forwarder
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.wire.control.jobs import Blocked

BLOCKED_SECONDS: Final = 0.5
"""After so many seconds in which a process is blocked, the others leave it."""

READY_SECONDS: Final = 10.0
"""So long streams wait for the import of the project in a trigger process."""

MAX_PROCESSES: Final = 16
"""Trigger processes of one triggerer; where there are so many, triggers that block share."""

SHORT_LIFE_SECONDS: Final = 60.0
"""The triggers of a process that ended sooner for an unknown reason are divided."""

log = structlog.get_logger(__name__)


class TriggerProcesses:
    """The trigger processes of one runner. `start` starts one; `api` takes its calls; `outbox` is what triggers fire into."""

    def __init__(self, start: Callable[[], Awaitable[RunnerProcess]], api: Forwarder, outbox: Outbox, patience: WatchdogPolicy) -> None:
        self._start = start
        self._api = api
        self._outbox = outbox
        self._patience = patience
        self._numbers = count(1)
        self._processes: dict[TriggerProcess, None] = {}
        self._common: TriggerProcess | None = None
        self._standby: TriggerProcess | None = None
        self._at: dict[int, TriggerProcess] = {}
        self._names: dict[int, str] = {}
        self._suspects: set[int] = set()
        self._waiting_for_room: asyncio.Task[None] | None = None
        self._became_ready = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def blocked(self) -> Blocked | None:
        """What blocks one of the processes now, for the longest time."""
        found = [process.blocked for process in self._processes if process.blocked is not None]
        return max(found, key=lambda one: one.seconds, default=None)

    def begin(
        self,
        trigger_id: int,
        name: str,
        workload: bytes,
        mailbox: Subscription | None,
        *,
        acks: bool | None,
        fire: Callable[[Fired], None],
        on_end: Callable[[TurnEnd], None],
    ) -> Turn:
        """Run a trigger; `fire` takes what it yields, `on_end` how it ends. Neither is called in this call."""
        process = self._at.get(trigger_id)
        if process is None:
            process = self._assign(trigger_id)
        self._names[trigger_id] = name
        number, exact = next(self._numbers), trigger_id in self._suspects
        turn = Turn(number, trigger_id, mailbox, carrier=process, fire=fire, on_end=on_end, exact=exact)
        process.turns[number] = turn
        turn.begin(workload, acks=acks)
        return turn

    def describe(self, trigger_id: int, name: str, workload: bytes) -> asyncio.Future[Described | TurnEnd]:
        """Return what opens the stream of a trigger, as its process says, or how that ended before it did."""
        process = self._at.get(trigger_id)
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

    async def ready(self) -> None:
        """Wait until triggers that begin can run, for a limited time: what is read before would only pile up."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while any(process.members and not process.ready for process in self._processes):
                    self._became_ready.clear()
                    await self._became_ready.wait()
        except TimeoutError:
            log.warning("a trigger process does not get ready: streams are read without it", seconds=READY_SECONDS)

    async def release(self, trigger_id: int, workload: bytes | None, *, seconds: float) -> tuple[bool, Failure | None]:
        """Remove a trigger without a turn for good; return whether its cleanup returned in time, and how it failed.

        With a `workload` nothing waits for it any more: it is cleaned up also where it is not loaded.
        """
        process = self._at.pop(trigger_id, None)
        if process is None and workload is not None and not self._closed:
            process = self._assign(trigger_id)
            self._at.pop(trigger_id, None)
        self._names.pop(trigger_id, None)
        self._suspects.discard(trigger_id)
        if process is None:
            return True, None
        released = await process.release(trigger_id, workload, seconds=seconds)
        if not process.members and process is not self._common and process in self._processes:
            await self._end(process)
        return released

    async def close(self) -> None:
        """End all processes at once."""
        self._closed = True
        if self._waiting_for_room is not None:
            self._waiting_for_room.cancel()
        processes = [*self._processes]
        self._processes.clear()
        await asyncio.gather(*(process.close() for process in processes))
        if self._ending:
            await asyncio.wait(self._ending)

    def is_ready(self, process: TriggerProcess) -> None:
        """Keep a spare process ready while any process may need it."""
        self._became_ready.set()
        if process is self._common and len(process.members) > 1:
            self._stand_by()

    def is_silent(self, process: TriggerProcess, seconds: float) -> None:
        """Move the other triggers out of a blocked process, and lower its priority."""
        culprit = process.running
        if seconds < BLOCKED_SECONDS or not process.members:
            return
        if culprit in process.members:
            process.lower_priority()
        if len(process.members) < 2:
            return
        if culprit in process.members:
            log.warning(
                "a trigger blocks its process: the others go on in another", trigger=self._name(culprit), others=len(process.members) - 1
            )
            self._suspects.add(culprit)
            self._leave(process, process.members - {culprit}, self._fresh())
        elif seconds > self._patience.blocked:
            log.warning("a process is blocked by none of its triggers' own tasks: they are divided", triggers=len(process.members))
            self._divide(process)
            ending = asyncio.create_task(self._end(process), name="end of a blocked process")
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    def is_lost(self, process: TriggerProcess, reason: str, culprit: int | None, blocked: Blocked | None) -> None:
        """Restart the triggers of a process that ended. The trigger that ended it fails and restarts alone."""
        self._processes.pop(process, None)
        self._became_ready.set()
        if self._closed:
            return
        members = set(process.members)
        if culprit is None and len(members) == 1:
            (culprit,) = members
        log.error("a trigger process is lost", reason=reason, trigger=self._name(culprit), triggers=len(members))
        if process is self._standby:
            self._standby = None
            if process.ready:  # one that did not get so far would not the next time either
                self._stand_by()
            return
        if process is self._common:
            self._common = None
        if not process.ready:
            self._give_up(process, members, reason)
            return
        if culprit not in members:
            self._restart(process, members, reason)
            return
        self._leave(process, members - {culprit}, None if members == {culprit} else self._fresh())
        self._blame(process, culprit, reason, blocked)

    def took_steps(self) -> None:
        """Fire nothing more while the outbox is full."""
        if self._outbox.is_full and self._waiting_for_room is None:
            self._tell_room(there=False)
            self._waiting_for_room = asyncio.create_task(self._wait_for_room(), name="room for what triggers fire")

    def _restart(self, process: TriggerProcess, members: Collection[int], reason: str) -> None:
        """Restart all triggers whose process ended for an unknown reason."""
        if asyncio.get_running_loop().time() - process.began >= SHORT_LIFE_SECONDS:
            self._leave(process, members, self._fresh())
        elif len(self._processes) < MAX_PROCESSES:
            self._divide(process)
        else:
            self._give_up(process, members, reason)

    def _give_up(self, process: TriggerProcess, members: Collection[int], reason: str) -> None:
        """Fail all triggers without blame: they restart when the API says so."""
        for trigger_id in members:
            self._at.pop(trigger_id, None)
        turns, process.turns = [*process.turns.values()], {}
        for turn in turns:
            turn.finish(TurnEnd(ProcessFailed(f"The trigger's process does not run: {reason}"), charge=False, own=False))

    def _blame(self, process: TriggerProcess, culprit: int, reason: str, blocked: Blocked | None) -> None:
        self._suspects.add(culprit)
        self._at.pop(culprit, None)
        kind = "RunnerDied" if blocked is None else "Blocked"
        stack = [] if blocked is None else blocked.stack
        error = error_of(Failure(kind, reason, stack), ProcessEnded, 0.0 if blocked is None else blocked.seconds)
        for turn in [turn for turn in process.turns.values() if turn.trigger_id == culprit]:
            del process.turns[turn.number]
            turn.finish(TurnEnd(error, charge=turn.is_exact))

    def _assign(self, trigger_id: int) -> TriggerProcess:
        if trigger_id in self._suspects:
            process = self._alone()
        else:
            if self._common is None:
                self._common = self._fresh()
            process = self._common
            if process.ready and process.members:
                self._stand_by()
        self._at[trigger_id] = process
        process.members.add(trigger_id)
        return process

    def _alone(self) -> TriggerProcess:
        if len(self._processes) < MAX_PROCESSES:
            return self._new()
        # There are too many of them: they may block each other, and nobody else.
        crowds = [one for one in self._processes if one.members and one.members <= self._suspects]
        return min(crowds, key=lambda one: len(one.members)) if crowds else self._new()

    def _divide(self, process: TriggerProcess) -> None:
        members = sorted(process.members)
        half = len(members) // 2
        self._leave(process, members[:half], self._new())
        self._leave(process, members[half:], self._fresh())

    def _leave(self, process: TriggerProcess, members: Collection[int], other: TriggerProcess | None) -> None:
        """Restart these triggers in another process, without blame."""
        if other is None or not members:
            return
        if process is self._common or self._common is None:
            self._common = other
        going = set(members)
        process.members -= going
        other.members |= going
        for trigger_id in going:
            self._at[trigger_id] = other
        for turn in [turn for turn in process.turns.values() if turn.trigger_id in going]:
            del process.turns[turn.number]
            # Where it goes on after all, it is not to go on with these.
            process.send(Cancel(turn.number))
            turn.finish(TurnEnd(moved=True))
        for trigger_id in going:
            process.send(Release(trigger_id, None))

    def _fresh(self) -> TriggerProcess:
        """Return an empty process, at once if a spare one is ready."""
        process, self._standby = self._standby, None
        if process is None:
            return self._new()
        self._stand_by()
        return process

    def _stand_by(self) -> None:
        if self._standby is None and not self._closed:
            self._standby = self._new()

    def _new(self) -> TriggerProcess:
        process = TriggerProcess(self._start, self._api, self, self._patience, self._name, lambda: None)
        self._processes[process] = None
        if self._waiting_for_room is not None:
            process.send(Room(there=False))
        return process

    async def _end(self, process: TriggerProcess) -> None:
        self._processes.pop(process, None)
        await process.close()

    async def _wait_for_room(self) -> None:
        await self._outbox.room()
        self._waiting_for_room = None
        self._tell_room(there=True)

    def _tell_room(self, *, there: bool) -> None:
        for process in self._processes:
            process.send(Room(there))

    def _name(self, trigger_id: int | None) -> str:
        return "" if trigger_id is None else self._names.get(trigger_id, str(trigger_id))
