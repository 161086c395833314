"""Measure pruning on SQLite: how long one slice holds the writers' lock, and the delay of concurrent appends."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from headrace.store import Store, open_store
from headrace.store.db.ages import AgeLimit
from headrace.store.retention.event_log import logged_events
from headrace.store.retention.pruner import BATCH_ROWS, PAUSE_SECONDS
from headrace.wire.control.jobs import RegisterJob
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, LoadTriggers
from headrace.wire.custody.events import EventBatch, EventItem

BATCH: Final = 1_000
PAYLOAD: Final = '"' + "x" * 300 + '"'
APPENDS: Final = 200


def measure(events: int = 200_000) -> dict[str, Any]:
    """Return the cost of pruning half of a log of `events` events during concurrent appends."""
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="bench-pruning-") as folder:
        path = Path(folder) / "log.db"
        store = open_store(f"sqlite:///{path}")
        try:
            job, epochs = _triggerer(store)
            for start in range(0, events, BATCH):
                _append(store, job, epochs, start)
            alone = [_append(store, job, epochs, events + n * 10, 10) for n in range(APPENDS)]
            held, beside = _prune(store, job, epochs, events)
        finally:
            store.close()
    return {
        "events": events,
        "load": round(load, 2),
        "rows per transaction": BATCH_ROWS,
        "lock held, median and maximum, ms": _ms(held),
        "append of 10 without pruning, median and maximum, ms": _ms(alone),
        "append of 10 during pruning, median and maximum, ms": _ms(beside),
        "events pruned/s, pauses included": round(BATCH_ROWS / (sum(held) / len(held) + PAUSE_SECONDS)),
    }


def _prune(store: Store, job: int, epochs: dict[int, int], events: int) -> tuple[list[float], list[float]]:
    """Prune half of the log in slices during concurrent appends; return the seconds of each slice and of each append."""
    held: list[float] = []
    over = threading.Event()
    pause = threading.Event()

    def slice_rows(connection: Any) -> int:
        began = perf_counter()
        pruned = logged_events(connection, AgeLimit(events, events, 0, 0), BATCH_ROWS)
        held.append(perf_counter() - began)
        return pruned.rows

    def prune() -> None:
        for _ in range(events // 2 // BATCH_ROWS):
            store.prune(slice_rows)
            pause.wait(PAUSE_SECONDS)
        over.set()

    thread = threading.Thread(target=prune)
    thread.start()
    beside: list[float] = []
    while not over.is_set():
        beside.append(_append(store, job, epochs, 2 * events + len(beside) * 10, 10))
    thread.join()
    return held, beside


def _triggerer(store: Store) -> tuple[int, dict[int, int]]:
    job = store.jobs.register(RegisterJob(registration_id="bench-pruning", kind="triggerer", hostname="here", pid=1, project="bench")).id
    declared = DeclareProject(triggers=[DeclaredTrigger(name="all", classpath="some.Trigger", kwargs={}, stream="folder")], pipelines=[])
    store.projects.declare(job, "bench", declared)
    leases = store.triggers.load(job, LoadTriggers(capacity=1)).leases
    return job, {lease.trigger_id: lease.epoch for lease in leases}


def _append(store: Store, job: int, epochs: dict[int, int], start: int, count: int = BATCH) -> float:
    items = [
        EventItem(id=f"{n}", source="bench", type="leg", payload=PAYLOAD, firings=list(epochs), follows=f"{n - 1}")
        for n in range(start, start + count)
    ]
    began = perf_counter()
    stored = store.log.append(job, EventBatch(epochs=epochs, events=items))
    took = perf_counter() - began
    assert set(stored.events) == {"stored"}
    return took


def _ms(took: list[float]) -> list[float]:
    ordered = sorted(took)
    return [round(1000 * ordered[len(ordered) // 2], 1), round(1000 * ordered[-1], 1)]
