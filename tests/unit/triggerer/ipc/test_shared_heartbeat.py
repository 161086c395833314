"""The heartbeat names the trigger whose code runs, also in tasks that the trigger started, and no trigger in between."""

from __future__ import annotations

import asyncio
import tempfile

import pytest

from headrace.triggerer.context import TriggerContext, current_trigger
from headrace.triggerer.ipc.shared_heartbeat import SIZE, SharedHeartbeat, TrackedCoroutine


def test_another_process_sees_the_same_numbers() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(SIZE)
        ours, theirs = SharedHeartbeat(file.fileno()), SharedHeartbeat(file.fileno())
    with ours.at(7):
        assert theirs.running == 7
    assert theirs.running is None


async def test_the_heartbeat_beats_while_the_loop_turns() -> None:
    heartbeat = SharedHeartbeat()
    heartbeat.start()
    assert heartbeat.beats == 1
    async with asyncio.timeout(120):
        while heartbeat.beats < 3:
            await asyncio.sleep(0.01)


async def test_each_step_of_a_busy_trigger_counts_as_a_beat() -> None:
    heartbeat = SharedHeartbeat()

    async def busy() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    await asyncio.Task(TrackedCoroutine(busy(), heartbeat, TriggerContext(5, "five", "log")))
    assert heartbeat.beats == 4
    with heartbeat.at(5):
        pass
    assert heartbeat.beats == 5


async def test_a_task_that_a_trigger_starts_counts_as_the_trigger() -> None:
    heartbeat = SharedHeartbeat()
    heartbeat.start()
    seen: list[int | None] = []

    async def child() -> None:
        seen.append(heartbeat.running)
        await asyncio.sleep(0)
        seen.append(heartbeat.running)

    async def filtering() -> None:
        current_trigger.set(TriggerContext(5, "five", "log"))
        seen.append(heartbeat.running)
        await asyncio.create_task(child())

    running = TriggerContext(5, "five", "log")
    await asyncio.Task(TrackedCoroutine(filtering(), heartbeat, running))
    assert seen == [5, 5, 5]
    assert heartbeat.running is None


async def test_a_coroutine_that_raised_or_was_cancelled_is_not_shown_as_running() -> None:
    heartbeat = SharedHeartbeat()

    async def raising() -> None:
        await asyncio.sleep(0)
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        await asyncio.Task(TrackedCoroutine(raising(), heartbeat, TriggerContext(3, "three", "log")))
    waiting = asyncio.Task(TrackedCoroutine(asyncio.Event().wait(), heartbeat, TriggerContext(3, "three", "log")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert heartbeat.running is None
