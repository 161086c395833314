"""Leases: the exclusive right of a job to a trigger, stored on the trigger's row.

`job_id` is the holder. `epoch` counts the holders. It increases with every new lease and never decreases, so
that earlier holders are distinguishable permanently.
`revoked_job_id` is the job that must release the trigger and has not confirmed it yet. While that job also
holds the trigger, its writes still count: the trigger is being handed over. If no job holds the trigger, it
changed or was removed. In both cases no other job acquires it before the confirmation.

Invariant: code that changes which job may hold a trigger calls `changed`, or a function here that does. Jobs
look for work only after that.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, case, func, insert, literal_column, select, update

from headrace.core.restart_policy import MAX_WAIT_SECONDS
from headrace.core.values.shards import SHARD_PATTERN, overlap, whole_name
from headrace.errors import Fenced
from headrace.store.dialects.statements import DriverStatement, driver_rows
from headrace.store.tables.base import meta
from headrace.store.tables.control import jobs, triggers

LEASES = "leases"
BATCH_ROWS = 10_000
MAX_CHANGED_LEASES = 2_000
"""Maximum number of leases that one transaction changes where many may change. More of them take several transactions."""

MAX_WAIT_MICROS = round(MAX_WAIT_SECONDS * 1_000_000)  # microseconds

_version = select(
    select(meta.c.value).where(meta.c.name == LEASES).scalar_subquery(),
    # a new trigger is examined even if its creator did not call `changed`
    select(func.max(triggers.c.id)).scalar_subquery(),
)
_free_state = case((triggers.c.state.in_(("parked", "removed")), triggers.c.state), else_="waiting")
_free_triggers = DriverStatement(
    "SELECT id, stream FROM triggers WHERE id IN :ids AND job_id IS NULL"
    " AND (revoked_job_id IS NULL OR revoked_job_id = :job_id) AND state <> 'removed'",
    ids="bigint",
)
_acquire = DriverStatement(
    # A failed trigger waits first. A clock that was set back makes no wait longer.
    "UPDATE triggers SET job_id = :job_id, epoch = epoch + 1, revoked_job_id = NULL,"
    " started = CASE WHEN retry_at BETWEEN :now AND :latest THEN retry_at ELSE :now END,"
    " state = CASE WHEN state = 'parked' THEN 'parked' ELSE 'running' END WHERE id IN :ids",
    ids="bigint",
)


def changed(connection: Connection) -> None:
    """Record that a job may have to acquire or release leases.

    The mark is always new, also compared with a transaction that was rolled back.
    """
    mark = secrets.randbits(62)
    if not connection.execute(update(meta).where(meta.c.name == LEASES).values(value=mark)).rowcount:
        connection.execute(insert(meta).values(name=LEASES, value=mark))


def version(connection: Connection) -> tuple[object, ...]:
    """Return a value that differs after every change."""
    return tuple(connection.execute(_version).one())


def held(connection: Connection, job_id: int) -> dict[int, int]:
    """Return the triggers that the job holds or must still release.

    Each maps to twice its epoch, plus 1 if it is revoked, or to its negative epoch if it is revoked and not held.
    """
    revoked = case((triggers.c.revoked_job_id == job_id, 1), else_=0)
    mine = select(triggers.c.id, 2 * triggers.c.epoch + revoked).where(triggers.c.job_id == job_id)
    states: dict[int, int] = {}
    for part in driver_rows(connection, mine, BATCH_ROWS):
        states.update(part)
    leaving = triggers.c.revoked_job_id == job_id
    lost = select(triggers.c.id, triggers.c.epoch).where(leaving, triggers.c.job_id.is_(None) | (triggers.c.job_id != job_id))
    return states | {row.id: -row.epoch for row in connection.execute(lost)}


def backlogs(connection: Connection, job_id: int) -> dict[int, int]:
    """Return the size of the backlog of each of the job's triggers that has one."""
    conditions = (triggers.c.job_id == job_id, triggers.c.backlog > literal_column("0"))  # the same expression as in the index
    return {row.id: row.backlog for row in connection.execute(select(triggers.c.id, triggers.c.backlog).where(*conditions))}


def acquire(connection: Connection, job_id: int, project: str, trigger_ids: Sequence[int], now: int) -> None:
    """Assign to the job the given triggers that no job holds, at their next epochs.

    The state may have changed since the decision before this transaction. A trigger is skipped if another job
    holds any trigger of its stream, or must still release one. It is skipped too while a job
    must still release a shard of its upstream from before the number of shards changed.
    """
    free_triggers = _free_triggers(connection, ids=trigger_ids, job_id=job_id).all()
    streams = {stream for _, stream in free_triggers if stream is not None}
    taken = _streams_of_others(connection, job_id, project, streams) | _overlapping_streams(connection, project, streams)
    mine = [trigger_id for trigger_id, stream in free_triggers if stream not in taken]
    if mine:
        _acquire(connection, job_id=job_id, now=now, latest=now + MAX_WAIT_MICROS, ids=mine)
        changed(connection)


