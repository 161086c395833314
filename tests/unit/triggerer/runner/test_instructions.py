"""Waiting instructions are merged into one instruction that applies them in order."""

from __future__ import annotations

import asyncio

from headrace.triggerer.ipc.messages import Drain, RunTriggers, Workload
from headrace.triggerer.runner.instructions import Instructions
from headrace.triggerer.runner.leases import Leases


async def test_waiting_instructions_are_merged() -> None:
    instructions = Instructions()
    instructions.put(Workload(b"one"))
    instructions.put(RunTriggers({1: 1, 2: 1, 4: 1}, [7], [], {7: 3}, {1: 5}, [7]))
    instructions.put(Workload(b"two"))
    instructions.put(Workload(b"three"))
    instructions.put(RunTriggers({2: 2, 3: 1}, [1], [], {1: 1, 8: 2}, {2: 6}, [8]))
    instructions.put(Workload(b"four"))
    instructions.put(RunTriggers({7: 4}))
    instructions.put(Workload(b"of the next"))
    merged = RunTriggers({2: 2, 4: 1, 3: 1, 7: 4}, [1], [b"one", b"two", b"three", b"four"], {1: 1, 8: 2}, {1: 5, 2: 6}, [7, 8])
    assert await instructions.get() == merged
    waiting = asyncio.create_task(instructions.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    instructions.put(RunTriggers())
    assert await waiting == RunTriggers(workloads=[b"of the next"])


async def test_drain_precedes_leases() -> None:
    instructions = Instructions()
    instructions.put(RunTriggers({1: 1}))
    instructions.put(Drain(3.0))
    assert await instructions.get() == Drain(3.0)


def test_last_epochs_of_released_triggers_are_dropped_once_unused() -> None:
    leases = Leases()
    leases.update(dict.fromkeys((1, 2, 3), 3))
    leases.update({1: 4}, [2, 3])
    assert sorted(leases.released()) == [2, 3]
    leases.drop_released({3})
    assert leases.epochs([1, 2, 3]) == {1: 4, 2: 0, 3: 3}
    assert leases.released() == [3]
