"""Jobs: which ones run, which ones ended, and which ones are lost.

    running ──complete──► succeeded | failed
       └──silent for longer than the threshold, or replaced──► lost

Invariant: an end is final and releases the job's leases. An ended job is fenced from every call except a replay
of its registration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
from sqlalchemy import Connection, insert, select, text, update

from headrace.errors import ApiRefused, Fenced
from headrace.store.control import leases
from headrace.store.control.balancing import Balancer
from headrace.store.control.held_leases import HeldLeases
from headrace.store.control.liveness import LivenessTracker, steady_clock
from headrace.store.control.stream_reports import save_reports, save_samples
from headrace.store.db.database import Database
from headrace.store.tables.control import jobs
from headrace.store.tables.pipelines import runs, scope_leases
from headrace.wire.control.jobs import EVERY_PROJECT, Blocked, CompleteJob, DesiredState, Heartbeat, HeartbeatAnswer, JobKind, RegisterJob
from headrace.wire.control.triggers import LoadTriggers, TriggersLoaded

SECOND = 1_000_000
STACK_LINES = 100
STACK_WIDTH = 500

MAX_BALANCING_SECONDS = 5.0
"""Maximum seconds that a load spends on balancing before it answers that there is more to do."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """The maximum time without a heartbeat, in microseconds, and the clock that measures it, which cannot be set.

    No job is lost within `threshold` after the store opens, because no heartbeat could arrive before.
    """

    threshold: int = 30 * SECOND
    ticks: Callable[[], int] = steady_clock


@dataclass(frozen=True, slots=True)
class Registered:
    """A job as its registration stores it."""

    id: int
    kind: JobKind


class Jobs:
    """The jobs of one database."""

    def __init__(self, database: Database, liveness: Liveness) -> None:
        self._database = database
        self._liveness = liveness
        self._liveness_tracker = LivenessTracker(liveness.threshold, liveness.ticks)
        self._balancer = Balancer(database)
        self._held_leases = HeldLeases(database)
        self._unreleased: set[int] = set()

    def register(self, job: RegisterJob) -> Registered:
        """Register a process, and end the job of the incarnation that it replaces."""
        registered, ended = self._database.write(lambda connection: _register(connection, job, self._database.now()))
        self._release(ended)
        return registered

    def heartbeat(self, job_id: int, beat: Heartbeat) -> HeartbeatAnswer:
        """Record that the job lives and the reports of its streams.

        Return the desired state and, on request, its leases.
        """
        answer = self._database.write(lambda connection: self._beat(connection, job_id, beat))
        self._release_swept()
        if not beat.leases:
            return answer
        held = self._held_leases.all(job_id)
        return answer.model_copy(update={"leases": held.leases, "revoked": held.revoked})

    def complete(self, job_id: int, end: CompleteJob) -> None:
        """End the job. Only the first end counts."""
        ended = self._database.write(lambda connection: end_jobs(connection, [job_id], end.state, end.reason, self._database.now()))
        self._release(ended)

    def set_desired_state(self, job_id: int, desired_state: DesiredState) -> None:
        """Set the desired state of a triggerer, which receives it with its next heartbeat.

        Raises:
            ApiRefused: The triggerer does not exist or has ended.
        """
        self._database.write(lambda connection: _set_desired_state(connection, job_id, desired_state))

    def check(self, job_id: int) -> None:
        """Raise `Fenced` if the job has ended."""
        with self._database.reading() as connection:
            require_running(connection, job_id)

    def project(self, job_id: int) -> str | None:
        """Return the project of a running job, or None if it reads for every project.

        Raises:
            Fenced: The job has ended.
        """
        with self._database.reading() as connection:
            project: str = require_running(connection, job_id).project
        return None if project == EVERY_PROJECT else project

    def sweep(self, connection: Connection) -> None:
        """End every job that has been silent for too long, within a unit of work of the writer."""
        running = connection.execute(select(jobs.c.id, jobs.c.heartbeat).where(jobs.c.state == "running"))
        silent = self._liveness_tracker.expired((row[0], row[1]) for row in running)
        if silent:
            reason = f"silent for {self._liveness.threshold // SECOND} s"
            self._unreleased.update(end_jobs(connection, silent, "lost", reason, self._database.now()))

    def load(self, job_id: int, request: LoadTriggers) -> TriggersLoaded:
        """Balance the leases of a triggerer by its capacity and queues. Return the leases that it holds.

        A triggerer that names a known revision receives the differences from it. It is answered within
        `MAX_BALANCING_SECONDS` seconds even if the answer is not complete.
        """
        project = self._database.write(lambda connection: self._take(connection, job_id, request))
        self._release_swept()
        if request.since is None:
            if project is not None:
                self._balancer.step(job_id, project, None)
            return self._held_leases.all(job_id)
        if project is not None and not self._balancer.step(job_id, project, MAX_BALANCING_SECONDS):
            return TriggersLoaded(leases=[], revoked={}, whole=False, revision=request.since, more=True)
        return self._held_leases.changes(job_id, request.since)

    def _take(self, connection: Connection, job_id: int, request: LoadTriggers) -> str | None:
        """Record that the job lives, and its capacity and queues.

        Return its project, or None if nothing can be done in it.
        """
        job = require_running(connection, job_id)
        touch(connection, job_id, self._database.now())
        self.sweep(connection)
        written = msgspec.json.encode(sorted(set(request.queues))).decode()
        if (job.capacity, job.queues) != (request.capacity, written):
            connection.execute(update(jobs).where(jobs.c.id == job.id).values(capacity=request.capacity, queues=written))
            leases.changed(connection)
        return None if self._balancer.is_settled(connection, job.project) else job.project

    def _beat(self, connection: Connection, job_id: int, beat: Heartbeat) -> HeartbeatAnswer:
        job = require_running(connection, job_id)
        batch = None if beat.batch is None else beat.batch.model_dump_json()
        touch(connection, job_id, self._database.now(), blocked=_stored_block(beat.blocked), batch=batch)
        save_reports(connection, job_id, beat.streams, self._database.now())
        save_samples(connection, job_id, beat.watches, self._database.now())
        self.sweep(connection)
        backlogs = leases.backlogs(connection, job_id)
        return HeartbeatAnswer.model_construct(desired_state=job.desired_state, leases=[], revoked={}, backlogs=backlogs)

    def _release_swept(self) -> None:
        """Free the remaining leases of the jobs that the last sweep ended."""
        ended = list(self._unreleased)
        self._release(ended)
        self._unreleased.difference_update(ended)

    def _release(self, ended: list[int]) -> None:
        """Free the remaining leases of ended jobs, slice by slice."""
        more = bool(ended)
        while more:
            more = self._database.write(partial(leases.release_ended, job_ids=ended))


@dataclass(frozen=True, slots=True)
class RunningJob:
    """The properties of a job that its calls need."""

    id: int
    project: str
    desired_state: DesiredState
    capacity: int | None
    queues: str


def require_running(connection: Connection, job_id: int) -> RunningJob:
    """Return the job.

    Raises:
        Fenced: The job has ended.
    """
    columns = (jobs.c.project, jobs.c.desired_state, jobs.c.state, jobs.c.capacity, jobs.c.queues)
    row = connection.execute(select(*columns).where(jobs.c.id == job_id)).one_or_none()
    if row is None or row.state != "running":
        what = "is unknown" if row is None else f"has ended ({row.state})"
        raise Fenced(f"Job {job_id} {what}.", hint="Register a new job.", status=409, problem="fenced")
    return RunningJob(job_id, row.project, row.desired_state, row.capacity, row.queues)


def touch(connection: Connection, job_id: int, now: int, **more: str | None) -> None:
    """Record the time of a request of the job, and the other columns that it reports."""
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(heartbeat=now, **more))


def end_jobs(connection: Connection, job_ids: list[int], state: str, reason: str | None, now: int) -> list[int]:
    """End the jobs that still run, and release their leases.

    Return the jobs that held more than one transaction releases: `leases.release`, or else the next load,
    continues with them.
    """
    running = (jobs.c.id.in_(job_ids), jobs.c.state == "running")
    ended = connection.execute(update(jobs).where(*running).values(state=state, reason=reason, ended=now, blocked=None, batch=None))
    if not ended.rowcount:
        return []
    leases.changed(connection)
    _interrupt_runs(connection, job_ids, reason, now)
    return job_ids if leases.release_ended(connection, job_ids) else []


def _interrupt_runs(connection: Connection, job_ids: list[int], reason: str | None, now: int) -> None:
    """End the attempts that drivers of these jobs reported as running. A later driver repeats them under other ids."""
    held = select(scope_leases.c.scope).where(scope_leases.c.job_id.in_(job_ids))
    error = "The job of the driver ended during this attempt" + (f": {reason}." if reason else ".")
    running = (runs.c.scope.in_(held), text("runs.state = 'running'"))  # as in the condition of the index
    connection.execute(update(runs).where(*running).values(state="interrupted", finished=now, error=error))


def _stored_block(blocked: Blocked | None) -> str | None:
    """Return the part of a block report that is stored. An excessively long stack is truncated."""
    if blocked is None:
        return None
    return blocked.model_copy(update={"stack": [line[:STACK_WIDTH] for line in blocked.stack[:STACK_LINES]]}).model_dump_json()


def _register(connection: Connection, job: RegisterJob, now: int) -> tuple[Registered, list[int]]:
    """Return the job, and the job that it replaces if that one has leases left to release."""
    known = connection.execute(select(jobs.c.id, jobs.c.kind).where(jobs.c.registration_id == job.registration_id)).one_or_none()
    if known is not None:
        return Registered(known.id, known.kind), []
    ended = [] if job.replaces is None else _replace(connection, job, job.replaces, now)
    inserted = connection.execute(
        insert(jobs)
        .returning(jobs.c.id)
        .values(
            **job.model_dump(exclude={"replaces"}),
            state="running",
            desired_state="run",
            reason=None,
            registered=now,
            heartbeat=now,
            ended=None,
        )
    )
    return Registered(int(inserted.scalar_one()), job.kind), ended


def _set_desired_state(connection: Connection, job_id: int, desired_state: DesiredState) -> None:
    triggerer = select(jobs.c.state).where(jobs.c.id == job_id, jobs.c.kind == "triggerer")
    state = connection.execute(triggerer).scalar_one_or_none()
    if state is None:
        raise ApiRefused(f"No triggerer has the id {job_id}.", hint="See: headrace triggerers list", status=404, problem="not-found")
    if state != "running":
        raise ApiRefused(f"Job {job_id} has ended ({state}).", hint="See: headrace triggerers list", status=409, problem="ended")
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(desired_state=desired_state))
    leases.changed(connection)


def _replace(connection: Connection, job: RegisterJob, replaced: str, now: int) -> list[int]:
    """End the previous incarnation if it has the same work and the same host. Return the result of `end_jobs`."""
    previous = select(jobs.c.id).where(
        jobs.c.registration_id == replaced, jobs.c.kind == job.kind, jobs.c.project == job.project, jobs.c.hostname == job.hostname
    )
    return end_jobs(connection, list(connection.execute(previous).scalars()), "lost", "replaced by its next incarnation", now)
