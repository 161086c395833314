"""Scope leases: at most one driver works for a scope.

    free ──acquire──► held ──its job ends, or another driver acquires it after LEASE_SECONDS without a heartbeat──► held, one epoch later

A holder that loses its scope also loses its job, so each of its later requests is refused as fenced. A holder
misses heartbeats while a waiting driver's requests find the same heartbeat. The steady clock of this machine
measures the time, so wrong wall clocks move no lease.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, insert, select

from headrace.errors import ApiRefused, Fenced
from headrace.store.control.jobs import SECOND, RunningJob, end_jobs, require_running
from headrace.store.db.database import Database
from headrace.store.pipelines.plan_pages import drop_pages
from headrace.store.pipelines.scope_begin import beginning
from headrace.store.pipelines.scope_rows import add_scope, cursor_of, scope_row
from headrace.store.tables.control import jobs
from headrace.store.tables.pipelines import scope_leases
from headrace.wire.custody.events import Cursor

LEASE_SECONDS: Final = 6
"""Seconds without a heartbeat after which another driver may acquire the scope."""

_MAX_GAP_MICROS: Final = 3 * SECOND
"""Maximum microseconds between two requests of a waiting driver. After a longer gap, the measurement starts again."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A holder's heartbeat, the time since which it is unchanged, and the time of the last look (steady clock, microseconds)."""

    job_id: int
    heartbeat: int
    since: int
    looked: int


class Lease(NamedTuple):
    """A job holds a scope at `epoch`; the rest is as in `ScopeLease`."""

    epoch: int
    incarnation: str
    begin_seq: int
    begin_redelivery_id: int
    cursor: Cursor


class ScopeLeases:
    """The scope leases of one database. `ticks` is a steady clock in microseconds."""

    def __init__(self, database: Database, ticks: Callable[[], int]) -> None:
        self._database = database
        self._ticks = ticks
        self._sightings: dict[str, _Sighting] = {}

    def acquire(self, job_id: int, scope: str, begin: int | None = 1) -> Lease:
        """Grant the scope to a job; the holder gets its own epoch again. A new scope begins at `begin`, as in
        `AcquireScope`.

        Raises:
            Fenced: The job has ended.
            ApiRefused: Another job holds the scope (`held`), or `begin` is beyond the next event of the log.
        """
        return self._database.write(lambda connection: self._acquire(connection, job_id, scope, begin))

    def _acquire(self, connection: Connection, job_id: int, scope: str, begin: int | None) -> Lease:
        job = require_running(connection, job_id)
        holder = holder_of(connection, scope)
        if holder is not None and holder.id != job_id:
            if not self._is_silent(scope, holder):
                raise ApiRefused(
                    f"Scope '{scope}' is held by job {holder.id} (process {holder.pid} on {holder.hostname}).",
                    hint="Wait until that process ends, or stop it; or give this one another --scope.",
                    status=409,
                    problem="held",
                )
            end_jobs(connection, [holder.id], "lost", f"job {job_id} took over its scope '{scope}'", self._database.now())
        now = self._database.now()
        epoch = _granted(connection, job_id, scope, now)
        if scope_row(connection, scope) is None:
            add_scope(connection, scope, job, beginning(connection, begin), now)
        row = scope_row(connection, scope)
        drop_pages(connection, row.incarnation)
        return Lease(epoch, row.incarnation, row.begin_seq, row.begin_redelivery_id, cursor_of(row))

    def _is_silent(self, scope: str, holder: Any) -> bool:
        now = self._ticks()
        known = self._sightings.get(scope)
        same = (
            known is not None and (known.job_id, known.heartbeat) == (holder.id, holder.heartbeat) and now - known.looked <= _MAX_GAP_MICROS
        )
        since = known.since if known is not None and same else now
        self._sightings[scope] = _Sighting(holder.id, holder.heartbeat, since, now)
        return now - since > LEASE_SECONDS * SECOND


def require_holder(connection: Connection, job_id: int, scope: str, epoch: int | None = None) -> RunningJob:
    """Return the job that holds the scope, at `epoch` if it is given. Raises `Fenced` otherwise."""
    job = require_running(connection, job_id)
    known = (scope_leases.c.scope == scope, scope_leases.c.job_id == job_id)
    held = connection.execute(select(scope_leases.c.epoch).where(*known)).scalar_one_or_none()
    if held is None or epoch not in (None, held):
        at = "" if epoch is None else f" at epoch {epoch}"
        raise Fenced(f"Job {job_id} does not hold the scope '{scope}'{at}.", hint="Register a new job.", status=409, problem="fenced")
    return job


def holder_of(connection: Connection, scope: str) -> Any:
    """Return the running job that holds the scope: id, heartbeat, hostname, pid, or None if it is free."""
    columns = (jobs.c.id, jobs.c.heartbeat, jobs.c.hostname, jobs.c.pid)
    query = select(*columns).join(scope_leases, scope_leases.c.job_id == jobs.c.id)
    return connection.execute(query.where(scope_leases.c.scope == scope, jobs.c.state == "running")).one_or_none()


def _granted(connection: Connection, job_id: int, scope: str, now: int) -> int:
    """Return the epoch at which the job holds the scope."""
    before = connection.execute(select(scope_leases.c.job_id, scope_leases.c.epoch).where(scope_leases.c.scope == scope)).one_or_none()
    if before is not None and before.job_id == job_id:
        return int(before.epoch)
    epoch = 1 if before is None else int(before.epoch) + 1
    connection.execute(delete(scope_leases).where(scope_leases.c.scope == scope))
    connection.execute(insert(scope_leases).values(scope=scope, job_id=job_id, epoch=epoch, granted=now))
    return epoch
