"""The location of a log: in the API server's own log folder, or with the process that writes it."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from headrace.api.http.problems import Refusal
from headrace.logs.follower import Successor, next_job_log
from headrace.logs.names import LogName, run_log_name, trigger_log
from headrace.logs.reader import jobs_with_logs
from headrace.logs.segments import segments
from headrace.store import Store
from headrace.store.queries.logs import (
    LoggedJob,
    LoggedRun,
    LoggedTrigger,
    find_runs,
    find_triggers,
    has_ended,
    job_called,
    trigger_names,
    writers_of,
)


def never() -> bool:
    """Return False: the end of an endless log."""
    return False


class LocalLog(NamedTuple):
    """A log in the API server's log folder, with later lines if it is followed. `ended` returns whether the log is complete."""

    root: Path
    name: LogName
    successor: Successor | None = None
    ended: Callable[[], bool] = never


class RemoteLog(NamedTuple):
    """A log that a running process serves. `ended` returns whether the log is complete."""

    job: LoggedJob
    path: str
    ended: Callable[[], bool] = never


class LogLocator:
    """Find logs for one API server. `root` is its log folder, or None; `hostname` is that of its machine."""

    def __init__(self, store: Store, root: Path | None, hostname: str) -> None:
        self._store = store
        self._root = root
        self._hostname = hostname

    def trigger(self, called: str, job_id: int | None) -> LocalLog | RemoteLog:
        """Return the location of a trigger's log: that of the given job, or of the job that holds it, else the newest local one."""
        with self._store.reading() as connection:
            trigger = _one(find_triggers(connection, called), called, trigger_names(connection))
            target_job_id = trigger.job_id if job_id is None else job_id
            job = None if target_job_id is None else job_called(connection, target_job_id)
        if job_id is not None and job is None:
            raise Refusal(404, "not-found", f"No job has the number {job_id}.", hint="`headrace status --json` names the jobs.")
        known = jobs_with_logs(self._root, trigger.id) if self._root else []
        if job is not None and self._root and job.id in known:
            return LocalLog(self._root, trigger_log(trigger.id, job.id), None if job_id else next_job_log(self._root))
        if job is not None and job.hostname != self._hostname:
            return _there(job, f"/logs/triggers/{trigger.id}/{job.id}")
        newest = trigger_log(trigger.id, known[-1] if known and job_id is None else (target_job_id or 0))
        return self._here(newest, follows=job_id is None)

    def run(self, called: str) -> LocalLog | RemoteLog:
        """Return the location of a run's log. A unique prefix of its id is enough."""
        with self._store.reading() as connection:
            run = _one_run(find_runs(connection, called), called)
            jobs = writers_of(connection, run)
            last = None if run.job_id is None else job_called(connection, run.job_id)
        name = run_log_name(run.run_id)
        if self._root and segments(self._root, name):
            return LocalLog(self._root, name, ended=self._end_of(run.run_id))
        elsewhere = [job for job in jobs if job.hostname != self._hostname]
        if elsewhere:
            return _there(elsewhere[0], f"/logs/runs/{quote(run.run_id, safe='')}")._replace(ended=self._end_of(run.run_id))
        if last is not None and last.hostname != self._hostname:
            raise unavailable_log(last)
        return self._here(name, follows=False)._replace(ended=self._end_of(run.run_id))

    def _end_of(self, run_id: str) -> Callable[[], bool]:
        def ended() -> bool:
            with self._store.reading() as connection:
                return has_ended(connection, run_id)

        return ended

    def _here(self, name: LogName, *, follows: bool) -> LocalLog:
        if self._root is None:
            raise Refusal(404, "not-found", "This api keeps no logs.", hint="Set log_dir to the folder that the logs are in.")
        return LocalLog(self._root, name, next_job_log(self._root) if follows else None)


def unavailable_log(job: LoggedJob) -> Refusal:
    """Return the reason why the log of a job is unavailable."""
    state = "does not answer" if job.state == "running" else f"has ended ({job.state})"
    return Refusal(
        404 if job.state != "running" else 503,
        "not-found" if job.state != "running" else "unavailable",
        f"This host has no log of it. The log is on the host {job.hostname}, whose {job.kind} (job {job.id}) {state}.",
        hint="Set log_dir, for the api and for every process, to a folder that all hosts share: then a log outlives its process.",
    )


def _there(job: LoggedJob, path: str) -> RemoteLog:
    if job.state != "running" or job.log_url is None:
        raise unavailable_log(job)
    return RemoteLog(job, path)


def _one(triggers: list[LoggedTrigger], called: str, names: list[str]) -> LoggedTrigger:
    if not triggers:
        alike = get_close_matches(called, names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(alike)}?" if alike else "`headrace triggers` lists them."
        raise Refusal(404, "not-found", f"There is no trigger {called}.", hint=hint)
    if len(triggers) > 1:
        which = ", ".join(f"{one.id} ({one.name} of {one.project})" for one in triggers[:5])
        raise Refusal(409, "ambiguous", f"Several triggers are called {called}.", hint=f"Give an id: {which}.")
    return triggers[0]


def _one_run(runs: list[LoggedRun], called: str) -> LoggedRun:
    if not runs:
        raise Refusal(
            404,
            "not-found",
            f"There is no run {called}.",
            hint="With ids: `headrace runs --json` for those of pipelines, `headrace task-runs list` for those of tasks.",
        )
    if len(runs) > 1:
        which = ", ".join(one.run_id for one in runs)
        raise Refusal(409, "ambiguous", f"Several runs begin with {called}.", hint=f"Give more of the id: {which}.")
    return runs[0]
