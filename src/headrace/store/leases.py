"""Leases: a job's claim on a trigger. They live on the trigger's row: `job_id` holds it, `epoch` counts its owners.

The epoch goes up with every new claim and never down, so that whoever held an earlier one is told apart for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from headrace.errors import Fenced
from headrace.store.tables import triggers
from headrace.wire.jobs import Lease


@dataclass(frozen=True, slots=True)
class Claimable:
    """A trigger that nobody holds."""

    id: int
    stream: str | None


def held(connection: Connection, job_id: int) -> list[Lease]:
    """Return every lease that the job holds."""
    rows = connection.execute(select(triggers.c.id, triggers.c.epoch).where(triggers.c.job_id == job_id).order_by(triggers.c.id))
    return [Lease(trigger_id=row.id, epoch=row.epoch) for row in rows]


def backlogs(connection: Connection, job_id: int) -> dict[int, int]:
    """Return how much is kept for each of the job's triggers for which anything is."""
    kept = (triggers.c.job_id == job_id, triggers.c.backlog > 0)
    return {row.id: row.backlog for row in connection.execute(select(triggers.c.id, triggers.c.backlog).where(*kept))}


def revoked(connection: Connection, job_id: int) -> list[int]:
    """Return the triggers that were taken from the job and that it must let go."""
    mine = (triggers.c.revoked_job_id == job_id, triggers.c.job_id.is_distinct_from(job_id))
    return list(connection.execute(select(triggers.c.id).where(*mine).order_by(triggers.c.id)).scalars())


def release(connection: Connection, job_ids: Sequence[int]) -> None:
    """Free whatever the jobs hold."""
    connection.execute(update(triggers).where(triggers.c.job_id.in_(job_ids)).values(job_id=None, state="waiting"))


def revoke(connection: Connection, trigger_ids: Sequence[int]) -> None:
    """Take the triggers from whoever holds them; the holder learns of it when it next asks."""
    taken = (triggers.c.id.in_(trigger_ids), triggers.c.job_id.is_not(None))
    connection.execute(update(triggers).where(*taken).values(revoked_job_id=triggers.c.job_id, job_id=None, state="waiting"))


def require_lease(connection: Connection, job_id: int, trigger_id: int, epoch: int) -> None:
    """Raise `Fenced` unless the job holds the trigger at this epoch."""
    row = connection.execute(select(triggers.c.job_id, triggers.c.epoch).where(triggers.c.id == trigger_id)).one_or_none()
    if row is None or row.job_id != job_id or row.epoch != epoch:
        raise Fenced(f"Job {job_id} does not hold trigger {trigger_id} at epoch {epoch}.", status=409, problem="fenced")


def claim(connection: Connection, job_id: int, project: str, queues: Sequence[str], capacity: int) -> None:
    """Claim free triggers of the project for the job until it holds `capacity`."""
    mine: list[str | None] = []
    elsewhere: set[str] = set()
    free: list[Claimable] = []
    rows = connection.execute(
        select(triggers.c.id, triggers.c.stream, triggers.c.job_id, triggers.c.queue)
        .where(triggers.c.project == project, triggers.c.state != "removed")
        .order_by(triggers.c.id)
    )
    for row in rows:
        if row.job_id == job_id:
            mine.append(row.stream)
        elif row.job_id is None:
            if row.queue in queues:
                free.append(Claimable(row.id, row.stream))
        elif row.stream is not None:
            elsewhere.add(row.stream)
    own = {stream for stream in mine if stream is not None}
    chosen = choose(free, own=own, elsewhere=elsewhere, room=capacity - len(mine), idle=not mine)
    if chosen:
        taken = update(triggers).where(triggers.c.id.in_(chosen))
        connection.execute(taken.values(job_id=job_id, epoch=triggers.c.epoch + 1, state="running", failure=None, revoked_job_id=None))


def choose(free: Sequence[Claimable], *, own: set[str], elsewhere: set[str], room: int, idle: bool) -> list[int]:
    """Return which free triggers a job may claim.

    All triggers of one stream go to one job: those of its `own` streams always, those of streams polled `elsewhere` never, and the
    others while there is `room`. A stream larger than any job's room goes to a job that is otherwise idle, rather than to none.
    """
    groups: dict[str | int, list[int]] = {}
    for trigger in free:
        if trigger.stream not in elsewhere:
            groups.setdefault(trigger.stream if trigger.stream is not None else trigger.id, []).append(trigger.id)
    chosen: list[int] = []
    for key in sorted(groups, key=lambda key: (key not in own, groups[key][0])):
        group = groups[key]
        if key in own or len(group) <= room or (idle and not chosen):
            chosen += group
            room -= len(group)
    return chosen
