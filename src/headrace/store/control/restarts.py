"""Failures of triggers: store the reason, and schedule the restart.

A trigger that fails too often is parked until an administrator resumes it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, cast

import msgspec
from sqlalchemy import Connection, Row, select, update

from headrace.core.restart_policy import MAX_RESTARTS, MAX_WAIT_SECONDS, RestartDecision, next_restart
from headrace.core.values.moments import moment
from headrace.errors import ApiRefused
from headrace.store.control import leases
from headrace.store.dialects.statements import in_list, rows_among
from headrace.store.tables.control import triggers
from headrace.wire.base import rfc3339
from headrace.wire.control.triggers import FailureRecorded, StreamFailure, StreamFailureRecorded, TriggerFailure

SECOND = 1_000_000
SPREAD = 1_000
_watches = select(
    triggers.c.id,
    triggers.c.name,
    triggers.c.epoch,
    triggers.c.restarts,
    triggers.c.max_restarts,
    triggers.c.started,
    triggers.c.retry_at,
    triggers.c.failure,
).where(in_list(triggers.c.id, "ids"))

FRESH = {"state": "waiting", "failure": None, "restarts": 0, "retry_at": None}
"""The columns of a trigger that may start immediately, as if it had never failed."""


def record(connection: Connection, job_id: int, trigger_id: int, failure: TriggerFailure, now: int) -> FailureRecorded:
    """Store the failure of the trigger and return the next step. A repeated report gets its first answer."""
    leases.require_lease(connection, job_id, trigger_id, failure.epoch)
    row = connection.execute(select(triggers).where(triggers.c.id == trigger_id)).one()
    if _is_replay(row, failure):
        return _recorded(row.restarts, row.state == "parked", start_after(row.retry_at, now))
    limit = MAX_RESTARTS if row.max_restarts is None else row.max_restarts
    uptime = 0.0 if row.started is None else (now - row.started) / SECOND - failure.blocked
    decision = next_restart(row.restarts, uptime, limit, trigger_id % SPREAD / SPREAD, upstream=failure.upstream)
    stored = failure.model_dump() | {"at": rfc3339(moment(now))}
    values = {"failure": msgspec.json.encode(stored).decode(), "failures": triggers.c.failures + 1, "restarts": decision.restarts}
    connection.execute(update(triggers).where(triggers.c.id == trigger_id).values(**values, **_next(decision, now)))
    if decision.retry_in is None:
        leases.changed(connection)  # if no trigger of its stream is left to run, its job releases it
    return _recorded(decision.restarts, decision.retry_in is None, decision.retry_in or 0.0)


def record_stream(connection: Connection, job_id: int, failed: StreamFailure, now: int) -> StreamFailureRecorded:
    """Store the failure of the watches of a stream. Return the time of the restart, the same for all of them."""
    rows = [
        row
        for row in rows_among(connection, _watches.where(triggers.c.job_id == job_id), "ids", failed.epochs)
        if row.epoch == failed.epochs[row.id]
    ]
    first = rows[0].id if rows else 0
    waits: list[float] = []
    same: dict[tuple[int, float, bool], list[int]] = defaultdict(list)
    for row in rows:
        if _report(row) == failed.report:
            waits.append(start_after(row.retry_at, now))
            continue
        limit = MAX_RESTARTS if row.max_restarts is None else row.max_restarts
        uptime = 0.0 if row.started is None else (now - row.started) / SECOND
        decision = next_restart(row.restarts, uptime, limit, first % SPREAD / SPREAD, upstream=True)
        same[decision.restarts, decision.retry_in or 0.0, row.id == first].append(row.id)
    for (restarts, retry_in, whole), ids in same.items():
        waits.append(retry_in)
        stored = failed.model_dump(exclude={"epochs"}) | {"at": rfc3339(moment(now)), "upstream": True}
        if not whole:  # the traceback is stored once, because it is the same for all watches of a stream
            stored["traceback"] = [f"The traceback is kept with trigger {rows[0].name}, of the same stream."]
        values = {"failure": msgspec.json.encode(stored).decode(), "failures": triggers.c.failures + 1, "restarts": restarts}
        for part in leases.parts(ids):
            mine = update(triggers).where(triggers.c.id.in_(part))
            connection.execute(mine.values(**values, **_next(RestartDecision(restarts, retry_in), now)))
    return StreamFailureRecorded(retry_in=max(waits, default=0.0))


def resume(connection: Connection, trigger_id: int) -> None:
    """Start a failed or parked trigger again immediately. A running one is unchanged.

    Raises:
        ApiRefused: The trigger does not exist.
    """
    row = connection.execute(select(triggers.c.state).where(triggers.c.id == trigger_id)).one_or_none()
    if row is None or row.state == "removed":
        raise ApiRefused(f"No trigger has the id {trigger_id}.", hint="See: headrace triggers", status=404, problem="not-found")
    if row.state in ("failed", "parked"):
        leases.revoke(connection, [trigger_id])
        connection.execute(update(triggers).where(triggers.c.id == trigger_id).values(**FRESH))
        leases.changed(connection)


def start_after(retry_at: int | None, now: int) -> float:
    """Return the seconds until a trigger may start, at most the longest wait even if a clock was set back."""
    return 0.0 if retry_at is None else min(max(retry_at - now, 0) / SECOND, MAX_WAIT_SECONDS)


def _next(decision: RestartDecision, now: int) -> dict[str, Any]:
    if decision.retry_in is None:
        return {"state": "parked", "retry_at": None}
    again = now + round(decision.retry_in * SECOND)
    return {"state": "failed", "retry_at": again, "started": again}


def _report(row: Row[Any]) -> str | None:
    """Return the latest report of a stream's failure that the trigger stores, or None."""
    if row.failure is None or '"report"' not in row.failure:
        return None
    return cast("str | None", msgspec.json.decode(row.failure).get("report"))


def _is_replay(row: Row[Any], failure: TriggerFailure) -> bool:
    if not failure.number or row.failure is None:
        return False
    stored = msgspec.json.decode(row.failure)
    return bool((stored.get("epoch"), stored.get("number")) == (failure.epoch, failure.number))


def _recorded(restarts: int, parked: bool, retry_in: float) -> FailureRecorded:
    return FailureRecorded(decision="parked" if parked else "restart", retry_in=retry_in, restarts=restarts)
