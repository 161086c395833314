"""Assignment of triggers to processes: a trigger that blocks or ends its process is isolated, without loss or repetition."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headrace.sources.memory.upstream import Memory
from headrace.triggerer.ipc.shared_heartbeat import SharedHeartbeat
from headrace.triggerer.process_pools.trigger_process import TriggerProcess
from headrace.triggerer.process_pools.turn import Batch
from headrace.triggerer.runner.runner import Runner
from headrace.triggerer.supervisor.api_proxy import Forwarder
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.triggerer.user_process.remote_stream import Delivered
from headrace.triggers.raw_event import RawEvent
from headrace.wire.control.jobs import Blocked
from support.processes.trigger_process import LocalProcess, start_local
from unit.triggerer.runner.test_runner import Api, running, until, upstream, waits, watch, workload

__all__ = ["upstream", "waits"]


def process_of(runner: Runner, trigger_id: int) -> TriggerProcess:
    return runner._processes._assigned[trigger_id]


def at_work(process: TriggerProcess, trigger_id: int) -> LocalProcess:
    """Let the heartbeat of the process show that this trigger's code holds the loop (0: none's does)."""
    local = cast(LocalProcess, process._process)
    local.heartbeat = SharedHeartbeat()  # its own one would be cleared by the tasks that end with it, which a signal ends at once
    local.heartbeat.numbers[1] = trigger_id
    return local


def more(upstream: Memory) -> None:
    upstream.send_many(({"n": n} for n in range(40, 80)), lane="one")


async def test_other_triggers_leave_a_blocked_process(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream), workload(2, upstream), watch(3, upstream)) as runner:
        await until(lambda: len(api.fired(1)) == len(api.fired(2)) == 40)
        blocked = process_of(runner, 1)
        at_work(blocked, 1)
        runner._processes.on_stalled(blocked, 0.6)
        assert process_of(runner, 1) is blocked
        assert process_of(runner, 2) is not blocked
        at_work(blocked, 0)
        more(upstream)
        await until(lambda: all(len(api.fired(one)) == 80 for one in (1, 2, 3)))
    assert api.failed == []
    assert api.letters == []


async def test_only_a_process_blocked_by_its_own_trigger_gets_a_lower_priority(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream), workload(2, upstream)) as runner:
        await until(lambda: len(api.fired(1)) == len(api.fired(2)) == 40)
        blocked, processes = process_of(runner, 1), runner._processes
        local = at_work(blocked, 0)
        processes.on_stalled(blocked, 0.6)
        assert local.lowered == 0, "nobody knows that it is one of its triggers"
        at_work(blocked, 1)
        processes.on_stalled(blocked, 0.4)
        assert local.lowered == 0
        for seconds in (0.6, 0.7):
            processes.on_stalled(blocked, seconds)
        assert local.lowered == 1
        assert cast(LocalProcess, process_of(runner, 2)._process).lowered == 0


async def test_a_blocked_process_with_one_trigger_gets_a_lower_priority(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream)) as runner:
        await until(lambda: len(api.fired(1)) == 40)
        local = at_work(process_of(runner, 1), 1)
        runner._processes.on_stalled(process_of(runner, 1), 0.6)
        assert local.lowered == 1


async def test_a_trigger_that_ends_its_process_is_isolated(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream), workload(2, upstream)) as runner:
        await until(lambda: len(api.fired(1)) == len(api.fired(2)) == 40)
        at_work(process_of(runner, 1), 1).kill()
        more(upstream)
        await until(lambda: all(len(api.fired(one)) == 80 for one in (1, 2)))
        assert process_of(runner, 1) is not process_of(runner, 2)
    assert api.failed == [(1, "RunnerDied")]
    assert len(api.events) == 160


async def test_triggers_of_a_process_that_ended_for_an_unknown_reason_are_divided(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, *(workload(one, upstream) for one in (1, 2, 3))) as runner:
        await until(lambda: all(len(api.fired(one)) == 40 for one in (1, 2, 3)))
        at_work(process_of(runner, 1), 0).kill()
        more(upstream)
        await until(lambda: all(len(api.fired(one)) == 80 for one in (1, 2, 3)))
        assert process_of(runner, 1) is not process_of(runner, 2)
        assert process_of(runner, 2) is process_of(runner, 3)
        at_work(process_of(runner, 2), 0).kill()
        await until(lambda: process_of(runner, 2) is not process_of(runner, 3))
    assert api.failed == []
    assert len(api.events) == 240


async def test_a_failure_is_charged_only_if_nothing_was_read_ahead(upstream: Memory, waits: list[int]) -> None:
    api = Api()
    async with running(api, workload(1, upstream), workload(2, upstream)) as runner:
        await until(lambda: len(api.fired(1)) == len(api.fired(2)) == 40)
        first = process_of(runner, 1)
        (turn,) = [turn for turn in first.turns.values() if turn.trigger_id == 1]
        local = at_work(first, 1)
        runner._processes.on_stalled(first, 0.6)
        assert not turn.is_exact, "that it blocks does not change what it has read"
        local.kill()
        await until(lambda: (now := runner._processes._assigned.get(1)) is not None and now is not first and bool(now.turns))
        assert [turn.is_exact for turn in process_of(runner, 1).turns.values()] == [True]
    assert api.failed == [(1, "RunnerDied")]


class Owner:
    """Does nothing with what becomes of a process."""

    def on_ready(self, process: TriggerProcess) -> None: ...

    def on_stalled(self, process: TriggerProcess, seconds: float) -> None: ...

    def on_lost(self, process: TriggerProcess, reason: str, blamed: int | None, blocked: Blocked | None) -> None: ...

    def on_steps(self) -> None: ...


class Filling:
    """A turn that has one raw event to deliver, and a stream in its process that takes it."""

    is_exact = False

    def __init__(self, number: int) -> None:
        self.number = self.trigger_id = number
        self.delivered: list[Any] = []

    def fill(self, batch: Batch) -> None:
        batch.add(self.number, RawEvent(b"x" * 5_000, "lane", self.number), "lane", self.number)

    def deliver(self, item: Delivered) -> None:
        self.delivered.append(item)


async def test_raw_events_for_many_triggers_are_sent_in_bounded_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.triggerer.ipc.messages.MAX_FRAME_BYTES", 20_000)
    monkeypatch.setattr("headrace.triggerer.process_pools.trigger_process.MAX_BATCH_BYTES", 10_000)
    process = TriggerProcess(start_local, cast(Forwarder, None), Owner(), WatchdogPolicy(), str, lambda: None)
    await until(lambda: process.ready)
    turns: list[Any] = [Filling(number) for number in range(1, 31)]
    executor = cast(LocalProcess, process._process).executor
    for turn in turns:
        process.turns[turn.number] = turn
        executor._streams[turn.number] = turn
        process.wake(turn)
    async with asyncio.timeout(120):
        await until(lambda: all(len(turn.delivered) == 1 for turn in turns))
    await process.close()
