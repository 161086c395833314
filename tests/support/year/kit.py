"""Days of files, events and task runs on a store whose clock is turned, with a round of retention after each, and what there is then."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any, NamedTuple, TypeVar, cast
from unittest.mock import patch

import psycopg
from sqlalchemy import Connection, func, select

from headrace.sources.directory.upstream import Directory
from headrace.store import Liveness, Store, open_store
from headrace.store.db.ages import KEY_RETENTIONS, AgeClock
from headrace.store.queries.status import overview
from headrace.store.retention.pruner import Pruner
from headrace.store.tables.base import age_marks
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.custody import backlog, lanes, subscriber_sets, trigger_answers
from headrace.store.tables.log import events, firings, pruned_event_keys
from headrace.store.tables.task_runs import run_events, task_runs
from headrace.wire.control.jobs import Heartbeat
from support.processes.store import Holder, TurnedClock, declaration, registration
from support.sources.custody import books
from support.year.runs import DayOfRuns
from support.year.triggerer import Triggerer, folder_figures, remove

T = TypeVar("T")

DAY_SECONDS = 86_400
WEEK = 7
WATCHES = ("first", "second", "third")
TABLES = {
    "events": events,
    "firings": firings,
    "pruned event keys": pruned_event_keys,
    "lanes": lanes,
    "subscriber sets": subscriber_sets,
    "books": trigger_answers,
    "triggers": triggers,
    "task runs": task_runs,
    "events of runs": run_events,
    "backlog": backlog,
    "jobs": jobs,
    "age marks": age_marks,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a day brings, and for how many days it is kept.

    Of the runs `live` go through every call, the others are inserted as rows; `waiting` of the first wait at any time.
    """

    files: int = 100
    lines: int = 10
    line_bytes: int = 300
    runs: int = 100
    live: int = 100
    waiting: int = 50
    retention: int = 10
    seed: int = 1


class Step(NamedTuple):
    """One transaction of retention: seconds of the clock until it is durable, of this process's processor time, and what it was."""

    wall: float
    processor: float
    name: str


@dataclass(slots=True)
class Day:
    """What a day came to: `figures` must not grow with the days, `pace` is how long its parts took, in seconds.

    `retention` are the transactions of its round of retention, of which the rests between them are left out.
    """

    number: int
    retention: list[Step] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)


def steady_from(shape: Shape) -> int:
    """Return the first day after which nothing may grow: as many days are behind it as the longest is kept, the keys of events."""
    return (KEY_RETENTIONS if shape.files else 1) * shape.retention + 1


class Retention:
    """A store as the tidier sees it, which measures each of its transactions."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.steps: list[Step] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Measure a work of the writer."""
        begun, worked = perf_counter(), process_time()
        answer = self._store.write(work)
        self.steps.append(Step(perf_counter() - begun, process_time() - worked, _named(work)))
        return answer

    def prune(self, sweep: Callable[[Connection], int]) -> int:
        """Measure a sweep."""
        return self.write(sweep)

    def run(self, days: float) -> None:
        """Run one round, without its rests."""
        with patch("headrace.store.retention.pruner.PAUSE_SECONDS", 0.0):
            Pruner(cast(Store, self), days).prune()


