"""Task runs as rows: lock and read them, and write them back after a step together with its related rows.

A wait has a row of its own in `triggers`. When no run waits on it, it is revoked from its job and marked
removed. Requests of its holder then differ from requests with another holder's old epoch. The rows of waits
before the last are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from headrace.core.task_run import TIMED_OUT, Continuation, State, TaskRunState, begin, with_argument
from headrace.store.control import encrypted_arguments, leases
from headrace.store.db.database import Database
from headrace.store.db.meta import log_end
from headrace.store.tables.control import triggers
from headrace.store.tables.task_runs import run_events, task_runs
from headrace.store.task_runs.wait_terms import remove_wait
from headrace.wire.task_runs import AwaitedTrigger, Callbacks, StartRun, WaitCondition

SECOND = 1_000_000
FREE = {"state": "waiting", "failures": 0, "fired": 0, "rejected": 0, "epoch": 0, "stream": None}


@dataclass(frozen=True, slots=True)
class TaskRunRow:
    """One run as stored in its row, locked until the transaction ends."""

    run_id: str
    project: str
    task: str
    trigger_id: int | None
    callback: str | None
    head: int
    run: TaskRunState


def read(connection: Connection, run_ids: Iterable[str]) -> dict[str, TaskRunRow]:
    """Lock and return the existing runs among the given ones.

    They are locked in the order of their ids, so that no two transactions wait for each other.
    """
    unique_ids = sorted(set(run_ids))
    if not unique_ids:
        return {}
    query = select(task_runs).where(task_runs.c.run_id.in_(unique_ids)).order_by(task_runs.c.run_id).with_for_update()
    rows = connection.execute(query)
    return {row.run_id: TaskRunRow(row.run_id, row.project, row.task, row.trigger_id, row.callback, row.head, _run(row)) for row in rows}


def create(database: Database, connection: Connection, project: str, start: StartRun, age: int) -> TaskRunRow:
    """Create a run that does not exist yet, and the trigger of its initial wait if it has one.

    `age` is the age of the database.
    """
    now, waiting = database.now(), start.waiting
    if waiting is None:
        return _insert(connection, project, start, begin(start.kwargs), None, now)
    trigger = waiting.trigger
    trigger_id = None if trigger is None else await_trigger(database, connection, project, start.run_id, 1, trigger)
    return _insert(connection, project, start, begin(start.kwargs, wait_of(waiting, age)), trigger_id, now)


def save(connection: Connection, held: TaskRunRow, after: TaskRunState, now: int, trigger_id: int | None = None) -> None:
    """Write a run back after a step: its wait ends or begins (`trigger_id`), and its end starts its callback."""
    values = _columns(after, now)
    if trigger_id is not None:
        values["trigger_id"] = trigger_id
    if held.run.state == "deferred":
        release(connection, held)
    connection.execute(update(task_runs).where(task_runs.c.run_id == held.run_id).values(**values))
    if after.ended:
        connection.execute(delete(run_events).where(run_events.c.run_id == held.run_id))
        _call_back(connection, held, after, now)


def await_trigger(database: Database, connection: Connection, project: str, run_id: str, step: int, trigger: AwaitedTrigger) -> int:
    """Create the trigger that a run waits for, and return its id.

    Any triggerer of its project and queue may acquire it.
    """
    name = f"run:{run_id}/{step}"
    values = {
        **FREE,
        **encrypted_arguments.encrypt(database.keyring, trigger.kwargs, encrypted_arguments.display_name(project, name)),
        "project": project,
        "name": name,
        "classpath": trigger.classpath,
        "queue": trigger.queue,
        "declared": database.now(),
        "run_id": run_id,
    }
    return int(connection.execute(insert(triggers).values(**values).returning(triggers.c.id)).scalar_one())


def release(connection: Connection, held: TaskRunRow) -> None:
    """End the wait of a run: revoke its trigger if no other run waits on it."""
    remove_wait(connection, held.run_id)
    before = (triggers.c.run_id == held.run_id, triggers.c.id != held.trigger_id)
    connection.execute(delete(triggers).where(*before))
    if held.trigger_id is not None:
        leases.revoke(connection, [held.trigger_id])
        connection.execute(update(triggers).where(triggers.c.id == held.trigger_id).values(state="removed"))


def wait_of(waiting: WaitCondition, age: int) -> Continuation:
    """Return the core's continuation for a wait that begins at this age of the database (microseconds)."""
    over = None if waiting.timeout is None else age + round(waiting.timeout * SECOND)
    return Continuation(waiting.method, waiting.kwargs, over, waiting.timeout_method)


def callbacks_of(text: str | None) -> Callbacks | None:
    """Return the callbacks that a run declares, or None."""
    return None if text is None else Callbacks.model_validate_json(text)


def _insert(connection: Connection, project: str, start: StartRun, run: TaskRunState, trigger_id: int | None, now: int) -> TaskRunRow:
    callbacks = None if start.callbacks is None else start.callbacks.model_dump_json(exclude_none=True)
    facts = {
        "run_id": start.run_id,
        "project": project,
        "task": start.task,
        "trigger_id": trigger_id,
        "callback": callbacks,
        "created": now,
    }
    head = log_end(connection)
    connection.execute(insert(task_runs).values(head=head, **facts, **_columns(run, now)))
    return TaskRunRow(start.run_id, project, start.task, trigger_id, callbacks, head, run)


def _call_back(connection: Connection, held: TaskRunRow, after: TaskRunState, now: int) -> None:
    task = _callback(callbacks_of(held.callback), after)
    if task is None:
        return
    outcome = msgspec.json.encode({"run_id": held.run_id, "task": held.task, "state": after.state, "error": after.error}).decode()
    if after.result is not None:
        outcome = with_argument(outcome, "result", after.result)
    start = StartRun(run_id=f"{held.run_id}:callback"[-250:], task=task, kwargs=with_argument("{}", "outcome", outcome))
    if start.run_id not in read(connection, [start.run_id]):
        _insert(connection, held.project, start, begin(start.kwargs), None, now)


def _callback(callbacks: Callbacks | None, after: TaskRunState) -> str | None:
    if callbacks is None:
        return None
    if after.state == "failed":
        return (callbacks.on_timeout if (after.error or "").startswith(TIMED_OUT) else None) or callbacks.on_failure
    return callbacks.on_success if after.state == "succeeded" else None


def _run(row: Any) -> TaskRunState:
    state: State = row.state
    wait = Continuation(row.next_method, row.next_kwargs, row.timeout_at, row.timeout_method)
    return TaskRunState(state, wait, row.attempt, row.step, row.epoch, row.job_id, row.result, row.error)


def _columns(run: TaskRunState, now: int) -> dict[str, Any]:
    return {
        "state": run.state,
        "attempt": run.attempt,
        "step": run.step,
        "epoch": run.epoch,
        "job_id": run.holder,
        "next_method": run.wait.method,
        "next_kwargs": run.wait.kwargs,
        "timeout_at": run.wait.timeout_at,
        "timeout_method": run.wait.timeout_method,
        "changed": now,
        "finished": now if run.ended else None,
        "result": run.result,
        "error": run.error,
    }


def in_order(held: dict[str, TaskRunRow], run_ids: Sequence[str]) -> list[TaskRunRow]:
    """Return the runs in the order of `run_ids`."""
    return [held[run_id] for run_id in run_ids if run_id in held]
