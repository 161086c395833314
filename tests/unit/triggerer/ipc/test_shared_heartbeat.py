"""The pulse shows whose code runs, also in what that started, and nothing between."""

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


async def test_the_pulse_beats_while_the_loop_turns() -> None:
    pulse = SharedHeartbeat()
    pulse.start()
    assert pulse.beats == 1
    async with asyncio.timeout(120):
        while pulse.beats < 3:
            await asyncio.sleep(0.01)


async def test_triggers_that_are_busy_in_turn_block_nothing() -> None:
    pulse = SharedHeartbeat()

    async def busy() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    await asyncio.Task(TrackedCoroutine(busy(), pulse, TriggerContext(5, "five", "log")))
    assert pulse.beats == 4
    with pulse.at(5):
        pass
    assert pulse.beats == 5


async def test_what_a_trigger_starts_is_the_trigger_s() -> None:
    pulse = SharedHeartbeat()
    pulse.start()
    seen: list[int | None] = []

    async def child() -> None:
        seen.append(pulse.running)
        await asyncio.sleep(0)
        seen.append(pulse.running)

    async def filtering() -> None:
        current_trigger.set(TriggerContext(5, "five", "log"))
        seen.append(pulse.running)
        await asyncio.create_task(child())

    running = TriggerContext(5, "five", "log")
    await asyncio.Task(TrackedCoroutine(filtering(), pulse, running))
    assert seen == [5, 5, 5]
    assert pulse.running is None


async def test_a_coroutine_that_raises_or_is_cancelled_is_not_shown_any_more() -> None:
    pulse = SharedHeartbeat()

    async def raising() -> None:
        await asyncio.sleep(0)
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        await asyncio.Task(TrackedCoroutine(raising(), pulse, TriggerContext(3, "three", "log")))
    waiting = asyncio.Task(TrackedCoroutine(asyncio.Event().wait(), pulse, TriggerContext(3, "three", "log")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert pulse.running is None
