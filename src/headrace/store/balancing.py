"""Balancing: what `core.balance` decides, read from the tables and written to them in the transaction of a load.

Looking at every trigger is for when something changed. Once nobody has anything to do, that is remembered together with the mark of
the last change, and looking whether the mark is still there is all that a load costs.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, select

from headrace.core import balance
from headrace.core.units import Job, Trigger
from headrace.store import leases
from headrace.store.dialects import driver_rows
from headrace.store.tables import jobs, triggers
from headrace.wire.jobs import Lease

LATELY = 5_000_000  # microseconds; who was not heard of for so long is given nothing new, though it is not taken for dead yet

_MOST_JOBS = 100

_jobs = select(jobs.c.id, jobs.c.capacity, jobs.c.queues, jobs.c.wanted, jobs.c.heartbeat).where(
    jobs.c.state == "running", jobs.c.kind == "triggerer", jobs.c.capacity.is_not(None)
)
_triggers = select(
    triggers.c.id,
    triggers.c.stream,
    triggers.c.queue,
    triggers.c.priority,
    triggers.c.job_id,
    triggers.c.revoked_job_id,
    (triggers.c.state == "parked").label("parked"),
).where(triggers.c.state != "removed")


class Holdings(NamedTuple):
    """What a job holds, and what of it, or beside it, it is to let go."""

    leases: list[Lease]
    revoked: list[int]


class Balancer:
    """Lets each job take its step. It belongs to one writer: what it remembers is asked and told in its transactions only."""

    def __init__(self) -> None:
        self._settled: dict[str, tuple[object, ...]] = {}
        self._seen: tuple[object, ...] = ()
        self._holdings: dict[int, Holdings] = {}
        self._leases: dict[int, dict[tuple[int, int], Lease]] = {}

    def step(self, connection: Connection, job_id: int, project: str, now: int) -> None:
        """Let the job claim and give back what it is to."""
        seen = leases.version(connection)
        if self._settled.get(project) == seen:
            return
        found = balance.step(_read_triggers(connection, project), _read_jobs(connection, project, now), job_id)
        if found.claim:
            leases.claim(connection, job_id, found.claim, now)
        if found.give_back:
            leases.give_back(connection, job_id, found.give_back)
        if found.settled:
            self._settled[project] = seen

    def holdings(self, connection: Connection, job_id: int) -> Holdings:
        """Return what the job holds; it is read anew only after a change."""
        seen = leases.version(connection)
        if seen != self._seen:
            self._seen, self._holdings = seen, {}
        if job_id not in self._holdings:
            self._holdings[job_id] = Holdings(self._held(connection, job_id), leases.revoked(connection, job_id))
        return self._holdings[job_id]

    def _held(self, connection: Connection, job_id: int) -> list[Lease]:
        """Return the job's leases; those that it had before are not made anew."""
        made = leases.held(connection, job_id, self._leases.pop(job_id, {}))
        if len(self._leases) >= _MOST_JOBS:
            self._leases.clear()  # of jobs that ended, mostly
        self._leases[job_id] = made
        return list(made.values())


def unserved(connection: Connection) -> dict[int, str]:
    """Return the triggers that nobody runs because no running triggerer serves their queues, or none of those has room; and which it is."""
    waiting = select(triggers.c.project).where(triggers.c.state == "waiting").distinct()
    found: dict[int, str] = {}
    for project in connection.execute(waiting).scalars().all():
        there = [job._replace(listening=True) for job in _read_jobs(connection, project, 0)]
        for unit in balance.homeless(_read_triggers(connection, project), there):
            served = any(job.serves(unit) and not job.draining for job in there)
            queues = " and ".join(sorted(unit.queues))
            several = f"the queues {queues}, which its stream needs together" if len(unit.queues) > 1 else f"queue {queues}"
            why = f"no triggerer that serves {several} has room" if served else f"no triggerer serves {several}"
            found.update(dict.fromkeys(unit.ids(), why))
    return found


class UnservedTriggers:
    """Remembers which triggers no triggerer can run, for as long as neither leases nor triggerers change."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._found: dict[int, str] = {}

    def __call__(self, connection: Connection) -> dict[int, str]:
        """Return why nobody runs them, by trigger."""
        listed = [(row.id, row.capacity, row.queues, row.wanted) for row in connection.execute(_jobs.order_by(jobs.c.id))]
        seen = (leases.version(connection), tuple(listed))
        if seen != self._seen:
            self._found = unserved(connection)
            self._seen = seen
        return self._found


def _read_triggers(connection: Connection, project: str) -> list[Trigger]:
    rows = driver_rows(connection, _triggers.where(triggers.c.project == project), leases.AT_ONCE)
    return [Trigger._make(row) for part in rows for row in part]


def _read_jobs(connection: Connection, project: str, now: int) -> list[Job]:
    return [
        Job(row.id, row.capacity, frozenset(msgspec.json.decode(row.queues)), row.wanted != "run", abs(now - row.heartbeat) <= LATELY)
        for row in connection.execute(_jobs.where(jobs.c.project == project).order_by(jobs.c.id))
    ]
