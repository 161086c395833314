"""Frames to a trigger process are bounded, and a raw event is sent after the commands of its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from headrace.triggerer.exception_text import Failure
from headrace.triggerer.ipc.messages import Frame
from headrace.triggerer.ipc.trigger_messages import Begin, Cancel, Close, Commands, Ended
from headrace.triggerer.process_pools import trigger_process
from headrace.triggerer.process_pools.trigger_process import TriggerProcess
from headrace.triggerer.supervisor.api_proxy import Forwarder
from headrace.triggerer.supervisor.stall_detector import WatchdogPolicy
from headrace.wire.control.triggers import RunTrigger
from support.processes.trigger_process import LocalProcess, start_local
from unit.triggerer.process_pools.test_trigger_pool import Filling, Owner
from unit.triggerer.runner.test_runner import until


@asynccontextmanager
async def recorded(process: TriggerProcess) -> AsyncIterator[list[Commands]]:
    """Record the frames that the ready process is sent. Close it at the end."""
    frames: list[Commands] = []
    async with asyncio.timeout(60):
        await until(lambda: process.ready)
        link = cast(LocalProcess, process._process).link
        post = link.post

        def record(frame: Frame) -> None:
            frames.append(cast(Commands, frame))
            post(frame)

        cast(Any, link).post = record
        try:
            yield frames
        finally:
            await process.close()


def started() -> TriggerProcess:
    return TriggerProcess(start_local, cast(Forwarder, None), Owner(), WatchdogPolicy(), str, lambda: None)


async def test_many_commands_are_sent_in_order_in_bounded_frames_before_raw_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger_process, "MAX_FRAME_COMMANDS", 3)
    process = started()
    turn: Any = Filling(11)
    async with recorded(process) as frames:
        process.turns[turn.number] = turn
        cast(LocalProcess, process._process).executor._streams[turn.number] = turn
        process.wake(turn)
        for number in range(11):
            process.send(Cancel(number))
        await until(lambda: turn.delivered)
    assert [len(frame.commands) for frame in frames] == [3, 3, 3, 2]
    assert [command.turn for frame in frames for command in frame.commands if isinstance(command, Cancel)] == [*range(11)]
    assert [len(frame.delivered) for frame in frames] == [0, 0, 0, 1]


async def test_many_turns_fill_their_raw_events_in_bounded_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger_process, "MAX_FILLED_TURNS", 4)
    process = started()
    turns: list[Any] = [Filling(number) for number in range(1, 11)]
    async with recorded(process) as frames:
        executor = cast(LocalProcess, process._process).executor
        for turn in turns:
            process.turns[turn.number] = turn
            executor._streams[turn.number] = turn
            process.wake(turn)
        await until(lambda: all(turn.delivered for turn in turns))
    assert [len(frame.delivered) for frame in frames] == [4, 4, 2]


@pytest.mark.parametrize(("kind", "how", "has_traceback"), [("StreamEnded", {}, False), ("RuntimeError", {"fail_turns": 1}, True)])
async def test_only_an_error_of_the_trigger_has_a_traceback(kind: str, how: dict[str, Any], *, has_traceback: bool) -> None:
    described = {"classpath": "headrace.sources.memory.upstream.Memory", "kwargs": {"name": "n", "lanes": None}}
    workload = RunTrigger(
        trigger_id=1,
        name="one",
        classpath="scenario_triggers.Behaving",
        kwargs={"name": "one", "upstream": described, "tag": "", "how": how},
        stream="memory:n",
        queue="default",
        epoch=1,
        log_name="log",
    )
    process, failures = started(), list[Failure | None]()
    turn: Any = Filling(1)
    turn.take = lambda step: failures.append(step.failure) if isinstance(step, Ended) else None
    async with recorded(process):
        process.turns[1] = turn
        process.send(Begin(1, workload.model_dump_json().encode(), True))
        process.send(Close(1, "StreamEnded", "The topic was deleted."))
        await until(lambda: failures)
    (failed,) = failures
    assert failed is not None
    assert bool(failed.traceback) == has_traceback
    assert failed.type == kind
