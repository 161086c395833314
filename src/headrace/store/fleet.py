"""What people are shown of triggerers and of one trigger."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, select

from headrace.store.jobs import Liveness
from headrace.store.overview import job_list, triggers_shown
from headrace.store.tables import triggers
from headrace.store.times import moment
from headrace.wire.fleet import TriggerDetail
from headrace.wire.status import JobStatus

_DETAILS = ("project", "classpath", "epoch", "failures", "max_restarts")


def triggerer_list(connection: Connection, now: int, liveness: Liveness) -> list[JobStatus]:
    """Return the triggerers that run, then those that ended last."""
    return job_list(connection, now, liveness, kind="triggerer")


def trigger_detail(connection: Connection, trigger_id: int) -> TriggerDetail | None:
    """Return one trigger that is registered."""
    found = triggers_shown(connection, triggers.c.id == trigger_id)
    if not found:
        return None
    row = connection.execute(select(triggers).where(triggers.c.id == trigger_id)).one()
    kept = {} if row.failure is None else msgspec.json.decode(row.failure)
    return TriggerDetail(
        **found[0].model_dump(),
        **{name: getattr(row, name) for name in _DETAILS},
        retry_at=None if row.retry_at is None else moment(row.retry_at),
        failed=kept.get("at"),
        traceback=kept.get("traceback", []),
    )
