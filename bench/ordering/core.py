"""Measure the pure core in events per second of processor time, in batches of a log."""

from __future__ import annotations

import os
from time import process_time
from typing import Any, Final

from bench.ordering.case import shuffled

from headrace.causal.memory_store import MemoryOrderingStore
from headrace.core.identity import event_key
from headrace.core.ordering.causal_order import CausalOrder, Offered
from headrace.core.ordering.delivery import OrderedEvent

GOAL: Final = 250_000
BATCH: Final = 2_000


def measure(events: int = 20_000, rounds: int = 5) -> dict[str, Any]:
    """Return the best round of the core alone, and of the memory store with claims and settlement."""
    load = os.getloadavg()[0]
    return {
        "events": events,
        "goal": GOAL,
        "load": round(load, 2),
        "core, events/s": round(events / min(_core(events) for _ in range(rounds))),
        "memory store, claimed and settled, events/s": round(events / min(_memory(events) for _ in range(rounds))),
        "stuck": 0,
    }


def _core(events: int) -> float:
    offered: list[Offered] = []
    seqs: dict[int, int] = {}
    for seq, (n, follows) in enumerate(shuffled(events), 1):
        leader = None if follows is None else bytes(event_key("", f"{follows}"))
        offered.append((seq, bytes(event_key("", f"{n}")), leader, -1 if follows is None else seqs.get(follows, -1), n, f"{n}"))
        seqs[n] = seq
    order, released = CausalOrder(10**12), 0
    began = process_time()
    for start in range(0, events, BATCH):
        released += len(order.offer(offered[start : start + BATCH], start))
    took = process_time() - began
    assert released == events
    return took


def _memory(events: int) -> float:
    taken = [OrderedEvent.of("", f"{n}", None if follows is None else f"{follows}", n) for n, follows in shuffled(events)]
    store, handled = MemoryOrderingStore(10**12, by_age=False), 0
    began = process_time()
    for start in range(0, events, BATCH):
        store.offer(taken[start : start + BATCH], start)
        while claims := store.claim(BATCH, start):
            handled += store.settle(claims, start)
    took = process_time() - began
    assert handled == events
    return took
