"""Measure a batch of 100 beside 1,000,000 waiting events: milliseconds of processor time and bytes to store. Print JSON.

The step over the trees that a batch affects is compared with the step over all waiting events, for the same kinds of batches. Another
part measures the batching of a pipeline that holds 1,500,000 events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from statistics import median
from time import process_time
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.kernel import kernel as kernel_module
from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import Kernel
from headrace.pipeline.kernel.key_index import Keys, column_of
from headrace.pipeline.kernel.segments import Changes
from headrace.pipeline.ordering.held_events import HeldEvents

SEED: Final = 1
WAITING: Final = 1_000_000
HELD: Final = 1_500_000
BATCH: Final = 100
DEPTH: Final = 10
DAY: Final = 86_400_000_000
GOAL_MS: Final = 150
GOAL_BYTES: Final = 1_000_000


class Cost(NamedTuple):
    """The cost of a batch: milliseconds of processor time, and bytes to store."""

    ms: float
    bytes: int


class Feed:
    """Generates shuffled chains of 10 whose first event arrives last, then batches of 100."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(SEED)
        self._keys = self._new(WAITING // (DEPTH - 1) * DEPTH + DEPTH)
        events = np.arange(len(self._keys))
        self._followers = self._random.permutation(events[events % DEPTH != 0][:WAITING])
        self._first = self._random.permutation(events[events % DEPTH == 0])
        self._seq = 0

    def followers(self, size: int) -> Iterator[pa.Table]:
        for start in range(0, WAITING, size):
            some = self._followers[start : start + size]
            yield self._table(self._keys[some], self._keys[some - 1])

    def releasing(self) -> pa.Table:
        """Return the first events of 10 chains, among events without a leader."""
        first, self._first = self._first[:DEPTH], self._first[DEPTH:]
        return self._table(np.concatenate([self._keys[first], self._new(BATCH - DEPTH)]), None)

    def joining(self) -> pa.Table:
        """Return events that follow waiting events."""
        return self._table(self._new(BATCH), self._keys[self._random.choice(self._followers, BATCH, replace=False)])

    def above(self) -> pa.Table:
        """Return the first events of 50 chains and 50 other events, all with leaders that have not arrived."""
        first, self._first = self._first[: BATCH // 2], self._first[BATCH // 2 :]
        return self._table(np.concatenate([self._keys[first], self._new(BATCH - len(first))]), self._new(BATCH))

    def _new(self, count: int) -> Keys:
        return self._random.integers(0, 2**63, (count, 2)).astype(np.uint64)

    def _table(self, keys: Keys, leaders: Keys | None) -> pa.Table:
        count = len(keys)
        seqs = np.arange(self._seq + 1, self._seq + count + 1)
        self._seq += count
        has: npt.NDArray[np.bool_] = np.full(count, leaders is not None)
        return pa.table(
            {
                "seq": seqs,
                "key": column_of(keys),
                "leader_key": column_of(keys if leaders is None else leaders, has),
                "leader_seq": np.full(count, -1),
                "occurred": seqs,
                "id": pa.array([f"flight-2026-{seq:012d}" for seq in seqs.tolist()]),
            }
        )


def measure(rounds: int = 100) -> dict[str, Any]:
    """Return medians and worst cases by kind of batch."""
    feed, kernel = Feed(), Kernel(DAY)
    begun = process_time()
    for batch in feed.followers(20_000):
        kernel.step(batch, 0)
        kernel.changes()
    answer: dict[str, Any] = {"goal": f"{GOAL_MS} ms, {GOAL_BYTES:,} bytes", "load": os.getloadavg()[0]}
    answer["1,000,000 followers in batches of 20,000, events/s"] = round(WAITING / (process_time() - begun))
    kinds: dict[str, Callable[[], pa.Table]] = {"releasing": feed.releasing, "joining": feed.joining, "above": feed.above}
    kernel.step(feed.releasing(), 1)  # indexes the events since the last small batch
    for name, batch_of in kinds.items():
        answer[name] = _summary([_step(kernel, batch_of(), ratio=kernel_module.SUBSET_RATIO) for _ in range(rounds)])
        answer[f"{name}, over all waiting events"] = _summary([_step(kernel, batch_of(), ratio=len(kernel)) for _ in range(3)])
        kernel.step(batch_of(), 1)
    answer["held"] = _summary(list(_held(rounds)))
    return answer


def _step(kernel: Kernel, batch: pa.Table, ratio: int) -> Cost:
    before, kernel_module.SUBSET_RATIO = kernel_module.SUBSET_RATIO, ratio  # type: ignore[misc]
    try:
        return _cost(lambda: (kernel.step(batch, 1), kernel.changes())[1])
    finally:
        kernel_module.SUBSET_RATIO = before  # type: ignore[misc]


def _held(rounds: int) -> Iterator[Cost]:
    """Yield the cost to hold 100 more events and to take 100."""
    held, columns = HeldEvents("held/0/"), np.arange(HELD)
    held.append(columns, columns, np.zeros(HELD, dtype=np.int8), 0)
    held.changes()
    for number in range(rounds):
        more = np.arange(HELD + number * BATCH, HELD + (number + 1) * BATCH)
        yield _cost(lambda more=more: _hold(held, more))  # type: ignore[misc]


def _hold(held: HeldEvents, seqs: Rows) -> Changes:
    held.append(seqs, seqs, np.zeros(len(seqs), dtype=np.int8), 1)
    held.take(BATCH)
    assert held.lowest is not None
    return held.changes()


def _cost(work: Callable[[], Changes]) -> Cost:
    begun = process_time()
    changes = work()
    return Cost(1000 * (process_time() - begun), sum(len(value) for value in changes.values() if value is not None))


def _summary(costs: list[Cost]) -> dict[str, float]:
    return {
        "median_ms": round(median(cost.ms for cost in costs), 1),
        "worst_ms": round(max(cost.ms for cost in costs), 1),
        "median_bytes": round(median(cost.bytes for cost in costs)),
        "worst_bytes": max(cost.bytes for cost in costs),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
