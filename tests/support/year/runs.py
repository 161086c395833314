"""Task runs of a day: some through every call that makes a run, the others as rows that are shaped as those are."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from time import perf_counter
from typing import Any

from sqlalchemy import Connection, select

from headrace.store import Store
from headrace.store.dialects.statements import BulkInsert
from headrace.store.tables.task_runs import task_runs
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.control.triggers import CleanupTriggers
from headrace.wire.task_runs import AwaitedTrigger, ClaimRuns, FinishRun, StartRun, WaitCondition
from support.processes.store import registration
from support.year.triggerer import Triggerer

DAY_MICROS = 86_400_000_000
AT_ONCE = 20_000
TOGETHER = 10
"""Runs that begin, and end, at once: each time another set of triggers owes what is read."""
OWN = ("run_id", "trigger_id", "created", "changed", "finished", "head", "job_id")
"""The columns in which two runs that went the same way differ."""
FIRST_TRIGGER = 1_000_000_000
"""The triggers of runs that are inserted as rows have numbers from here on: those were given to none."""

_insert = BulkInsert(task_runs)


class DayOfRuns:
    """Runs that wait for a trigger on the stream of a triggerer; half of them are fired and finished, the others cancelled."""

    def __init__(self, triggerer: Triggerer, waiting: int, random: Random) -> None:
        self._triggerer = triggerer
        self._owner = triggerer.owner
        self._waiting = waiting
        self._random = random
        self._alive: list[tuple[str, int]] = []
        self._inserted = 0
        self._worker = self._store.jobs.register(registration("worker")).id

    @property
    def _store(self) -> Store:
        return self._owner.store

    def heartbeat(self) -> None:
        """Send a heartbeat of the worker."""
        self._store.jobs.heartbeat(self._worker, Heartbeat())

    async def live(self, runs: int) -> float:
        """Start so many runs, and end as many as are too many; return the seconds that took."""
        begun = perf_counter()
        for start in range(0, runs, TOGETHER):
            await self._begin(min(TOGETHER, runs - start))
            if len(self._alive) > self._waiting:
                await self._end(len(self._alive) - self._waiting)
        return perf_counter() - begun

    def insert(self, runs: int, now: int) -> float:
        """Insert the rows of so many runs that end in the day from `now` on (microseconds); return the seconds that took."""
        template = self._template()
        begun = perf_counter()
        for start in range(0, runs, AT_ONCE):
            rows = [self._row(template, now + (start + n) * DAY_MICROS // runs) for n in range(min(AT_ONCE, runs - start))]

            def work(connection: Connection, rows: list[tuple[Any, ...]] = rows) -> None:
                _insert(connection, rows)

            self._store.write(work)
        return perf_counter() - begun

    async def _begin(self, count: int) -> None:
        for _ in range(count):
            awaited = AwaitedTrigger(classpath="some.Trigger", kwargs={"queue": "orders"})
            waiting = WaitCondition(method="collect", kwargs='{"day":1}', trigger=awaited)
            run_id = self._random.randbytes(16).hex()
            self._store.task_runs.start("flights", StartRun(run_id=run_id, task="submit", waiting=waiting))
            self._alive.append((run_id, 0))
        known = set(self._owner.epochs)
        for trigger_id in sorted(set(self._owner.load(1_000_000)) - known):
            self._triggerer.join(trigger_id)
        ids = dict(self._awaited())
        self._alive = [(run_id, ids[run_id]) for run_id, _ in self._alive]

    def _awaited(self) -> Iterator[tuple[str, int]]:
        wanted = select(task_runs.c.run_id, task_runs.c.trigger_id).where(task_runs.c.state == "deferred")
        with self._store.reading() as connection:
            yield from ((row.run_id, row.trigger_id) for row in connection.execute(wanted))

    async def _end(self, count: int) -> None:
        ended, self._alive = self._alive[:count], self._alive[count:]
        fired, cancelled = ended[::2], ended[1::2]
        await self._triggerer.deliver([trigger_id for _, trigger_id in fired])
        for run_id, _ in cancelled:
            self._store.task_runs.cancel(run_id)
        asked = ClaimRuns(capacity=1_000, tasks=["submit"])
        for run in self._store.task_runs.claim(self._worker, asked).runs:
            done = FinishRun(epoch=run.epoch, state="succeeded", result='{"rows":12}')
            self._store.task_runs.finish(self._worker, run.run_id, done)
        before = self._owner.epochs
        after = self._owner.load(1_000_000)
        gone = [one for one in before if one not in after]
        for trigger_id in gone:
            await self._triggerer.leave(trigger_id)
        self._store.triggers.cleanup(self._owner.job_id, CleanupTriggers(trigger_ids=gone))

    def _template(self) -> dict[str, Any]:
        """Return the last run that was finished, which all others that were finished are like."""
        done = select(task_runs).where(task_runs.c.state == "succeeded", task_runs.c.trigger_id < FIRST_TRIGGER)
        with self._store.reading() as connection:
            found = [dict(row._mapping) for row in connection.execute(done.order_by(task_runs.c.trigger_id.desc()).limit(50))]
        common = [{name: value for name, value in row.items() if name not in OWN} for row in found]
        assert all(row == common[0] for row in common), common
        return found[0]

    def _row(self, template: dict[str, Any], at: int) -> tuple[Any, ...]:
        self._inserted += 1
        own = {"run_id": self._random.randbytes(16).hex(), "trigger_id": FIRST_TRIGGER + self._inserted}
        row = template | own | {"created": at - 60_000_000, "changed": at, "finished": at}
        return tuple(row[column.name] for column in task_runs.columns)
