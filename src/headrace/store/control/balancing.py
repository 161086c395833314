"""Balance leases: decide with `core.balancing` on a snapshot, and write the decision in short transactions.

The job examines every trigger only after a change. When no job has anything to do, the balancer stores the mark
of the last change. A later load then costs only a comparison of marks.

Invariant: a decision is made without the writers' lock, so each slice checks again what it changes
(`leases.acquire`). The job is answered only after it has acquired and released its whole share, because a stream
acquired in part is not run. If the API server stops between two slices, the next load of the job completes
them: a unit acquired or released in part keeps its direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, select

from headrace.core import balancing
from headrace.core.lease_units import Job, Trigger
from headrace.store.control import leases
from headrace.store.db.database import Database
from headrace.store.dialects.gc_pause import collecting_paused
from headrace.store.dialects.statements import driver_rows
from headrace.store.tables.control import jobs, triggers

MAX_HEARTBEAT_AGE_MICROS = (
    5_000_000  # microseconds; a job without a heartbeat for this long receives no new lease, although it is not lost yet
)

_jobs = select(jobs.c.id, jobs.c.capacity, jobs.c.queues, jobs.c.desired_state, jobs.c.heartbeat).where(
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


_running = select(jobs.c.id).where(jobs.c.state == "running")


class Decision(NamedTuple):
    """The triggers that a job acquires and releases, and the ended jobs whose leases must be freed first."""

    ended: set[int]
    step: balancing.RebalanceStep


class Balancer:
    """Execute the balancing steps of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settled: dict[str, tuple[object, ...]] = {}

    def is_settled(self, connection: Connection, project: str) -> bool:
        """Return whether no job of the project has anything to do."""
        return self._settled.get(project) == leases.version(connection)

    def step(self, job_id: int, project: str, seconds: float | None) -> bool:
        """Acquire and release the job's share of leases. Return whether it was complete within `seconds`."""
        until = None if seconds is None else monotonic() + seconds
        return all(until is None or monotonic() < until for _ in self._slices(job_id, project))

    def _slices(self, job_id: int, project: str) -> Iterator[None]:
        """Execute the step slice by slice, and yield after each slice except the last."""
        decision = self._decide(job_id, project)
        while decision.ended:
            while self._database.write(partial(leases.release_ended, job_ids=decision.ended)):
                yield
            decision = self._decide(job_id, project)
        for part in _cut(decision.step.acquire):
            self._database.write(partial(self._acquire, job_id=job_id, project=project, part=part))
            yield
        for part in _cut(decision.step.release):
            self._database.write(partial(leases.request_release, job_id=job_id, trigger_ids=part))
            yield

    def _decide(self, job_id: int, project: str) -> Decision:
        with collecting_paused():
            return self._decision(job_id, project)

    def _decision(self, job_id: int, project: str) -> Decision:
        with self._database.reading() as connection:
            seen = leases.version(connection)  # read first, so that a later change is examined again
            there = _read_triggers(connection, project)
            listed = _read_jobs(connection, project, self._database.now(), caller=job_id)
            running = set(connection.execute(_running).scalars())
        step = balancing.step(there, listed, job_id)
        named = {trigger.holder for trigger in there} | {trigger.stopping for trigger in there}
        ended = {one for one in named if one is not None and one not in running}
        if step.settled and not ended:
            self._settled[project] = seen
        return Decision(ended, step)

    def _acquire(self, connection: Connection, job_id: int, project: str, part: Sequence[int]) -> None:
        desired_state = connection.execute(
            select(jobs.c.desired_state).where(jobs.c.id == job_id, jobs.c.state == "running")
        ).scalar_one_or_none()
        if desired_state == "run":
            leases.acquire(connection, job_id, project, part, self._database.now())


def _cut(trigger_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the triggers in groups of the size that one transaction changes."""
    for start in range(0, len(trigger_ids), leases.MAX_CHANGED_LEASES):
        yield trigger_ids[start : start + leases.MAX_CHANGED_LEASES]


def unassigned(connection: Connection) -> dict[int, str]:
    """Return the triggers that no job can run, by id, with the reason.

    A trigger is listed if no running triggerer serves its queue, or if no such triggerer has capacity.
    """
    waiting = select(triggers.c.project).where(triggers.c.state == "waiting").distinct()
    reasons: dict[int, str] = {}
    for project in connection.execute(waiting).scalars().all():
        there = [job._replace(listening=True) for job in _read_jobs(connection, project, 0)]
        for unit in balancing.unassignable(_read_triggers(connection, project), there):
            served = any(job.serves(unit) and not job.draining for job in there)
            queues = " and ".join(sorted(unit.queues))
            several = f"the queues {queues}, which its stream needs together" if len(unit.queues) > 1 else f"queue {queues}"
            why = f"no triggerer that serves {several} has room" if served else f"no triggerer serves {several}"
            reasons.update(dict.fromkeys(unit.ids(), why))
    return reasons


class UnassignedTriggers:
    """Cache the triggers that no triggerer can run, until leases or triggerers change."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()
        self._reasons: dict[int, str] = {}

    def __call__(self, connection: Connection) -> dict[int, str]:
        """Return the reason why no job runs them, by trigger id."""
        listed = [(row.id, row.capacity, row.queues, row.desired_state) for row in connection.execute(_jobs.order_by(jobs.c.id))]
        seen = (leases.version(connection), tuple(listed))
        if seen != self._seen:
            with collecting_paused():
                self._reasons = unassigned(connection)
            self._seen = seen
        return self._reasons


def _read_triggers(connection: Connection, project: str) -> list[Trigger]:
    rows = driver_rows(connection, _triggers.where(triggers.c.project == project), leases.BATCH_ROWS)
    return [Trigger._make(row) for part in rows for row in part]


def _read_jobs(connection: Connection, project: str, now: int, caller: int | None = None) -> list[Job]:
    """Return the triggerers of a project. The job that calls now is alive, however long ago its request was recorded."""
    return [
        Job(
            row.id,
            row.capacity,
            frozenset(msgspec.json.decode(row.queues)),
            row.desired_state != "run",
            row.id == caller or abs(now - row.heartbeat) <= MAX_HEARTBEAT_AGE_MICROS,
        )
        for row in connection.execute(_jobs.where(jobs.c.project == project).order_by(jobs.c.id))
    ]
