"""Lists and details of task runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Integer, bindparam, select

from headrace.core.values.moments import moment
from headrace.store.db.ages import wall_of
from headrace.store.tables.control import triggers
from headrace.store.tables.task_runs import event_waits, task_runs
from headrace.store.task_runs.rows import callbacks_of
from headrace.wire.task_runs import AwaitedEvent, AwaitedTriggerStatus, TaskRunDetail, TaskRunState, TaskRunSummary

_awaited = [triggers.c[name].label(f"trigger_{name}") for name in ("classpath", "state", "job_id", "failure")]
_all = (
    select(task_runs, *_awaited, event_waits.c.event, wall_of(task_runs.c.timeout_at).label("timeout"))
    .outerjoin(triggers, triggers.c.id == task_runs.c.trigger_id)
    .outerjoin(event_waits, event_waits.c.run_id == task_runs.c.run_id)
)
_newest = _all.order_by(task_runs.c.changed.desc(), task_runs.c.run_id.desc()).limit(bindparam("limit", type_=Integer))


def task_run_list(
    connection: Connection, *, limit: int, state: TaskRunState | None = None, task: str | None = None
) -> list[TaskRunSummary]:
    """Return task runs, the most recently changed first."""
    query = _newest
    if state is not None:
        query = query.where(task_runs.c.state == state)
    if task is not None:
        query = query.where(task_runs.c.task == task)
    return [TaskRunSummary(**_facts(row)) for row in connection.execute(query, {"limit": limit})]


def task_run(connection: Connection, run_id: str) -> TaskRunDetail | None:
    """Return one task run with its arguments and its result, or None if it does not exist."""
    row = connection.execute(_all.where(task_runs.c.run_id == run_id)).one_or_none()
    if row is None:
        return None
    return TaskRunDetail(**_facts(row), kwargs=row.next_kwargs, result=row.result, callbacks=callbacks_of(row.callback))


def _facts(row: Any) -> dict[str, Any]:
    waits = row.state == "deferred" and row.event is None and row.trigger_classpath is not None
    awaited = AwaitedTriggerStatus(
        trigger_id=row.trigger_id,
        classpath=row.trigger_classpath,
        state=row.trigger_state,
        job_id=row.trigger_job_id,
        failure=row.trigger_failure,
    ) if waits else None  # fmt: skip
    return {
        "run_id": row.run_id,
        "project": row.project,
        "task": row.task,
        "state": row.state,
        "method": row.next_method,
        "attempt": row.attempt,
        "step": row.step,
        "waits_for": awaited,
        "waits_for_event": None if row.event is None else AwaitedEvent.model_validate_json(row.event),
        "timeout": None if row.timeout is None else moment(row.timeout),
        "job_id": row.job_id if row.state == "running" else None,
        "created": moment(row.created),
        "changed": moment(row.changed),
        "finished": None if row.finished is None else moment(row.finished),
        "error": row.error,
    }
