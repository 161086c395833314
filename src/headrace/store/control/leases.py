"""Leases: a job's claim on a trigger. They live on the trigger's row: `job_id` holds it, `epoch` counts its owners.

The epoch goes up with every new claim and never down, so that the owner of an earlier one is told apart permanently. `revoked_job_id` is
the job that was told to let go and has not yet said that it did. While it also holds the trigger, what it stores still counts: the
trigger is given back. Where no job holds the trigger any more, it changed or was removed. Either way no other job gets it before.

Whatever changes who may hold what is to call `changed`, or to call what does so here: jobs look for work only after that.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, case, func, insert, literal_column, select, update

from headrace.core.restart_policy import MOST
from headrace.errors import Fenced
from headrace.store.dialects.statements import DriverStatement, driver_rows
from headrace.store.tables.base import meta
from headrace.store.tables.control import jobs, triggers

LEASES = "leases"
AT_ONCE = 10_000
MAX_CHANGED = 2_000
"""Leases that one transaction changes where there may be many: more go in several transactions."""

WAIT = round(MOST * 1_000_000)  # microseconds

_version = select(
    select(meta.c.value).where(meta.c.name == LEASES).scalar_subquery(),
    # a trigger that is new is looked at also where whoever made it said nothing
    select(func.max(triggers.c.id)).scalar_subquery(),
)
_free_state = case((triggers.c.state.in_(("parked", "removed")), triggers.c.state), else_="waiting")
_free_triggers = DriverStatement(
    "SELECT id, stream FROM triggers WHERE id IN :ids AND job_id IS NULL"
    " AND (revoked_job_id IS NULL OR revoked_job_id = :job_id) AND state <> 'removed'",
    ids="bigint",
)
_claim = DriverStatement(
    # One that failed waits first. A clock that was set back is no longer wait.
    "UPDATE triggers SET job_id = :job_id, epoch = epoch + 1, revoked_job_id = NULL,"
    " started = CASE WHEN retry_at BETWEEN :now AND :latest THEN retry_at ELSE :now END,"
    " state = CASE WHEN state = 'parked' THEN 'parked' ELSE 'running' END WHERE id IN :ids",
    ids="bigint",
)


def changed(connection: Connection) -> None:
    """Note that a job may have to claim or release. The mark is never one that was there before, also not in a work that failed."""
    mark = secrets.randbits(62)
    if not connection.execute(update(meta).where(meta.c.name == LEASES).values(value=mark)).rowcount:
        connection.execute(insert(meta).values(name=LEASES, value=mark))


def version(connection: Connection) -> tuple[object, ...]:
    """Return what is different after every change."""
    return tuple(connection.execute(_version).one())


def held(connection: Connection, job_id: int) -> dict[int, int]:
    """Return the triggers that the job holds or still has to release, each with twice its epoch (0.

    Not held), and 1 more if it is revoked.
    """
    told = case((triggers.c.revoked_job_id == job_id, 1), else_=0)
    mine = select(triggers.c.id, 2 * triggers.c.epoch + told).where(triggers.c.job_id == job_id)
    states: dict[int, int] = {}
    for part in driver_rows(connection, mine, AT_ONCE):
        states.update(part)
    leaving = triggers.c.revoked_job_id == job_id
    lost = select(triggers.c.id).where(leaving, triggers.c.job_id.is_(None) | (triggers.c.job_id != job_id))
    return states | dict.fromkeys(connection.execute(lost).scalars(), 1)


def backlogs(connection: Connection, job_id: int) -> dict[int, int]:
    """Return how much is kept for each of the job's triggers for which anything is."""
    kept = (triggers.c.job_id == job_id, triggers.c.backlog > literal_column("0"))  # as the index says it
    return {row.id: row.backlog for row in connection.execute(select(triggers.c.id, triggers.c.backlog).where(*kept))}


def claim(connection: Connection, job_id: int, project: str, trigger_ids: Sequence[int], now: int) -> None:
    """Give the job those of these triggers that no job holds, at their next epochs.

    What was decided before this transaction began may have changed since: a trigger is left alone where another job holds any trigger
    of its stream, or still has to release one.
    """
    found = _free_triggers(connection, ids=trigger_ids, job_id=job_id).all()
    taken = _streams_of_others(connection, job_id, project, {stream for _, stream in found if stream is not None})
    mine = [trigger_id for trigger_id, stream in found if stream not in taken]
    if mine:
        _claim(connection, job_id=job_id, now=now, latest=now + WAIT, ids=mine)
        changed(connection)


