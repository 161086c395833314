"""Which user's producer runs in which process. One that blocks or ends its process is alone in it from then on.

All begin in one common process. Another, in which the project is imported already, stands by where there are several. A process that is
blocked while several producers are in it is ended: what a broker gave to the others is free at once, and they begin again in the other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from itertools import count
from typing import Final

import structlog

from headrace.errors import ProcessFailed
from headrace.triggerer.exception_text import Failure
from headrace.triggerer.process_pools.remote_producer import RemoteProducer
from headrace.triggerer.process_pools.trigger_process import TriggerProcess
from headrace.triggerer.process_pools.turn import ProcessEnded, TurnEnd, error_of
from headrace.triggerer.supervisor.api_proxy import Forwarder
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.wire.control.jobs import Blocked

BLOCKED_SECONDS: Final = 0.5
"""After so many seconds in which a shared process is blocked, it is ended."""

MAX_PROCESSES: Final = 16
"""Processes with users' producers; where there are so many, producers that block share."""

SHORT_LIFE_SECONDS: Final = 60.0
"""The producers of a process that ended sooner for an unknown reason are divided."""

IDLE_SECONDS: Final = 60.0
"""So long a process waits for the next producer: a stream that failed is opened again."""

MAX_KNOWN: Final = 10_000
"""Streams that are remembered."""

log = structlog.get_logger(__name__)


