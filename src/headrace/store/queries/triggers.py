"""Status and last failure of triggers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Integer, Row, and_, bindparam, case, func, or_, select

from headrace.core.values.moments import moment
from headrace.store.control.balancing import unassigned
from headrace.store.tables.control import jobs, triggers
from headrace.wire.control.jobs import Blocked
from headrace.wire.status.status import TriggerList, TriggerStatus
from headrace.wire.status.triggerers import TriggerDetail

_AS_THEY_ARE = [name for name in TriggerStatus.model_fields if name in triggers.c]
_DETAILS = ("project", "classpath", "epoch", "failures", "max_restarts")

# With `run_id IS NULL` alone, SQLite would look up nearly every trigger by its index. That takes twice as long
# as a scan.
_declared = (func.coalesce(triggers.c.run_id, "") == "", triggers.c.state != "removed")
_first = triggers.c.id.in_(bindparam("first", expanding=True))
_troubled = or_(triggers.c.failure.is_not(None), triggers.c.backlog > 0, triggers.c.state != "running", _first)
_rank = case(
    (triggers.c.state == "parked", 0),
    (triggers.c.state == "failed", 1),
    (_first, 2),
    (triggers.c.state == "waiting", 3),
    (triggers.c.failure.is_not(None), 4),
    else_=5,
)
_limit = bindparam("limit", type_=Integer)
_worst = select(triggers.c.id).where(_troubled, *_declared).order_by(_rank, triggers.c.name, triggers.c.id).limit(_limit)
_others = select(triggers.c.id).where(~_troubled, *_declared).order_by(triggers.c.project, triggers.c.name).limit(_limit)
_blocked = select(jobs.c.id, jobs.c.blocked).where(jobs.c.blocked.is_not(None), jobs.c.state == "running")


def trigger_page(connection: Connection, now: int, why: Mapping[int, str], *, after: int | None, limit: int) -> TriggerList:
    """Return a page of the triggers that projects declare, by name, after the id `after`.

    Triggers of task runs are part of their runs. `why` maps a trigger that no triggerer can run to the reason.
    `now` is in microseconds.
    """
    declared = [triggers.c.run_id.is_(None), triggers.c.state != "removed"]
    if after is not None:
        name = select(triggers.c.name).where(triggers.c.id == after).scalar_subquery()
        declared.append(or_(triggers.c.name > name, and_(triggers.c.name == name, triggers.c.id > after)))
    chosen = select(triggers.c.id).where(*declared).order_by(triggers.c.name, triggers.c.id).limit(limit)
    statuses = _listed(connection, now, why, _blocking(connection), triggers.c.id.in_(chosen))
    return TriggerList(triggers=statuses, after=statuses[-1].id if len(statuses) == limit else None)


def trigger_statuses(connection: Connection, now: int, *which: ColumnElement[bool]) -> list[TriggerStatus]:
    """Return the registered triggers that meet the conditions, by name. `now` is in microseconds."""
    return _listed(connection, now, unassigned(connection), _blocking(connection), *which)


def top_triggers(connection: Connection, now: int, why: Mapping[int, str], limit: int) -> list[TriggerStatus]:
    """Return at most `limit` of the triggers that projects declare, by name. Failed ones have priority.

    `why` maps a trigger that no triggerer can run to the reason. `now` is in microseconds.
    """
    blocking = _blocking(connection)
    first = [*(one for one in blocking if one is not None), *list(why)[:limit]]
    chosen = list(connection.execute(_worst, {"first": first, "limit": limit}).scalars())
    if len(chosen) < limit:  # the others in index order: of 10,000, nearly all are healthy
        chosen += connection.execute(_others, {"first": first, "limit": limit - len(chosen)}).scalars()
    return _listed(connection, now, why, blocking, triggers.c.id.in_(chosen))


def _listed(
    connection: Connection, now: int, why: Mapping[int, str], blocking: Mapping[int | None, Blocked], *which: ColumnElement[bool]
) -> list[TriggerStatus]:
    columns = [*(triggers.c[name] for name in _AS_THEY_ARE), triggers.c.retry_at, triggers.c.started]
    listed = select(*columns).where(triggers.c.state != "removed", *which).order_by(triggers.c.name, triggers.c.id)
    return [_status(row, now, why.get(row.id), blocking.get(row.id)) for row in connection.execute(listed)]


def _blocking(connection: Connection) -> dict[int | None, Blocked]:
    """Return the blocks of the runners of jobs now, by trigger."""
    return {block.trigger_id: block for block in blocks(connection).values()}


def blocks(connection: Connection) -> dict[int, Blocked]:
    """Return the blocks of the runners of jobs now, by job."""
    return {row.id: Blocked.model_validate_json(row.blocked) for row in connection.execute(_blocked)}


def last_failure(stored: str | None) -> dict[str, Any]:
    """Return the fields of a trigger's last failure from the stored JSON, or no fields if it never failed."""
    return {} if stored is None else dict(msgspec.json.decode(stored))


def _since(row: Row[Any], now: int) -> datetime | None:
    return None if row.started is None else moment(min(row.started, now))


def _status(row: Row[Any], now: int, why: str | None, block: Blocked | None) -> TriggerStatus:
    failure = last_failure(row.failure)
    # The job that holds it restarts it when its time has come, and does not report that.
    again = row.state == "failed" and row.job_id is not None and row.retry_at is not None and row.retry_at <= now
    state = "running" if again else row.state
    fields = dict(zip(_AS_THEY_ARE, row, strict=False)) | {
        "state": state,
        "failure": f"{failure['type']}: {failure['message']}" if failure else None,
        "failed": failure.get("at"),
        "since": _since(row, now) if state == "running" else None,
        "blocking": None if block is None else block.seconds,
        "unserved": why,
    }
    return TriggerStatus.model_validate(fields)


def trigger_detail(connection: Connection, trigger_id: int, now: int) -> TriggerDetail | None:
    """Return one registered trigger, or None if it does not exist. `now` is in microseconds."""
    statuses = trigger_statuses(connection, now, triggers.c.id == trigger_id)
    if not statuses:
        return None
    row = connection.execute(select(triggers).where(triggers.c.id == trigger_id)).one()
    return TriggerDetail(
        **statuses[0].model_dump(),
        **{name: getattr(row, name) for name in _DETAILS},
        retry_at=None if row.retry_at is None else moment(row.retry_at),
        traceback=last_failure(row.failure).get("traceback", []),
        stack=[line for block in blocks(connection).values() if block.trigger_id == trigger_id for line in block.stack],
    )