class Year:
    """One simulation. `home` holds the folder that is watched, and the database where that is SQLite's."""

    def __init__(self, url: str, home: Path, shape: Shape) -> None:
        self._url, self._home, self._shape = url, home, shape
        self._clock = TurnedClock()
        self._random = Random(shape.seed)
        self._store = self._open()
        self._folder = home / "inbox"
        self._folder.mkdir()
        directory = Directory(self._folder, keep_done=shape.retention)
        job = self._store.jobs.register(registration(hostname="year"))
        self._store.projects.declare(job.id, "flights", declaration(*WATCHES, stream=directory.stream_key()))
        self._owner = Holder(self._store, job.id, {})
        self._owner.load()
        self._triggerer = Triggerer(self._owner, directory, self._folder)
        self._runs = DayOfRuns(self._triggerer, shape.waiting, self._random)

    def days(self, count: int) -> Iterator[Day]:
        """Yield each day; the books must balance at the end of each."""
        with asyncio.Runner() as runner, self._dated():
            runner.run(self._triggerer.start())
            try:
                for number in range(count):
                    day = Day(number)
                    if number % WEEK == 0:
                        day.pace["opening of the store"] = self._reopen()
                        day.pace["opening of the folder"] = runner.run(self._triggerer.reopen())
                    runner.run(self._live(day))
                    self._end(day)
                    day.figures["heartbeat bytes"] = float(len(runner.run(self._triggerer.heartbeat())))
                    yield day
            finally:
                runner.run(self._triggerer.close())
                self._store.close()
                remove(self._folder)

    async def _live(self, day: Day) -> None:
        shape = self._shape
        if shape.files:
            day.pace["files"] = await self._triggerer.read_files(day.number, shape.files, shape.lines, shape.line_bytes, self._random)
        day.pace["live runs"] = await self._runs.live(shape.live)
        if shape.runs > shape.live:
            day.pace["runs as rows"] = self._runs.insert(shape.runs - shape.live, self._store.now())

    def _end(self, day: Day) -> None:
        self._clock.turn(DAY_SECONDS)
        answer = self._store.jobs.heartbeat(self._owner.job_id, Heartbeat())
        self._runs.heartbeat()
        retention = Retention(self._store)
        retention.run(self._shape.retention)
        self._vacuum()
        day.retention = retention.steps
        assert books(self._store).clean
        day.figures |= {
            **_disk(self._store, self._home),
            "heartbeat answer bytes": float(len(answer.model_dump_json())),
            "resident MB": _resident(),
            "Python objects": float(_objects()),
            "status ms": self._status() * 1000,
            **folder_figures(self._folder),
            **self._rows(),
        }

    def _vacuum(self) -> None:
        """Do what PostgreSQL's autovacuum does in a real day: it wakes once a minute, and a simulated day is over before."""
        if self._url.startswith("postgresql"):
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute("VACUUM")

    def _reopen(self) -> float:
        self._store.close()
        begun = perf_counter()
        self._store = self._owner.store = self._open()
        return perf_counter() - begun

    def _open(self) -> Store:
        # The jobs say nothing while a day is simulated, however long that takes.
        store = open_store(self._url, clock=self._clock, liveness=Liveness(threshold=DAY_SECONDS * 1_000_000))
        store.ages = AgeClock(self._clock.ticks)
        return store

    def _rows(self) -> dict[str, float]:
        with self._store.reading() as connection:
            count = select(func.count())
            return {f"rows: {name}": float(connection.execute(count.select_from(table)).scalar_one()) for name, table in TABLES.items()}

    def _status(self) -> float:
        best = 60.0
        for _ in range(3):
            begun = process_time()
            with self._store.reading() as connection:
                overview(connection, self._store.now(), self._store.liveness)
            best = min(best, process_time() - begun)
        return best

    @contextmanager
    def _dated(self) -> Iterator[None]:
        """Let finished files go into folders of the days that are simulated."""

        def day() -> date:
            return datetime.fromtimestamp(self._clock.now / 1e6, UTC).date()

        with patch("headrace.sources.directory.folder.day", day):
            yield


def _named(work: Callable[..., Any]) -> str:
    """Return the name of a work of the tidier, or of the sweep in it."""
    inner = getattr(work, "func", work)
    cells = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or ()]
    names = [getattr(cell, "__name__", "") for cell in cells if callable(cell)]
    return str(next((name for name in names if name), getattr(inner, "__name__", "?"))).replace("_", " ")


def _disk(store: Store, home: Path) -> dict[str, float]:
    """Return the megabytes of the database, and of its write-ahead log."""
    if files := list(home.glob("headrace.db")):
        logs = sum(path.stat().st_size for path in home.glob("headrace.db-*"))
        return {"disk MB": files[0].stat().st_size / 1e6, "write-ahead log MB": logs / 1e6}
    query = "SELECT pg_database_size(current_database()), (SELECT sum(size) FROM pg_ls_waldir())"
    with store.reading() as connection:
        data, logs = connection.exec_driver_sql(query).one()
    return {"disk MB": float(data) / 1e6, "write-ahead log MB": float(logs) / 1e6}


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())
