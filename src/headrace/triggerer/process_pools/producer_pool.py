"""Assign users' producers to processes. A producer that blocks or ends its process runs alone from then on.

All producers begin in one common process. If there are several, a standby process imports the project in advance. A
process that blocks while it has several producers is ended: the broker can redeliver the messages of the others
immediately, and they restart in the standby process.
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
"""A shared process that is blocked for this long is ended."""

MAX_PROCESSES: Final = 16
"""Processes for users' producers. At this limit, producers that block share processes."""

SHORT_LIFE_SECONDS: Final = 60.0
"""If a process ends sooner for an unknown reason, its producers are divided."""

IDLE_SECONDS: Final = 60.0
"""How long an empty process waits for the next producer, because a failed stream opens again."""

MAX_KNOWN: Final = 10_000
"""Streams whose producer ids are retained."""

log = structlog.get_logger(__name__)


class ProducerProcesses:
    """The processes of users' producers. `start` starts a process; `api` makes its calls."""

    def __init__(self, start: Callable[[], Awaitable[RunnerProcess]], api: Forwarder, policy: WatchdogPolicy) -> None:
        self._start_runner = start
        self._api = api
        self._policy = policy
        self._turns = count(1)
        self._ids = count(1)
        self._known: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._processes: dict[TriggerProcess, None] = {}
        self._common: TriggerProcess | None = None
        self._standby: TriggerProcess | None = None
        self._assigned: dict[int, TriggerProcess] = {}
        self._suspects: dict[int, None] = {}
        self._ending: dict[asyncio.Task[None], frozenset[int]] = {}
        """The tasks that end processes, each with the ids of the producers that leave the process."""
        self._closed = False

    @property
    def blocked(self) -> Blocked | None:
        """The longest current block of a process, or None."""
        blocks = [process.blocked for process in self._processes if process.blocked is not None]
        worst = max(blocks, key=lambda one: one.seconds, default=None)
        return None if worst is None else worst.model_copy(update={"trigger_id": None})

    async def begin(self, producer: RemoteProducer) -> TriggerProcess:
        """Assign a process and a turn number to a producer; return the process."""
        producer.trigger_id = self._id(producer.stream)
        if old := [ending for ending, leaving in self._ending.items() if producer.trigger_id in leaving]:
            await asyncio.wait(old)
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
        """Remove a producer from its process."""
        process = next((one for one in self._processes if one.turns.get(producer.number) is producer), None)
        if process is None:
            return
        del process.turns[producer.number]
        if all(turn.trigger_id != producer.trigger_id for turn in process.turns.values()):
            process.members.discard(producer.trigger_id)
        if not process.members:
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle, process)

    def end_process(self, producer: RemoteProducer) -> None:
        """Kill the process of a producer. The other producers of the process restart in another one."""
        process = next((one for one in self._processes if one.turns.get(producer.number) is producer), None)
        if process is not None:
            self._move(process, self._take_empty() if len(process.members) > 1 else None)

    async def close(self) -> None:
        """Kill all processes."""
        self._closed = True
        processes = [*self._processes]
        for process in processes:
            self._move(process, None)
        if self._ending:
            await asyncio.wait(self._ending)

    def on_ready(self, process: TriggerProcess) -> None:
        """Prepare a standby process if the common process has several producers."""
        if process is self._common and len(process.members) > 1:
            self._stand_by()

    def on_stalled(self, process: TriggerProcess, seconds: float) -> None:
        """End a process that is blocked while it has several producers."""
        members = process.members
        if process not in self._processes:
            return
        if seconds < BLOCKED_SECONDS or len(members) < 2 or members <= self._suspects.keys():
            return
        blamed = process.running
        if blamed in members:
            log.warning("producer isolated: it blocked a shared process", producer=self._name(blamed), others=len(members) - 1)
            self._suspect(blamed)
            self._move(process, self._take_empty())
        elif seconds > self._policy.blocked:
            log.warning("producers divided: their process is blocked by unknown code", producers=len(members))
            self._divide(process)

    def on_lost(self, process: TriggerProcess, reason: str, blamed: int | None, blocked: Blocked | None) -> None:
        """Restart the producers of a process that ended. The producer that ended it gets a failure."""
        if self._processes.pop(process, False) is False or self._closed:
            return
        members = process.members
        if blamed is None and len(members) == 1:
            (blamed,) = members
        if process is self._common:
            self._common = None
        if process is self._standby:
            self._standby = None
        log.error("producer process lost", reason=reason, producer=self._name(blamed), producers=len(members))
        if not process.ready:
            self._fail(process, members, ProcessFailed(f"The producer's process does not run: {reason}"))
            return
        if blamed in members:
            self._suspect(blamed)
            kind, stack, seconds = ("RunnerDied", [], 0.0) if blocked is None else ("Blocked", blocked.stack, blocked.seconds)
            self._fail(process, {blamed}, error_of(Failure(kind, f"{self._name(blamed)}: {reason}", stack), ProcessEnded, seconds))
        elif len(members) > 1 and asyncio.get_running_loop().time() - process.began < SHORT_LIFE_SECONDS:
            self._divide(process)
            return
        self._move(process, None)

    def on_steps(self) -> None:
        """Do nothing: the read-ahead limit already bounds the producers' items."""

    def _choose(self, producer_id: int) -> TriggerProcess:
        if producer_id not in self._suspects:
            if self._common is None:
                self._common = self._take_empty()
            return self._common
        if len(self._processes) < MAX_PROCESSES:
            return self._start_process()
        # The limit is reached: producers that block share a process, and only with each other.
        shared = [one for one in self._processes if one.members and one.members <= self._suspects.keys()]
        return min(shared, key=lambda one: len(one.members)) if shared else self._start_process()

    def _divide(self, process: TriggerProcess) -> None:
        """Restart one half of the producers in one process and the other half in another."""
        members = sorted(process.members)
        one, other = self._start_process(), self._take_empty()
        for at, producer_id in enumerate(members):
            self._assigned[producer_id] = one if 2 * at < len(members) else other
        self._common = other if process is self._common or self._common is None else self._common
        self._move(process, None)

    def _move(self, process: TriggerProcess, common: TriggerProcess | None) -> None:
        """End a process and restart its producers. `common`: the new common process, if this one was it."""
        self._processes.pop(process, None)
        if process is self._common:
            self._common = common
        if process is self._standby:
            self._standby = None
        turns, process.turns = [*process.turns.values()], {}
        for turn in turns:
            turn.finish(TurnEnd(moved=True))
        ending = asyncio.create_task(process.close(), name="end of a process of producers")
        self._ending[ending] = frozenset(turn.trigger_id for turn in turns)
        ending.add_done_callback(self._ending.pop)

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

    def _take_empty(self) -> TriggerProcess:
        """Return an empty process: the standby process if there is one."""
        process, self._standby = self._standby, None
        return self._start_process() if process is None else process

    def _stand_by(self) -> None:
        if self._standby is None and not self._closed:
            self._standby = self._start_process()

    def _start_process(self) -> TriggerProcess:
        process = TriggerProcess(self._start_runner, self._api, self, self._policy, self._name, lambda: None)
        self._processes[process] = None
        return process

    def _suspect(self, producer_id: int) -> None:
        self._suspects[producer_id] = None
        self._assigned.pop(producer_id, None)

    def _id(self, stream: str) -> int:
        """Return the id of a stream's producer, which is the same each time the stream is opened."""
        producer_id = self._known.get(stream)
        if producer_id is None:
            producer_id = self._known[stream] = next(self._ids)
            self._names[producer_id] = stream
            if len(self._known) > MAX_KNOWN:
                self._drop(next(iter(self._known)))
        return producer_id

    def _drop(self, stream: str) -> None:
        producer_id = self._known.pop(stream)
        self._names.pop(producer_id)
        self._suspects.pop(producer_id, None)
        self._assigned.pop(producer_id, None)

    def _name(self, producer_id: int | None) -> str:
        return "" if producer_id is None else f"The producer of {self._names.get(producer_id, str(producer_id))}"