def _streams_of_others(connection: Connection, job_id: int, project: str, streams: set[str]) -> set[str]:
    """Return those of a project's streams of which another job holds a trigger or still has to release one."""
    if not streams:
        return set()
    mine = select(triggers.c.stream).where(triggers.c.project == project, triggers.c.stream.in_(streams)).distinct()
    # two ranges of the index, and no `<>`: almost always there is nothing in either
    held_by = [mine.where(triggers.c.job_id < job_id), mine.where(triggers.c.job_id > job_id)]
    leaving = mine.where(triggers.c.revoked_job_id.is_not(None), triggers.c.revoked_job_id != job_id)
    return {stream for query in (*held_by, leaving) for stream in connection.execute(query).scalars()}


def give_back(connection: Connection, job_id: int, trigger_ids: Sequence[int]) -> None:
    """Tell the job to let these triggers go; it holds them until it says that it has stopped them."""
    mine = (triggers.c.id.in_(trigger_ids), triggers.c.job_id == job_id)
    connection.execute(update(triggers).where(*mine).values(revoked_job_id=job_id))
    changed(connection)


def revoke(connection: Connection, trigger_ids: Sequence[int]) -> None:
    """Take the triggers from the jobs that hold them; the holder learns of it when it next asks."""
    for part in parts(trigger_ids):
        taken = (triggers.c.id.in_(part), triggers.c.job_id.is_not(None))
        connection.execute(update(triggers).where(*taken).values(revoked_job_id=triggers.c.job_id, job_id=None, state="waiting"))
    if trigger_ids:
        changed(connection)


def let_go(connection: Connection, job_id: int, trigger_ids: Sequence[int], epochs: Mapping[int, int]) -> None:
    """Free those of the triggers that the job has stopped. A lease that is newer than the epoch given for it stays."""
    stopped = _stopped(job_id)
    rows = [
        row.id
        for part in parts(trigger_ids)
        for row in connection.execute(select(triggers.c.id, triggers.c.epoch).where(triggers.c.id.in_(part), stopped))
        if row.epoch <= epochs.get(row.id, row.epoch)
    ]
    for part in parts(rows):
        _free(connection, triggers.c.id.in_(part), job_id)
    if rows:
        changed(connection)


def release(connection: Connection, job_ids: Collection[int]) -> bool:
    """Free triggers that ended jobs hold or have yet to let go, at most `MAX_CHANGED`; return whether there may be more."""
    ended = list(connection.execute(select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.state != "running")).scalars())
    room = MAX_CHANGED
    for job_id in ended:
        found = list(connection.execute(select(triggers.c.id).where(_stopped(job_id)).limit(room)).scalars())
        if found:
            _free(connection, triggers.c.id.in_(found), job_id)
            changed(connection)
        room -= len(found)
        if not room:
            return True
    return False


def require_lease(connection: Connection, job_id: int, trigger_id: int, epoch: int) -> None:
    """Raise `Fenced` unless the job holds the trigger at this epoch."""
    row = connection.execute(select(triggers.c.job_id, triggers.c.epoch).where(triggers.c.id == trigger_id)).one_or_none()
    if row is None or row.job_id != job_id or row.epoch != epoch:
        raise Fenced(f"Job {job_id} does not hold trigger {trigger_id} at epoch {epoch}.", status=409, problem="fenced")


def _stopped(job_id: int) -> ColumnElement[bool]:
    return (triggers.c.job_id == job_id) | (triggers.c.revoked_job_id == job_id)


def _free(connection: Connection, which: ColumnElement[bool], job_id: int) -> None:
    connection.execute(update(triggers).where(which, triggers.c.job_id == job_id).values(job_id=None, state=_free_state))
    connection.execute(update(triggers).where(which, triggers.c.revoked_job_id == job_id).values(revoked_job_id=None))


def parts(trigger_ids: Sequence[int]) -> list[Sequence[int]]:
    """Return as many of the ids at a time as one statement takes."""
    return [trigger_ids[start : start + AT_ONCE] for start in range(0, len(trigger_ids), AT_ONCE)]
