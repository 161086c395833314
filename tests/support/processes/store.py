"""What the tests of the store and of the execution API share: databases to run on, a clock to turn, and short ways to make messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from headrace.store import Liveness, Store, open_store
from headrace.store.control.workloads import Workload
from headrace.store.db.migrations import upgrade
from headrace.store.keyring import Keyring
from headrace.wire.control.jobs import JobKind, RegisterJob
from headrace.wire.control.triggers import DeclaredPipeline, DeclaredTrigger, DeclareProject, LoadTriggers
from headrace.wire.custody.events import DeadLetterItem, EventBatch, EventItem
from support.processes.postgres import database_of

DATABASES = ["sqlite", "postgresql"]
SECOND = 1_000_000
START = 1_800_000_000 * SECOND

_registrations = count()


@dataclass
class TurnedClock:
    """A clock in microseconds that a test advances, and a monotonic clock that is never set."""

    now: int = START
    passed: int = 0

    def __call__(self) -> int:
        return self.now

    def ticks(self) -> int:
        return self.passed

    def turn(self, seconds: float) -> None:
        """Let time pass."""
        self.now += int(seconds * SECOND)
        self.passed += int(seconds * SECOND)

    def set(self, seconds: float) -> None:
        """Set the clock forth, or back, without letting any time pass."""
        self.now += int(seconds * SECOND)


def database_url(kind: str, folder: Path) -> str:
    """Return the URL of the database that stands for the folder, the same each time; it has its schema already."""
    return sqlite_of(folder) if kind == "sqlite" else database_of(folder)


def sqlite_of(folder: Path) -> str:
    """Return the URL of the SQLite file of the folder: a copy of one that was migrated, as that takes a tenth of a second each time."""
    path = folder / "headrace.db"
    if not path.exists():
        path.write_bytes(_migrated())
    return f"sqlite:///{path}"


@cache
def _migrated() -> bytes:
    """Return what is in a SQLite file that has the schema and nothing else."""
    with TemporaryDirectory(prefix="headrace-tests-") as folder:
        path = Path(folder) / "headrace.db"
        upgrade(f"sqlite:///{path}")
        return path.read_bytes()


@contextmanager
def opened(kind: str, folder: Path, clock: TurnedClock | None = None, keyring: Keyring | None = None) -> Iterator[Store]:
    clock = clock or TurnedClock()
    store = open_store(database_url(kind, folder), clock=clock, liveness=Liveness(ticks=clock.ticks), keyring=keyring)
    try:
        yield store
    finally:
        store.close()


def registration(kind: JobKind = "triggerer", **other: Any) -> RegisterJob:
    given: dict[str, Any] = {"registration_id": f"registration-{next(_registrations)}", "hostname": "here", "pid": 1, "project": "flights"}
    return RegisterJob(kind=kind, **(given | other))


def declaration(*names: str, stream: str | None = "folder", pipelines: list[str] | None = None, **kwargs: Any) -> DeclareProject:
    return DeclareProject(
        triggers=[DeclaredTrigger(name=name, classpath="some.Trigger", kwargs=kwargs, stream=stream) for name in names],
        pipelines=[DeclaredPipeline(name=name, on=["*"], table=f"{name}_table") for name in pipelines or []],
    )


@dataclass
class Holder:
    """A triggerer's job and the leases that it holds, as its own process would know them."""

    store: Store
    job_id: int
    epochs: dict[int, int]

    def load(self, capacity: int = 100) -> dict[int, int]:
        answer = self.store.triggers.load(self.job_id, LoadTriggers(capacity=capacity))
        self.epochs = {lease.trigger_id: lease.epoch for lease in answer.leases}
        return self.epochs

    def batch(self, *events: EventItem, dead_letters: list[DeadLetterItem] | None = None) -> EventBatch:
        return EventBatch(epochs=self.epochs, events=list(events), dead_letters=dead_letters or [])

    def append(self, *events: EventItem, dead_letters: list[DeadLetterItem] | None = None) -> list[str]:
        answer = self.store.log.append(self.job_id, self.batch(*events, dead_letters=dead_letters))
        return [*answer.events, *answer.dead_letters]


def holder(store: Store, *names: str, **other: Any) -> Holder:
    """Register a triggerer that declares the triggers `names` (none: leaves the project as it is) and holds what it can."""
    job = store.jobs.register(registration(**other))
    if names:
        store.projects.declare(job.id, "flights", declaration(*names))
    made = Holder(store, job.id, {})
    made.load()
    return made


def arguments(workload: Workload) -> Any:
    """Return the keyword arguments of a workload."""
    return msgspec.json.decode(workload.kwargs)


def event(id: str, *firings: int, **other: Any) -> EventItem:
    return EventItem(**({"id": id, "source": "tests", "type": "leg", "payload": "{}", "firings": list(firings) or [1]} | other))


def letter(id: str, *triggers: int, **other: Any) -> DeadLetterItem:
    given = {"id": id, "kind": "malformed", "reason": "not JSON", "stream": "folder", "raw": "{", "triggers": list(triggers) or [1]}
    return DeadLetterItem(**(given | other))
