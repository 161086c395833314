"""Triggers as their triggerer sees them: claimed, fetched, failed, cleaned up."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, Row, select, update

from headrace.store import kwargs, leases
from headrace.store.database import Database
from headrace.store.jobs import Jobs, require_running, touch
from headrace.store.keyring import Keyring
from headrace.store.tables import triggers
from headrace.store.times import moment
from headrace.wire.model import rfc3339
from headrace.wire.triggers import LoadTriggers, RunTrigger, TriggerFailure, TriggersLoaded


class Triggers:
    """The triggers of one database, and the claims on them."""

    def __init__(self, database: Database, jobs: Jobs) -> None:
        self._database = database
        self._jobs = jobs

    def load(self, job_id: int, asked: LoadTriggers) -> TriggersLoaded:
        """Claim for the job up to its capacity; answer with all that it holds and what it must let go."""
        return self._database.write(lambda connection: self._load(connection, job_id, asked))

    def workloads(self, job_id: int, trigger_ids: Sequence[int]) -> list[RunTrigger]:
        """Return what is needed to run those of the triggers that the job holds."""
        with self._database.reading() as connection:
            require_running(connection, job_id)
            mine = (triggers.c.id.in_(trigger_ids), triggers.c.job_id == job_id)
            return [
                _workload(row, job_id, self._database.keyring)
                for row in connection.execute(select(triggers).where(*mine).order_by(triggers.c.id))
            ]

    def failure(self, job_id: int, trigger_id: int, failure: TriggerFailure) -> None:
        """Keep why the trigger failed; the job keeps the lease, since the restart is its to make."""
        self._database.write(lambda connection: _fail(connection, job_id, trigger_id, failure, self._database.now()))

    def cleanup(self, job_id: int, trigger_ids: Sequence[int]) -> None:
        """Give up the job's leases on triggers that it no longer runs."""
        self._database.write(lambda connection: _give_up(connection, job_id, trigger_ids))

    def _load(self, connection: Connection, job_id: int, asked: LoadTriggers) -> TriggersLoaded:
        job = require_running(connection, job_id)
        touch(connection, job_id, self._database.now())
        self._jobs.sweep(connection)
        if job.wanted == "run":
            leases.claim(connection, job_id, job.project, asked.queues, asked.capacity)
        return TriggersLoaded(leases=leases.held(connection, job_id), revoked=leases.revoked(connection, job_id))


def _workload(row: Row[tuple[object, ...]], job_id: int, keyring: Keyring) -> RunTrigger:
    arguments, trouble = kwargs.opened(keyring, row.kwargs, kwargs.named(row.project, row.name))
    return RunTrigger(
        trigger_id=row.id,
        name=row.name,
        classpath=row.classpath,
        kwargs=arguments,
        trouble=trouble,
        stream=row.stream,
        queue=row.queue,
        epoch=row.epoch,
        log_name=f"trigger-{row.id}-job-{job_id}.log",
        backlog=row.backlog,
        run_id=row.run_id,
    )


def _fail(connection: Connection, job_id: int, trigger_id: int, failure: TriggerFailure, now: int) -> None:
    require_running(connection, job_id)
    leases.require_lease(connection, job_id, trigger_id, failure.epoch)
    kept = failure.model_dump(exclude={"epoch"}) | {"at": rfc3339(moment(now))}
    connection.execute(
        update(triggers)
        .where(triggers.c.id == trigger_id)
        .values(state="failed", failure=msgspec.json.encode(kept).decode(), failures=triggers.c.failures + 1)
    )


def _give_up(connection: Connection, job_id: int, trigger_ids: Sequence[int]) -> None:
    require_running(connection, job_id)
    mine = (triggers.c.id.in_(trigger_ids), triggers.c.job_id == job_id)
    connection.execute(update(triggers).where(*mine).values(job_id=None, state="waiting"))
