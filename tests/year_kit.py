"""A year in minutes: days of files, events and task runs on a store whose clock is turned, with a round of retention after each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select

from custody_kit import answered, books
from headrace.core.crews import EMPTY, crew_digest, digest_text
from headrace.store import Store, open_store
from headrace.store.deferred_tables import deferred_runs
from headrace.store.tables import backlog, crews, custody, events, lanes, triggers
from headrace.store.tidier import Tidier
from headrace.wire.custody import CrewDefinition, Receipt
from headrace.wire.deferred import AwaitedTrigger, StartRun, Waiting
from headrace.wire.events import EventBatch
from headrace.wire.jobs import Heartbeat
from headrace.wire.triggers import CleanupTriggers
from store_kit import Holder, TurnedClock, event, holder

DAY_SECONDS = 86_400
WATCHES = ("first", "second", "third")
TABLES = {"events": events, "lanes": lanes, "crews": crews, "books": custody, "triggers": triggers, "runs": deferred_runs, "kept": backlog}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a day brings, and for how many days it is kept. `waiting` runs wait at any time; `together` of them come and go at once."""

    files: int = 100
    runs: int = 100
    waiting: int = 200
    together: int = 10
    payload: int = 300
    retention: int = 10


class Figures(NamedTuple):
    """What there is at the end of a day: rows of tables, bytes of the database, and what an opening and a heartbeat take."""

    day: int
    rows: dict[str, int]
    megabytes: float
    opened: float
    marks: int
    heartbeat: int


def year(url: str, path: Path, shape: Shape, days: int) -> Iterator[Figures]:
    """Yield the figures of each day; the books must balance at the end of each."""
    clock = TurnedClock()
    store = open_store(url, clock=clock)
    owner = holder(store, *WATCHES, hostname="year")
    running: list[str] = []
    crew, members = EMPTY, frozenset[int]()
    try:
        for day in range(days):
            _files(owner, shape, day)
            crew, members = _runs(owner, shape, day, running, crew, members)
            clock.turn(DAY_SECONDS)
            store.jobs.heartbeat(owner.job_id, Heartbeat())
            Tidier(store, shape.retention).tidy()
            assert books(store).clean
            store.close()
            started = time.perf_counter()
            store = owner.store = open_store(url, clock=clock)
            opened = time.perf_counter() - started
            yield Figures(day, _rows(store), _megabytes(store, path), opened, *_sizes(owner, day))
    finally:
        store.close()


def _files(owner: Holder, shape: Shape, day: int) -> None:
    ids = sorted(owner.epochs)[: len(WATCHES)]
    for number in range(shape.files):
        lane, read = f"{day}/{number}.jsonl", 10
        items = [event(f"{lane}/{line}", *ids, lane=lane, position=line, payload=f'"{"x" * shape.payload}"') for line in range(read)]
        receipt = Receipt(
            stream="folder", lane=lane, after=None, last=read - 1, read=read, owed=ids, answers=[answered(one, fired=read) for one in ids]
        )
        batch = EventBatch(epochs={one: owner.epochs[one] for one in ids}, events=items, receipts=[receipt])
        owner.store.log.append(owner.job_id, batch)


def _runs(owner: Holder, shape: Shape, day: int, running: list[str], crew: int, members: frozenset[int]) -> tuple[int, frozenset[int]]:
    """Let runs come and go on another stream, a few at a time: each time another set of triggers owes what is read."""
    store = owner.store
    for number in range(shape.runs):
        run = f"{day}-{number}"
        awaited = AwaitedTrigger(classpath="some.Trigger", kwargs={})
        store.task_runs.start("flights", StartRun(run_id=run, task="t", waiting=Waiting(method="m", trigger=awaited)))
        running.append(run)
        if len(running) > shape.waiting:
            store.task_runs.cancel(running.pop(0))
        if number % shape.together != shape.together - 1:
            continue
        _let_go(owner)
        now = frozenset(owner.epochs) - set(range(1, len(WATCHES) + 1))
        joined, departed = sorted(now - members), sorted(members - now)
        digest = crew_digest(joined, departed, crew)
        given = CrewDefinition(
            stream="queue", digest=digest_text(digest), base=digest_text(crew) if crew else None, joined=joined, departed=departed
        )
        if not store.custody.define(owner.job_id, given).defined:
            whole = given.model_copy(update={"base": None, "joined": sorted(now), "departed": []})
            assert store.custody.define(owner.job_id, whole).defined
        crew, members = digest, now
        last = day * shape.runs + number
        after = last - shape.together if last > shape.together else None
        receipt = Receipt(stream="queue", lane="0", after=after, last=last, read=10, owed=[], crew=digest_text(crew))
        batch = EventBatch(epochs={}, receipts=[receipt])
        assert store.log.append(owner.job_id, batch).receipts == ["stored"]
    return crew, members


def _let_go(owner: Holder) -> None:
    before = owner.epochs
    owner.load(1_000_000)
    gone = [one for one in before if one not in owner.epochs]
    owner.store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=gone))


def _rows(store: Store) -> dict[str, int]:
    with store.reading() as connection:
        return {name: connection.execute(select(func.count()).select_from(table)).scalar_one() for name, table in TABLES.items()}


def _megabytes(store: Store, path: Path) -> float:
    if path.exists():
        return path.stat().st_size / 1e6
    with store.reading() as connection:
        return float(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()) / 1e6


def _sizes(owner: Holder, day: int) -> tuple[int, int]:
    """Return the bytes of the marks that a stream's opening asks for, and of a heartbeat's answer."""
    marks = owner.store.custody.marks(owner.job_id, "folder", [f"{day}/{number}.jsonl" for number in range(16)])
    answer = owner.store.jobs.heartbeat(owner.job_id, Heartbeat())
    return len(marks.model_dump_json()), len(answer.model_dump_json())
