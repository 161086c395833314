"""Fill the log that the benchmarks of the pipeline read."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from headrace.store import Liveness, open_store
from headrace.wire.control.jobs import RegisterJob
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, LoadTriggers
from headrace.wire.custody.events import EventBatch, EventItem

PROJECT: Final = "bench"
CHAIN: Final = 10
SHUFFLED: Final = 50_000
"""Number of events that are shuffled among themselves."""


def registration(kind: Any) -> RegisterJob:
    """Return the registration of a new process of this kind."""
    return RegisterJob(registration_id=uuid4().hex, kind=kind, hostname="bench", pid=1, project=PROJECT)


def declaration() -> DeclareProject:
    """Return a project of one trigger."""
    return DeclareProject(triggers=[DeclaredTrigger(name="legs", classpath="bench.Legs", kwargs={})], pipelines=[])


def history(count: int, payload: int, name: str, firing: int) -> list[EventItem]:
    """Return shuffled chains of CHAIN events."""
    text = json.dumps({"n": 1, "text": "x" * max(0, payload - 20)})
    items = [
        EventItem(
            id=f"{name}-{number}",
            source="bench",
            type="leg",
            follows=f"{name}-{number - 1}" if number % CHAIN else None,
            payload=text,
            firings=[firing],
        )
        for number in range(count)
    ]
    shuffled: list[EventItem] = []
    for start in range(0, count, SHUFFLED):
        part = items[start : start + SHUFFLED]
        random.Random(start).shuffle(part)
        shuffled += part
    return shuffled


def fill(home: Path, count: int, payload: int) -> None:
    """Fill the log of a new database, before an API server opens it."""
    store = open_store(f"sqlite:///{home / 'headrace.db'}", liveness=Liveness(threshold=3_600_000_000))
    job = store.jobs.register(registration("triggerer"))
    store.projects.declare(job.id, PROJECT, declaration())
    (lease,) = store.triggers.load(job.id, LoadTriggers(capacity=10)).leases
    items = history(count, payload, "old", lease.trigger_id)
    for start in range(0, count, 10_000):
        store.log.append(job.id, EventBatch.model_construct(epochs={lease.trigger_id: lease.epoch}, events=items[start : start + 10_000]))
    store.close()
