"""Workloads: what a job needs to run the triggers that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from headrace.store.control import encrypted_arguments as kwargs
from headrace.store.control import restarts as failures
from headrace.store.dialects.statements import MOST_VALUES, DriverStatement
from headrace.store.keyring import Keyring

_held = DriverStatement(
    "SELECT id, project, name, classpath, kwargs, stream, queue, epoch, backlog, state, retry_at, restarts, run_id"
    " FROM triggers WHERE job_id = :job_id AND id IN :ids ORDER BY id",
    ids="bigint",
)


class Workload(msgspec.Struct, frozen=True):
    """`RunTrigger` as the store makes it: its `kwargs` are the JSON that was declared, which nothing reads on the way."""

    trigger_id: int
    name: str
    classpath: str
    kwargs: msgspec.Raw
    stream: str | None
    queue: str
    epoch: int
    log_name: str
    backlog: int
    trouble: str | None
    parked: bool
    start_after: float
    restarts: int
    run_id: str | None


def workloads(connection: Connection, keyring: Keyring, job_id: int, trigger_ids: Sequence[int], now: int) -> list[Workload]:
    """Return the workloads of those of the triggers that the job holds, in the order of their ids."""
    ids = sorted(set(trigger_ids))
    found: list[Workload] = []
    for start in range(0, len(ids), MOST_VALUES):
        part = _held(connection, job_id=job_id, ids=ids[start : start + MOST_VALUES]).all()
        found += [_workload(row, job_id, keyring, now) for row in part]
    return found


def _workload(row: Sequence[Any], job_id: int, keyring: Keyring, now: int) -> Workload:
    trigger_id, project, name, classpath, kept, stream, queue, epoch, backlog, state, retry_at, restarts, run_id = row
    arguments, trouble = kwargs.decrypt(keyring, kept, kwargs.named(project, name))
    return Workload(
        trigger_id=trigger_id,
        name=name,
        classpath=classpath,
        kwargs=msgspec.Raw(arguments),
        trouble=trouble,
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