def _streams_of_others(connection: Connection, job_id: int, project: str, streams: set[str]) -> set[str]:
    """Return the given streams of a project of which another job holds a trigger or must still release one."""
    if not streams:
        return set()
    mine = select(triggers.c.stream).where(triggers.c.project == project, triggers.c.stream.in_(streams)).distinct()
    # two ranges of the index instead of `<>`: almost always both are empty
    held_by = [mine.where(triggers.c.job_id < job_id), mine.where(triggers.c.job_id > job_id)]
    leaving = mine.where(triggers.c.revoked_job_id.is_not(None), triggers.c.revoked_job_id != job_id)
    return {stream for query in (*held_by, leaving) for stream in connection.execute(query).scalars()}


def _overlapping_streams(connection: Connection, project: str, streams: set[str]) -> set[str]:
    """Return the given streams that read lanes of a removed stream, which another number of shards had, and a job has not released yet."""
    if not streams:
        return set()
    wholes = {whole_name(stream) for stream in streams} - streams
    shards = triggers.c.stream.like(SHARD_PATTERN)
    removed = (triggers.c.project == project, triggers.c.state == "removed", triggers.c.revoked_job_id.is_not(None))
    left = select(triggers.c.stream).where(*removed, shards | triggers.c.stream.in_(wholes)).distinct()
    leaving: dict[str, set[str]] = {}
    for stream in connection.execute(left).scalars():
        leaving.setdefault(whole_name(stream), set()).add(stream)
    return {stream for stream in streams if any(overlap(stream, other) for other in leaving.get(whole_name(stream), ()))}


def request_release(connection: Connection, job_id: int, trigger_ids: Sequence[int]) -> None:
    """Request that the job release these triggers. It holds them until it confirms that they have stopped."""
    mine = (triggers.c.id.in_(trigger_ids), triggers.c.job_id == job_id)
    connection.execute(update(triggers).where(*mine).values(revoked_job_id=job_id))
    changed(connection)


def revoke(connection: Connection, trigger_ids: Sequence[int]) -> None:
    """Revoke the triggers from the jobs that hold them. The holder receives this with its next request."""
    for part in parts(trigger_ids):
        taken = (triggers.c.id.in_(part), triggers.c.job_id.is_not(None))
        connection.execute(update(triggers).where(*taken).values(revoked_job_id=triggers.c.job_id, job_id=None, state="waiting"))
    if trigger_ids:
        changed(connection)


def release(connection: Connection, job_id: int, trigger_ids: Sequence[int], epochs: Mapping[int, int]) -> None:
    """Free the triggers that the job has stopped. A lease newer than the given epoch remains."""
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


def release_ended(connection: Connection, job_ids: Collection[int]) -> bool:
    """Free triggers that ended jobs hold or must still release, at most `MAX_CHANGED_LEASES`.

    Return whether more may be left.
    """
    ended = list(connection.execute(select(jobs.c.id).where(jobs.c.id.in_(job_ids), jobs.c.state != "running")).scalars())
    room = MAX_CHANGED_LEASES
    for job_id in ended:
        trigger_ids = list(connection.execute(select(triggers.c.id).where(_stopped(job_id)).limit(room)).scalars())
        if trigger_ids:
            _free(connection, triggers.c.id.in_(trigger_ids), job_id)
            changed(connection)
        room -= len(trigger_ids)
        if not room:
            return True
    return False


def require_lease(connection: Connection, job_id: int, trigger_id: int, epoch: int) -> None:
    """Check the job's lease on the trigger.

    Raises:
        Fenced: The job does not hold the trigger at this epoch.
    """
    row = connection.execute(select(triggers.c.job_id, triggers.c.epoch).where(triggers.c.id == trigger_id)).one_or_none()
    if row is None or row.job_id != job_id or row.epoch != epoch:
        raise Fenced(f"Job {job_id} does not hold trigger {trigger_id} at epoch {epoch}.", status=409, problem="fenced")


def _stopped(job_id: int) -> ColumnElement[bool]:
    return (triggers.c.job_id == job_id) | (triggers.c.revoked_job_id == job_id)


def _free(connection: Connection, which: ColumnElement[bool], job_id: int) -> None:
    connection.execute(update(triggers).where(which, triggers.c.job_id == job_id).values(job_id=None, state=_free_state))
    connection.execute(update(triggers).where(which, triggers.c.revoked_job_id == job_id).values(revoked_job_id=None))


def parts(trigger_ids: Sequence[int]) -> list[Sequence[int]]:
    """Return the ids in groups of the size that one statement takes."""
    return [trigger_ids[start : start + BATCH_ROWS] for start in range(0, len(trigger_ids), BATCH_ROWS)]
