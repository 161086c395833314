"""Workloads: all data that a job needs to run its triggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from headrace.store.control import encrypted_arguments as kwargs
from headrace.store.control import restarts as failures
from headrace.store.dialects.statements import MAX_STATEMENT_VALUES, DriverStatement
from headrace.store.keyring import Keyring

_held = DriverStatement(
    "SELECT id, project, name, classpath, kwargs, stream, queue, epoch, backlog, state, retry_at, restarts, run_id"
    " FROM triggers WHERE job_id = :job_id AND id IN :ids ORDER BY id",
    ids="bigint",
)


class Workload(msgspec.Struct, frozen=True):
    """`RunTrigger` as the store builds it. Its `kwargs` are the declared JSON, which is not parsed on the way."""

    trigger_id: int
    name: str
    classpath: str
    kwargs: msgspec.Raw
    stream: str | None
    queue: str
    epoch: int
    log_name: str
    backlog: int
    load_error: str | None
    parked: bool
    start_after: float
    restarts: int
    run_id: str | None


def workloads(connection: Connection, keyring: Keyring, job_id: int, trigger_ids: Sequence[int], now: int) -> list[Workload]:
    """Return the workloads of the given triggers that the job holds, ordered by id."""
    ids = sorted(set(trigger_ids))
    result: list[Workload] = []
    for start in range(0, len(ids), MAX_STATEMENT_VALUES):
        part = _held(connection, job_id=job_id, ids=ids[start : start + MAX_STATEMENT_VALUES]).all()
        result += [_workload(row, job_id, keyring, now) for row in part]
    return result


def _workload(row: Sequence[Any], job_id: int, keyring: Keyring, now: int) -> Workload:
    trigger_id, project, name, classpath, stored_kwargs, stream, queue, epoch, backlog, state, retry_at, restarts, run_id = row
    arguments, load_error = kwargs.decrypt(keyring, stored_kwargs, kwargs.display_name(project, name))
    return Workload(
        trigger_id=trigger_id,
        name=name,
        classpath=classpath,
        kwargs=msgspec.Raw(arguments),
        load_error=load_error,
        stream=stream,
        queue=queue,
        epoch=epoch,
        log_name=f"trigger-{trigger_id}-job-{job_id}.log",
        backlog=backlog,
        parked=state == "parked",
        start_after=failures.start_after(retry_at, now),
        restarts=restarts,
        run_id=run_id,
    )
