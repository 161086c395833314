"""A step over the trees that a batch affects has the same result and order as a step over all waiting events."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

from headrace.core.ordering.causal_order import Offered
from headrace.pipeline.kernel import kernel as kernel_module
from headrace.pipeline.kernel import waiting_events
from headrace.pipeline.kernel.kernel import Kernel, KernelResult
from support.ordering.kernel import LOOKBACK, apply, batch, key

EVENTS = 1_500
ALWAYS, NEVER = 0, 10**12


def history(chance: Random) -> list[list[Offered]]:
    """Long chains, fans, cycles, copies and leaders that never come, in small batches."""
    leaders: dict[int, int | None] = {}
    reach = chance.choice([1, 3, 50, EVENTS])
    for event in range(EVENTS):
        kind = chance.random()
        leaders[event] = None if kind < 0.02 else -event if kind < 0.03 else max(0, event - chance.randint(1, reach))
    for _ in range(chance.choice([0, 5])):  # close some cycles
        leaders[chance.randrange(EVENTS // 2)] = chance.randrange(EVENTS)
    order = list(leaders)
    far = chance.choice([5, 100, EVENTS])
    order.sort(key=lambda event: event + chance.random() * far, reverse=chance.random() < 0.3)
    order += chance.sample(order, 50)
    seqs: dict[int, int] = {}
    offered: list[Offered] = []
    for seq, event in enumerate(order, 1):
        leader = leaders[event]
        stamp = -1 if leader is None else seqs.get(leader, -1)
        offered.append((seq, key(f"{event}"), None if leader is None else key(f"{leader}"), stamp, chance.randrange(5), f"{event}"))
        seqs.setdefault(event, seq)
    cuts = sorted(chance.sample(range(len(offered)), chance.choice([10, 100])))
    return [offered[start:end] for start, end in itertools.pairwise([0, *cuts, len(offered)])]


def step(kernel: Kernel, ratio: int, offered: list[Offered], now: int) -> KernelResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_module, "SUBSET_RATIO", ratio)
        patch.setattr(waiting_events, "MIN_CAPACITY", 16)
        return kernel.step(batch(offered), now)


def hold_equal(seed: int) -> None:
    chance = Random(seed)
    full, subset, now = Kernel(LOOKBACK), Kernel(LOOKBACK), 0
    entries: dict[str, bytes] = {}
    for offered in [*history(chance), []]:
        now += chance.choice([0, 1, LOOKBACK // 100, LOOKBACK // 5]) if offered else LOOKBACK
        expected = step(full, NEVER, offered, now)
        told = step(subset, ALWAYS if chance.random() < 0.9 else NEVER, offered, now)
        for column in ("seqs", "marks", "waited"):
            assert np.array_equal(getattr(told, column), getattr(expected, column)), column
        if chance.random() < 0.1:
            apply(subset.changes(), entries)
            full.lookback = chance.choice([0, LOOKBACK // 10, LOOKBACK])
            subset = Kernel.restore(entries, full.lookback)
        if chance.random() < 0.1:
            assert subset.snapshot() == full.snapshot()
    assert subset.snapshot() == full.snapshot()
    assert not len(subset)


@pytest.mark.parametrize("seed", range(12))
def test_both_kinds_of_step_give_the_same_result(seed: int) -> None:
    hold_equal(seed)


def test_a_small_batch_among_many_waiting_events_writes_few_bytes() -> None:
    many, kernel = 20_000, Kernel(LOOKBACK)
    kernel.step(batch([(i + 1, key(f"f{i}"), key(f"l{i // 20}"), -1, 0, f"f{i}") for i in range(many)]), 0)
    entries: dict[str, bytes] = {}
    apply(kernel.changes(), entries)
    for number in range(20):
        leaders = [(many + 5 * number + i + 1, key(f"l{50 * number + i}"), None, -1, 0, f"l{i}") for i in range(5)]
        assert len(kernel.step(batch(leaders), 1).seqs) == 5 * 21
        changes = kernel.changes()
        apply(changes, entries)
        assert sum(len(value) for value in changes.values() if value is not None) < 300_000
    assert Kernel.restore(entries, LOOKBACK).snapshot() == kernel.snapshot()
