"""Measure the kernel on one core in events per second of processor time, for shapes that are hard to order. Print JSON."""

from __future__ import annotations

import json
import os
from time import process_time
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.kernel.forest import Rows
from headrace.pipeline.kernel.kernel import Kernel
from headrace.pipeline.kernel.key_index import column_of

SEED: Final = 1
MILLION: Final = 1_000_000


def shapes() -> dict[str, tuple[Rows, Rows]]:
    """Return by name the events in order of arrival and the leader of each event, or -1 if it has none."""
    random = np.random.default_rng(SEED)
    events, chain = np.arange(MILLION), np.arange(100_000)
    tens = np.where(events % 10 == 0, -1, events - 1)
    fans = np.where(events % 10_000 == 9_999, -1, events // 10_000 * 10_000 + 9_999)
    return {
        "1,000,000 in chains of 10, all shuffled": (random.permutation(events), tens),
        "a reversed chain of 100,000": (chain[::-1].copy(), chain - 1),
        "a reversed chain of 1,000,000": (events[::-1].copy(), events - 1),
        "1,000,000 followers of 100 leaders that arrive after their 9,999 followers": (events, fans),
    }


def batch(arrivals: Rows, leaders: Rows) -> pa.Table:
    """Return events with the columns of the log."""
    keys: npt.NDArray[np.uint64] = np.random.default_rng(SEED).integers(0, 2**63, (len(arrivals), 2)).astype(np.uint64)
    followed = leaders[arrivals]
    seqs = np.arange(1, len(arrivals) + 1)
    seq_of = np.empty(len(arrivals), dtype=np.int64)
    seq_of[arrivals] = seqs
    leader_seqs = np.where(followed >= 0, seq_of[np.maximum(followed, 0)], -1)
    return pa.table(
        {
            "seq": seqs,
            "key": column_of(keys[arrivals]),
            "leader_key": column_of(keys[np.maximum(followed, 0)], followed >= 0),
            "leader_seq": np.where(leader_seqs < seqs, leader_seqs, -1),
            "occurred": arrivals * 1_000,
            "id": pa.array(arrivals).cast(pa.string()),
        }
    )


def measure(rounds: int = 3) -> dict[str, Any]:
    """Return the best round of each shape: in one batch, and in ten batches with the changes to store after each."""
    answer: dict[str, Any] = {"goal": MILLION, "load": os.getloadavg()[0]}
    for name, (arrivals, leaders) in shapes().items():
        events = batch(arrivals, leaders)
        answer[name] = {
            "one batch": round(len(arrivals) / min(_one(events) for _ in range(rounds))),
            "ten batches, with the changes to store": round(len(arrivals) / min(_ten(events) for _ in range(rounds))),
        }
    return answer


def _one(events: pa.Table) -> float:
    begun = process_time()
    released = len(Kernel(lookback=1).step(events, 0).seqs)
    took = process_time() - begun
    assert released == events.num_rows
    return took


def _ten(events: pa.Table) -> float:
    size = -(-events.num_rows // 10)
    begun = process_time()
    kernel = Kernel(lookback=1)
    released = 0
    for start in range(0, events.num_rows, size):
        released += len(kernel.step(events.slice(start, size), 0).seqs)
        kernel.changes()
    took = process_time() - begun
    assert released == events.num_rows
    return took


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
