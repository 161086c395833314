"""Task runs: start, claim, defer, finish and cancel them. Each step of `core.task_run` is one transaction.

Invariants, under the writer's transaction:
- A run starts once for each id, and ends once. A repeated request changes nothing and returns the current run.
- Only the worker that holds a run, at the epoch of its claim, may defer or finish it. Any other worker is fenced.
- The next sweep releases a run whose worker's job has ended, and expires a run whose deadline has passed.
  `commit_signal` wakes the timer when the next deadline changes.
- Deadlines follow the age of the database (`store.db.ages`). Setting a wall clock neither ends nor prolongs a wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, select

from headrace.core import task_run
from headrace.core.task_run import TaskRunState
from headrace.errors import ApiRefused, Fenced
from headrace.store.control.jobs import Jobs, require_running, touch
from headrace.store.db.ages import AgeClock
from headrace.store.db.commit_signal import CommitSignal
from headrace.store.db.database import Database
from headrace.store.tables.task_runs import task_runs
from headrace.store.task_runs.earlier_events import find_earlier_event
from headrace.store.task_runs.event_waits import await_event
from headrace.store.task_runs.rows import TaskRunRow, await_trigger, create, in_order, read, save, wait_of
from headrace.store.task_runs.sweep import delete_ended_waits, first_claims, next_deadline, sweep
from headrace.wire.task_runs import ClaimedRun, ClaimedRuns, ClaimRuns, DeferRun, FinishRun, StartRun, TaskRunResult, TaskRunStatus

T = TypeVar("T")


class TaskRuns:
    """The task runs of one database.

    `commit_signal` follows each commit in which a run became free, began or ended a wait, or was cancelled.
    """

    def __init__(self, database: Database, jobs: Jobs, ages: AgeClock) -> None:
        self._database = database
        self._jobs = jobs
        self._ages = ages
        self.commit_signal = CommitSignal(database)

    def start(self, project: str, start: StartRun) -> TaskRunStatus:
        """Start a run. A run that already exists with this id is unchanged."""
        return self._changing(lambda connection: self._start(connection, project, start))

    def start_from(self, job_id: int, start: StartRun) -> TaskRunStatus:
        """Start a run in the project of a job."""
        return self._changing(lambda connection: self._start(connection, require_running(connection, job_id).project, start))

    def claim(self, job_id: int, request: ClaimRuns) -> ClaimedRuns:
        """Assign free runs of its project to the worker, the oldest first.

        Return also the runs that it no longer holds.
        """
        return self._database.write(lambda connection: self._claim(connection, job_id, request))

    def defer(self, job_id: int, run_id: str, request: DeferRun) -> TaskRunStatus:
        """Defer a run: it releases its slot until its trigger fires."""
        looked = None if request.waiting.event is None else find_earlier_event(self._database, run_id, request.waiting.event)

        def work(connection: Connection) -> TaskRunStatus:
            held = self._mine(connection, job_id, run_id, request.epoch)
            if held.run.state != "running":
                return TaskRunStatus(run_id=run_id, state=held.run.state)
            after = task_run.defer(held.run, wait_of(request.waiting, self._ages.now()))
            if request.waiting.event is not None:
                return self._save(connection, held, await_event(connection, held, after, request.waiting.event, looked))
            if request.waiting.trigger is None:  # the wire model guarantees that one of them is present
                raise AssertionError(request)
            trigger_id = await_trigger(self._database, connection, held.project, run_id, after.step, request.waiting.trigger)
            return self._save(connection, held, after, trigger_id)

        return self._changing(work)

    def finish(self, job_id: int, run_id: str, request: FinishRun) -> TaskRunStatus:
        """End a run with the outcome that its worker reports."""

        def work(connection: Connection) -> TaskRunStatus:
            held = self._mine(connection, job_id, run_id, request.epoch)
            if held.run.state != "running":
                return TaskRunStatus(run_id=run_id, state=held.run.state)
            text = request.error if request.state == "failed" else request.result
            return self._save(connection, held, task_run.finish(held.run, request.state, text))

        return self._changing(work)

    def cancel(self, run_id: str) -> TaskRunStatus:
        """Cancel a run. A run that has ended is unchanged."""

        def work(connection: Connection) -> TaskRunStatus:
            held = _known(read(connection, [run_id]).get(run_id), run_id)
            if held.run.ended:
                return TaskRunStatus(run_id=run_id, state=held.run.state)
            return self._save(connection, held, task_run.cancel(held.run))

        return self._changing(work)

    def result(self, run_id: str, *, project: str | None = None) -> TaskRunResult:
        """Return the state and the result of a run; with `project`, only if it belongs to that project."""
        query = select(task_runs.c.state, task_runs.c.result, task_runs.c.error).where(task_runs.c.run_id == run_id)
        if project is not None:
            query = query.where(task_runs.c.project == project)
        with self._database.reading() as connection:
            row = _known(connection.execute(query).one_or_none(), run_id)
        return TaskRunResult(run_id=run_id, state=row.state, result=row.result, error=row.error)

    def project_of(self, job_id: int) -> str:
        """Return the project of a running job."""
        with self._database.reading() as connection:
            return require_running(connection, job_id).project

    def sweep(self) -> int | None:
        """Release runs without a worker, a trigger or time left, as many as one transaction takes.

        Return the microseconds until the next sweep, or None if unknown.
        """

        def work(connection: Connection) -> int | None:
            age = self._ages.mark(connection, self._database.now())
            self._sweep(connection)
            if delete_ended_waits(connection):
                return 0
            first = next_deadline(connection)
            return None if first is None else max(0, first - age)

        return self._database.write(work)

    def _start(self, connection: Connection, project: str, start: StartRun) -> TaskRunStatus:
        known = read(connection, [start.run_id]).get(start.run_id)
        if known is None:
            created = create(self._database, connection, project, start, self._ages.now())
            if start.waiting is not None and start.waiting.event is not None:
                await_event(connection, created, created.run, start.waiting.event)
            return TaskRunStatus(run_id=created.run_id, state=created.run.state, created=True)
        if (known.project, known.task) != (project, start.task):
            message = f"The run {start.run_id} is one of task '{known.task}' of project '{known.project}'."
            raise ApiRefused(message, hint="Start this one under another id.", status=409, problem="conflict")
        return TaskRunStatus(run_id=known.run_id, state=known.run.state)

    def _claim(self, connection: Connection, job_id: int, request: ClaimRuns) -> ClaimedRuns:
        job = require_running(connection, job_id)
        touch(connection, job_id, self._database.now())
        self._jobs.sweep(connection)
        self._sweep(connection)
        taken = [] if job.desired_state != "run" else self._take(connection, job_id, job.project, request)
        return ClaimedRuns(runs=taken, revoked=_revoked(connection, job_id, request.running), desired_state=job.desired_state)

    def _take(self, connection: Connection, job_id: int, project: str, request: ClaimRuns) -> list[ClaimedRun]:
        """Return runs for the worker: first those of a response that it did not receive, then scheduled ones, the oldest first."""
        lost = first_claims(connection, _unnamed(connection, job_id, project, request))
        known = read(connection, lost)
        taken = [_claimed(known[run_id], known[run_id].run) for run_id in lost]
        room = request.capacity - len(taken)
        oldest: list[tuple[int, str]] = []
        # One index lookup for each task: a list of tasks would be sorted as a whole.
        for task in dict.fromkeys(request.tasks) if room else ():
            free = (task_runs.c.state == "scheduled", task_runs.c.project == project, task_runs.c.task == task)
            order = (task_runs.c.changed, task_runs.c.run_id)
            chosen = select(*order).where(*free).order_by(*order).limit(room).with_for_update(skip_locked=True)
            oldest += [(row.changed, row.run_id) for row in connection.execute(chosen)]
        chosen_ids = first_claims(connection, [run_id for _, run_id in sorted(oldest)[:room]])
        for held in in_order(read(connection, chosen_ids), chosen_ids):
            run = task_run.claim(held.run, job_id)
            save(connection, held, run, self._database.now())
            taken.append(_claimed(held, run))
        return taken

    def _sweep(self, connection: Connection) -> None:
        if sweep(self._database, connection, self._ages.now()):
            self.commit_signal.signal(connection)

    def _mine(self, connection: Connection, job_id: int, run_id: str, epoch: int) -> TaskRunRow:
        require_running(connection, job_id)
        held = _known(read(connection, [run_id]).get(run_id), run_id)
        if (held.run.holder, held.run.epoch) != (job_id, epoch):
            raise Fenced(f"Job {job_id} does not hold run {run_id} at epoch {epoch}.", status=409, problem="fenced")
        return held

    def _save(self, connection: Connection, held: TaskRunRow, after: TaskRunState, trigger_id: int | None = None) -> TaskRunStatus:
        save(connection, held, after, self._database.now(), trigger_id)
        return TaskRunStatus(run_id=held.run_id, state=after.state)

    def _changing(self, work: Callable[[Connection], TaskRunStatus]) -> TaskRunStatus:
        def marked(connection: Connection) -> TaskRunStatus:
            self.commit_signal.signal(connection)
            return work(connection)

        return self._database.write(marked)


def _known(run: T | None, run_id: str) -> T:
    if run is None:
        raise ApiRefused(f"No run has the id {run_id}.", hint="See: headrace task-runs list", status=404, problem="not-found")
    return run


def _revoked(connection: Connection, job_id: int, running: list[str]) -> list[str]:
    mine = select(task_runs.c.run_id).where(task_runs.c.run_id.in_(running), task_runs.c.job_id == job_id, task_runs.c.state == "running")
    held = set(connection.execute(mine).scalars()) if running else set()
    return [run_id for run_id in running if run_id not in held]


def _unnamed(connection: Connection, job_id: int, project: str, request: ClaimRuns) -> list[str]:
    """Return the runs that the worker holds but does not report as running. Their response was lost."""
    mine = (task_runs.c.state == "running", task_runs.c.project == project, task_runs.c.job_id == job_id)
    unnamed = task_runs.c.run_id.not_in(request.running)
    lost = select(task_runs.c.run_id).where(*mine, unnamed).limit(request.capacity)
    return list(connection.execute(lost).scalars())


def _claimed(held: TaskRunRow, run: TaskRunState) -> ClaimedRun:
    return ClaimedRun(
        run_id=held.run_id, task=held.task, method=run.wait.method, kwargs=run.wait.kwargs, attempt=run.attempt, epoch=run.epoch
    )