class ProducerProcesses:
    """The processes of users' producers. `start` starts one; `api` takes its calls."""

    def __init__(self, start: Callable[[], Awaitable[RunnerProcess]], api: Forwarder, patience: WatchdogPolicy) -> None:
        self._start = start
        self._api = api
        self._patience = patience
        self._turns = count(1)
        self._ids = count(1)
        self._known: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._processes: dict[TriggerProcess, None] = {}
        self._common: TriggerProcess | None = None
        self._standby: TriggerProcess | None = None
        self._assigned: dict[int, TriggerProcess] = {}
        self._suspects: dict[int, None] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def blocked(self) -> Blocked | None:
        """What blocks one of the processes now, for the longest time."""
        found = [process.blocked for process in self._processes if process.blocked is not None]
        longest = max(found, key=lambda one: one.seconds, default=None)
        return None if longest is None else longest.model_copy(update={"trigger_id": None})

    def begin(self, producer: RemoteProducer) -> TriggerProcess:
        """Return the process in which it is to run, and give it its number."""
        producer.trigger_id = self._id(producer.stream)
        producer.number = next(self._turns)
        process = self._assigned.get(producer.trigger_id)
        if process is None or process not in self._processes:
            process = self._assigned[producer.trigger_id] = self._choose(producer.trigger_id)
        process.members.add(producer.trigger_id)
        process.turns[producer.number] = producer
        if process is self._common and process.ready and len(process.members) > 1:
            self._stand_by()
        return process

    def end(self, producer: RemoteProducer) -> None:
        """Count on nothing of a producer any more."""
        process = next((one for one in self._processes if one.turns.get(producer.number) is producer), None)
        if process is None:
            return
        del process.turns[producer.number]
        if all(turn.trigger_id != producer.trigger_id for turn in process.turns.values()):
            process.members.discard(producer.trigger_id)
        if not process.members:
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle, process)

    def end_process(self, producer: RemoteProducer) -> None:
        """End the process of a producer, at once; those that it shares it with begin again in another."""
        process = next((one for one in self._processes if one.turns.get(producer.number) is producer), None)
        if process is not None:
            self._move(process, self._fresh() if len(process.members) > 1 else None)

    async def close(self) -> None:
        """End all processes at once."""
        self._closed = True
        processes = [*self._processes]
        for process in processes:
            self._move(process, None)
        if self._ending:
            await asyncio.wait(self._ending)

    def is_ready(self, process: TriggerProcess) -> None:
        """Keep a spare process ready while any process may need it."""
        if process is self._common and len(process.members) > 1:
            self._stand_by()

    def is_silent(self, process: TriggerProcess, seconds: float) -> None:
        """End a process that is blocked while several producers are in it."""
        members = process.members
        if process not in self._processes:
            return
        if seconds < BLOCKED_SECONDS or len(members) < 2 or members <= self._suspects.keys():
            return
        culprit = process.running
        if culprit in members:
            log.warning(
                "a producer blocks the process of others: it runs alone from now on", producer=self._name(culprit), others=len(members) - 1
            )
            self._suspect(culprit)
            self._move(process, self._fresh())
        elif seconds > self._patience.blocked:
            log.warning("a process is blocked by none of its producers' own tasks: they are divided", producers=len(members))
            self._divide(process)

    def is_lost(self, process: TriggerProcess, reason: str, culprit: int | None, blocked: Blocked | None) -> None:
        """Restart the producers of a process that ended. It counts as a failure for the one that ended it."""
        if self._processes.pop(process, False) is False or self._closed:
            return
        members = process.members
        if culprit is None and len(members) == 1:
            (culprit,) = members
        if process is self._common:
            self._common = None
        if process is self._standby:
            self._standby = None
        log.error("a process of producers is lost", reason=reason, producer=self._name(culprit), producers=len(members))
        if not process.ready:
            self._fail(process, members, ProcessFailed(f"The producer's process does not run: {reason}"))
            return
        if culprit in members:
            self._suspect(culprit)
            kind, stack, seconds = ("RunnerDied", [], 0.0) if blocked is None else ("Blocked", blocked.stack, blocked.seconds)
            self._fail(process, {culprit}, error_of(Failure(kind, f"{self._name(culprit)}: {reason}", stack), ProcessEnded, seconds))
        elif len(members) > 1 and asyncio.get_running_loop().time() - process.began < SHORT_LIFE_SECONDS:
            self._divide(process)
            return
        self._move(process, None)

    def took_steps(self) -> None:
        """Do nothing: what producers yield is bounded by what they may read ahead."""

    def _choose(self, producer_id: int) -> TriggerProcess:
        if producer_id not in self._suspects:
            if self._common is None:
                self._common = self._fresh()
            return self._common
        if len(self._processes) < MAX_PROCESSES:
            return self._new()
        # There are too many of them: they may block each other, and nobody else.
        crowds = [one for one in self._processes if one.members and one.members <= self._suspects.keys()]
        return min(crowds, key=lambda one: len(one.members)) if crowds else self._new()

    def _divide(self, process: TriggerProcess) -> None:
        """Restart half of the producers in one process and the others in another."""
        members = sorted(process.members)
        one, other = self._new(), self._fresh()
        for at, producer_id in enumerate(members):
            self._assigned[producer_id] = one if 2 * at < len(members) else other
        self._common = other if process is self._common or self._common is None else self._common
        self._move(process, None)

    def _move(self, process: TriggerProcess, common: TriggerProcess | None) -> None:
        """End a process, and let its producers begin again; `common`: the process for all that have none of their own."""
        self._processes.pop(process, None)
        if process is self._common:
            self._common = common
        if process is self._standby:
            self._standby = None
        turns, process.turns = [*process.turns.values()], {}
        for turn in turns:
            turn.finish(TurnEnd(moved=True))
        ending = asyncio.create_task(process.close(), name="end of a process of producers")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _fail(self, process: TriggerProcess, members: Collection[int], error: Exception) -> None:
        for number, turn in [*process.turns.items()]:
            if turn.trigger_id in members:
                del process.turns[number]
                turn.finish(TurnEnd(error))

    def _end_idle(self, process: TriggerProcess) -> None:
        if not process.members and process in self._processes and process is not self._standby:
            self._move(process, None)
        if self._standby is not None and not any(one.members for one in self._processes):
            self._move(self._standby, None)

    def _fresh(self) -> TriggerProcess:
        """Return an empty process, at once if a spare one is ready."""
        process, self._standby = self._standby, None
        return self._new() if process is None else process

    def _stand_by(self) -> None:
        if self._standby is None and not self._closed:
            self._standby = self._new()

    def _new(self) -> TriggerProcess:
        process = TriggerProcess(self._start, self._api, self, self._patience, self._name, lambda: None)
        self._processes[process] = None
        return process

    def _suspect(self, producer_id: int) -> None:
        self._suspects[producer_id] = None
        self._assigned.pop(producer_id, None)

    def _id(self, stream: str) -> int:
        """Return the id of a stream's producer, the same each time that it is opened."""
        found = self._known.get(stream)
        if found is None:
            found = self._known[stream] = next(self._ids)
            self._names[found] = stream
            if len(self._known) > MAX_KNOWN:
                self._forget(next(iter(self._known)))
        return found

    def _forget(self, stream: str) -> None:
        forgotten = self._known.pop(stream)
        self._names.pop(forgotten)
        self._suspects.pop(forgotten, None)
        self._assigned.pop(forgotten, None)

    def _name(self, producer_id: int | None) -> str:
        return "" if producer_id is None else f"The producer of {self._names.get(producer_id, str(producer_id))}"
