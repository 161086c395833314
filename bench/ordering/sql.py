"""Measure the durable SQL store on SQLite in events per second of wall time: offered, claimed and settled in batches."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

from bench.ordering.case import shuffled

from headrace.core.ordering.delivery import OrderedEvent
from headrace.store.ordering.standalone.store import StandaloneOrderingStore
from headrace.store.ordering.transaction import EventFeed

GOAL: Final = 10_000
BATCH: Final = 2_000


def measure(events: int = 20_000, rounds: int = 3) -> dict[str, Any]:
    """Return the figures of the best round."""
    load = os.getloadavg()[0]
    took = [_once(events) for _ in range(rounds)]
    wall, processor = (min(column) for column in zip(*took, strict=True))
    return {
        "events": events,
        "goal": GOAL,
        "load": round(load, 2),
        "events/s": round(events / wall),
        "events/s by processor time": round(events / processor),
        "stuck": 0,
    }


def _once(events: int) -> tuple[float, float]:
    taken = [OrderedEvent.of("", f"{n}", None if follows is None else f"{follows}", n, "{}") for n, follows in shuffled(events)]
    with TemporaryDirectory(prefix="bench-ordering-") as folder:
        store, handled = StandaloneOrderingStore(f"sqlite:///{Path(folder) / 'ordering.db'}", "bench", 10**12, by_age=False), 0
        began, worked = perf_counter(), process_time()
        for start in range(0, events, BATCH):
            store.take(EventFeed.of(taken[start : start + BATCH]), start)
        while claims := store.claim(BATCH, events):
            handled += store.settle(claims, events)
        took = perf_counter() - began, process_time() - worked
        store.close()
    assert handled == events
    return took
