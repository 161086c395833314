"""What people are shown of triggerers and of one trigger."""

from __future__ import annotations

from sqlalchemy import Connection, select

from headrace.core.values.moments import moment
from headrace.store.control.jobs import Liveness
from headrace.store.queries.status import job_list
from headrace.store.queries.triggers import blocks, last_failure, triggers_shown
from headrace.store.tables.base import triggers
from headrace.wire.status.status import JobStatus
from headrace.wire.status.triggerers import TriggerDetail

_DETAILS = ("project", "classpath", "epoch", "failures", "max_restarts")


def triggerer_list(connection: Connection, now: int, liveness: Liveness) -> list[JobStatus]:
    """Return the triggerers that run, then those that ended last."""
    return job_list(connection, now, liveness, kind="triggerer")


def trigger_detail(connection: Connection, trigger_id: int, now: int) -> TriggerDetail | None:
    """Return one trigger that is registered; `now` is in microseconds."""
    found = triggers_shown(connection, now, triggers.c.id == trigger_id)
    if not found:
        return None
    row = connection.execute(select(triggers).where(triggers.c.id == trigger_id)).one()
    return TriggerDetail(
        **found[0].model_dump(),
        **{name: getattr(row, name) for name in _DETAILS},
        retry_at=None if row.retry_at is None else moment(row.retry_at),
        traceback=last_failure(row.failure).get("traceback", []),
        stack=[line for block in blocks(connection).values() if block.trigger_id == trigger_id for line in block.stack],
    )
