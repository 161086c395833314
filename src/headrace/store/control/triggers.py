"""Triggers from the view of their triggerer: acquired, fetched, failed, released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from headrace.store.control import leases, restarts
from headrace.store.control.jobs import Jobs, require_running
from headrace.store.control.workloads import Workload, workloads
from headrace.store.db.commit_signal import CommitSignal
from headrace.store.db.database import Database
from headrace.wire.control.triggers import (
    CleanupTriggers,
    FailureRecorded,
    LoadTriggers,
    StreamFailure,
    StreamFailureRecorded,
    TriggerFailure,
    TriggersLoaded,
)


class Triggers:
    """The triggers of one database, and the leases on them."""

    def __init__(self, database: Database, jobs: Jobs, runs_changed: CommitSignal) -> None:
        self._database = database
        self._jobs = jobs
        self._runs_changed = runs_changed

    def load(self, job_id: int, request: LoadTriggers) -> TriggersLoaded:
        """Acquire triggers for the job up to its capacity. Return the triggers to run and the triggers to release."""
        return self._jobs.load(job_id, request)

    def workloads(self, job_id: int, trigger_ids: Sequence[int]) -> list[Workload]:
        """Return the workloads of the given triggers that the job holds."""
        with self._database.reading() as connection:
            require_running(connection, job_id)
            return workloads(connection, self._database.keyring, job_id, trigger_ids, self._database.now())

    def failure(self, job_id: int, trigger_id: int, failure: TriggerFailure) -> FailureRecorded:
        """Store the failure of the trigger. Return when the job restarts it, or that it is parked."""

        def work(connection: Connection) -> FailureRecorded:
            recorded = _fail(connection, job_id, trigger_id, failure, self._database.now())
            if recorded.decision == "parked":
                self._runs_changed.signal(connection)  # a run that waits for this trigger ends now
            return recorded

        return self._database.write(work)

    def stream_failure(self, job_id: int, failed: StreamFailure) -> StreamFailureRecorded:
        """Store the failure of watches with their stream. Return when to open the stream again."""
        return self._database.write(lambda connection: _fail_stream(connection, job_id, failed, self._database.now()))

    def cleanup(self, job_id: int, request: CleanupTriggers) -> None:
        """Release the job's leases on triggers that it has stopped, so that other jobs may acquire them.

        Many leases are released in several transactions.
        """
        for start in range(0, len(request.trigger_ids), leases.MAX_CHANGED_LEASES):
            part = request.trigger_ids[start : start + leases.MAX_CHANGED_LEASES]
            self._database.write(partial(_clean_up, job_id=job_id, trigger_ids=part, epochs=request.epochs))

    def resume(self, trigger_id: int) -> None:
        """Start a trigger that is parked or waits after a failure."""
        self._database.write(lambda connection: restarts.resume(connection, trigger_id))


def _fail(connection: Connection, job_id: int, trigger_id: int, failure: TriggerFailure, now: int) -> FailureRecorded:
    require_running(connection, job_id)
    return restarts.record(connection, job_id, trigger_id, failure, now)


def _fail_stream(connection: Connection, job_id: int, failed: StreamFailure, now: int) -> StreamFailureRecorded:
    require_running(connection, job_id)
    return restarts.record_stream(connection, job_id, failed, now)


def _clean_up(connection: Connection, job_id: int, trigger_ids: Sequence[int], epochs: Mapping[int, int]) -> None:
    require_running(connection, job_id)
    leases.release(connection, job_id, trigger_ids, epochs)
