"""Trigger processes that are none: the executor runs in the loop of the test, at the other end of a real socket."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from headrace.streams.backlog import Backlog
from headrace.streams.manager import SharedStreamManager
from headrace.triggerer.context import TriggerContext
from headrace.triggerer.ipc.api_calls import ApiCalls
from headrace.triggerer.ipc.channel import Channel
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.ipc.trigger_messages import Ready
from headrace.triggerer.outbox.outbox import Outbox
from headrace.triggerer.process_pools.producer_pool import ProducerProcesses
from headrace.triggerer.process_pools.trigger_pool import TriggerProcesses
from headrace.triggerer.process_pools.turn import TurnEnd
from headrace.triggerer.runner.execution import TriggerExecution
from headrace.triggerer.supervisor.api_proxy import Forwarder
from headrace.triggerer.supervisor.runner_process import RunnerProcess
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.user_process import trigger_executor
from headrace.triggerer.user_process.trigger_executor import TriggerExecutor
from headrace.triggers.base import BaseTrigger
from headrace.wire.control.triggers import RunTrigger


class LocalProcess:
    """A `RunnerProcess` in the loop of the test. `kill` ends it as a signal would: what it had not sent is lost."""

    def __init__(self, link: Channel, end: Channel) -> None:
        self.link = link
        self.heartbeat = SharedHeartbeat()
        self.pid = 0
        self.lowered = 0
        self.processor_wait = 0.0
        self.executor = TriggerExecutor(end, ApiCalls(end), self.heartbeat)
        self._end = end
        self._task = asyncio.create_task(self._run())
        self._code = 0

    async def _run(self) -> None:
        await self._end.send(Ready())
        await self.executor.run()

    async def wait_ended(self) -> int:
        await asyncio.wait({self._task})
        return self._code

    def kill(self) -> None:
        self._code = -9
        self._task.cancel()
        for task in (*self.executor._tasks.values(), *self.executor._cleanups, *self.executor.producers.tasks):
            task.cancel()
        self._end.close()

    def lower_priority(self) -> None:
        self.lowered += 1

    async def stack(self) -> list[str]:
        return []

    async def close(self) -> None:
        self.kill()
        await asyncio.wait({self._task})
        self.link.close()


async def start_local() -> RunnerProcess:
    ours, theirs = socket.socketpair()
    return cast(RunnerProcess, LocalProcess(await Channel.open(ours), await Channel.open(theirs)))


def local_processes(outbox: Outbox, api: Forwarder | None = None) -> TriggerProcesses:
    return TriggerProcesses(start_local, cast(Forwarder, api), outbox, WatchdogPolicy())


def local_producers(api: Forwarder | None = None) -> ProducerProcesses:
    return ProducerProcesses(start_local, cast(Forwarder, api), WatchdogPolicy())


async def run_alone(trigger: BaseTrigger, outbox: Outbox) -> TurnEnd:
    """Let a trigger run that polls alone, in a trigger process; return how it ended."""
    workload = RunTrigger(
        trigger_id=7, name="odd", classpath="odd_triggers.Alone", kwargs={}, stream=None, queue="q", epoch=1, log_name="log"
    )
    described = workload.model_dump_json().encode()
    firing = TriggerExecution(TriggerContext(7, "odd", "log"), described, None, SharedStreamManager(), outbox, cast(Backlog, None))
    processes = local_processes(outbox)
    ended: asyncio.Future[TurnEnd] = asyncio.get_running_loop().create_future()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trigger_executor, "load_trigger", lambda _: trigger)
        processes.begin(7, "odd", described, None, acks=None, fire=firing.fired, on_end=ended.set_result)
        try:
            return await ended
        finally:
            await processes.close()
