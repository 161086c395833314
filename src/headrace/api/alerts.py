"""Derive alerts from a status. Pure: a status and the state of this machine's processes in, alerts out.

An `error` does not recover by itself, or stops events. A `warning` is informative.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import NamedTuple

from headrace.store.db.outages import Outage
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.alerts import Alert
from headrace.wire.status.status import JobStatus, Status, StreamStatus, TriggerStatus

MAX_ALERTS = 50
MAX_OF_A_KIND = 5

LATE_SHARE = 0.25
"""The share of the job timeout after which a silent process has an alert."""
REMOVED = ", which its project does not declare any more: declare it again, and it gets them."
STANDING_SECONDS = 10.0
STARTING_SECONDS = 60.0
"""Seconds in which a pipeline may start Spark."""
LONG_BATCH_SECONDS = 60.0
ENDLESS_BATCH_SECONDS = 600.0
OWED_SECONDS = 60.0
RESTART_WINDOW_SECONDS = 600.0
STABLE_SECONDS = 120.0
"""Uptime in seconds after which a process is no longer in a restart loop."""
RECENT_FAILURE_SECONDS = 900.0

_RUN_ENDS = ("succeeded", "skipped", "failed")

Alerts = Iterator[Alert]


class Moment(NamedTuple):
    """A status, and whether heartbeats can be stored at its time. If not, their age has no meaning. `late`: seconds without one."""

    status: Status
    stored: bool
    late: float

    def since(self, then: datetime | None) -> float:
        """Return the seconds since `then`, or 0 if it is unknown."""
        return 0.0 if then is None else (self.status.now - then).total_seconds()

    def none_runs(self, kind: str) -> bool:
        """Return whether no process of a kind runs."""
        return not self.running(kind) and not self.status.counts.jobs.get(kind)

    def running(self, kind: str, project: str | None = None) -> list[JobStatus]:
        """Return the running jobs of a kind, and of a project if it is given."""
        jobs = (job for job in self.status.jobs if job.kind == kind and job.state == "running")
        return [job for job in jobs if project is None or job.project == project]


def alerts_of(status: Status, outage: Outage | None = None, local: Sequence[Alert] = (), job_timeout: float = 30.0) -> list[Alert]:
    """Return the alerts of a status, the errors first; `local` are those about processes of this machine.

    A job without a heartbeat for `job_timeout` seconds is dead.
    """
    moment = Moment(status, outage is None, LATE_SHARE * job_timeout)
    ruled = chain.from_iterable(rule(moment) for rule in RULES)
    known = {alert.about for alert in local}
    alerts = [*_storage(outage), *local, *(alert for alert in ruled if alert.about not in known)]
    alerts.sort(key=lambda alert: alert.severity != "error")
    if len(alerts) > MAX_ALERTS:
        rest = len(alerts) - MAX_ALERTS
        alerts[MAX_ALERTS:] = [_warning("more", f"And {count(rest, 'thing')} more.", "processes")]
    return alerts


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def waiting(number: int, noun: str) -> str:
    """Return the text for a number of waiting items."""
    return f"{count(number, noun)} {'waits' if number == 1 else 'wait'}"


def first_line(text: str | None) -> str:
    """Return the first line of an error."""
    return text.strip().partition("\n")[0] if text and text.strip() else "no reason given"


def _error(about: str, summary: str, section: str, since: datetime | None = None) -> Alert:
    return Alert(severity="error", about=about, summary=summary, section=section, since=since)


def _warning(about: str, summary: str, section: str, since: datetime | None = None) -> Alert:
    return Alert(severity="warning", about=about, summary=summary, section=section, since=since)


def _storage(outage: Outage | None) -> Alerts:
    if outage is not None:
        hint = f" {outage.hint}" if outage.hint else ""
        yield _error("storage", f"Nothing can be stored: {outage.reason}{hint}", "processes", outage.since)


def _jobs(moment: Moment) -> Alerts:
    status = moment.status
    if status.triggers and moment.stored and moment.none_runs("triggerer"):
        yield _error("process:triggerer", "No triggerer is running, so nothing is read: start one with headrace triggerer.", "processes")
    if status.pipelines and moment.stored and moment.none_runs("pipeline") and not any(_behind(status.scopes)):
        words = "No pipeline process is running, so events wait in the log: start one with headrace pipeline."
        yield _warning("process:pipeline", words, "processes")
    for job in status.jobs:
        if moment.stored and _is_silent(moment, job):
            words = f"The {job.kind} on {job.hostname} (job {job.id}) stopped answering."
            yield _error(f"job:{job.id}", words, "processes", job.last_heartbeat)
        if job.blocked is not None:
            what = "Something" if job.blocked.trigger is None else job.blocked.trigger
            if job.blocked.trigger_id is not None:
                what = f"Trigger {job.blocked.trigger}"
            words = f"{what} blocks its process on {job.hostname} (job {job.id}): it does nothing else meanwhile."
            yield _warning(f"job:{job.id}", words, "blocked")


def _is_silent(moment: Moment, job: JobStatus) -> bool:
    return job.state == "silent" or (job.state == "running" and moment.since(job.last_heartbeat) > moment.late)


def _restarts(moment: Moment) -> Alerts:
    """Yield alerts for processes that ended unexpectedly, once or repeatedly."""
    ended: dict[tuple[str, str, str], list[JobStatus]] = defaultdict(list)
    for job in moment.status.jobs:
        if job.state in ("failed", "lost") and moment.since(job.ended) < RESTART_WINDOW_SECONDS:
            ended[job.project, job.kind, job.hostname].append(job)
    for (project, kind, host), jobs in ended.items():
        last = max(jobs, key=lambda job: job.id)
        lives = [moment.since(job.started) for job in moment.running(kind, project) if job.hostname == host]
        looping = len(jobs) > 1 and max(lives, default=0.0) < STABLE_SECONDS
        often = f"ended unexpectedly {count(len(jobs), 'time')} in {RESTART_WINDOW_SECONDS / 60:.0f} minutes"
        words = f"The {kind} of {project} on {host} {often}, last with: {first_line(last.reason)}"
        yield (_error if looping else _warning)(f"process:{kind}", words, "processes", last.ended)


def _triggers(moment: Moment) -> Alerts:
    triggers = moment.status.triggers
    total = moment.status.counts.triggers
    parked = (trigger for trigger in triggers if trigger.state == "parked")
    yield from _limit_alerts(parked, "parked", total.get("parked", 0), _parked)
    failed = (trigger for trigger in triggers if trigger.state == "failed")
    yield from _limit_alerts(failed, "failed", total.get("failed", 0), _failed)
    again = (t for t in triggers if t.state == "running" and t.failed is not None and moment.since(t.failed) < RECENT_FAILURE_SECONDS)
    yield from _limit_alerts(again, "running again after a failure", 0, _runs_again)
    yield from _unserved(moment)


def _parked(trigger: TriggerStatus) -> Alert:
    resume = f"headrace triggers resume {trigger.name} starts it again"
    words = f"Trigger {trigger.name} failed too often and is parked; {resume}. It failed with {trigger.failure or 'no reason given'}"
    return _error(f"trigger:{trigger.name}", words, "triggers")


def _failed(trigger: TriggerStatus) -> Alert:
    return _error(f"trigger:{trigger.name}", f"Trigger {trigger.name} failed: {trigger.failure or 'no reason given'}", "triggers")


def _runs_again(trigger: TriggerStatus) -> Alert:
    words = f"Trigger {trigger.name} failed lately and runs again: {trigger.failure}"
    return _warning(f"trigger:{trigger.name}", words, "triggers", trigger.failed)


def _unserved(moment: Moment) -> Alerts:
    if moment.none_runs("triggerer"):
        return
    by_reason: dict[str, list[str]] = defaultdict(list)
    for trigger in moment.status.triggers:
        if trigger.unserved is not None:
            by_reason[trigger.unserved].append(trigger.name)
    for reason, names in islice(by_reason.items(), MAX_OF_A_KIND):
        who = f"trigger {names[0]}" if len(names) == 1 else summarize_names(names)
        yield _error(f"unserved:{reason}", f"No triggerer runs {who}: {reason}.", "triggers")


def summarize_names(names: Sequence[str]) -> str:
    """Return at most three names, or the first one and the number of others."""
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"


def _limit_alerts(triggers: Iterable[TriggerStatus], state: str, total: int, alert: Callable[[TriggerStatus], Alert]) -> Alerts:
    """Yield an alert for each of the first triggers, and one for all others together. The status may list fewer than `total`."""
    listed = list(triggers)
    yield from map(alert, listed[:MAX_OF_A_KIND])
    rest = max(total, len(listed)) - MAX_OF_A_KIND
    if listed and rest > 0:
        words = f"{count(rest, 'more trigger')} {'is' if rest == 1 else 'are'} {state}."
        yield alert(listed[-1]).model_copy(update={"about": f"triggers:{state}", "summary": words})


def _streams(moment: Moment) -> Alerts:
    for stream in moment.status.streams:
        about = f"stream:{stream.stream}"
        if stream.state == "failed":
            yield _error(about, f"Stream {stream.stream} is failed.", "streams")
        if stuck := [lane for lane in stream.lanes if lane.error]:
            which = f"lane {stuck[0].lane}" if len(stuck) == 1 else count(len(stuck), "lane")
            yield _error(about, f"Stream {stream.stream} cannot advance {which}: {first_line(stuck[0].error)}", "streams")
        if stream.copies is not None and stream.copies.error is not None:
            to = stream.copies.target
            yield _warning(about, f"Dead letters of {stream.stream} are not copied to {to}: {first_line(stream.copies.error)}", "streams")
        if (stream.oldest_unresolved or 0.0) > OWED_SECONDS:
            yield _error(about, _owed(stream), "streams")
        if stream.retrying:
            yield _warning(about, _retrying(stream), "streams")


def _owed(stream: StreamStatus) -> str:
    seconds = stream.oldest_unresolved or 0.0
    return f"Stream {stream.stream} has waited {_lasting(seconds)} for {stream.held_by or 'an answer'}."


def _retrying(stream: StreamStatus) -> str:
    retry = max(stream.retrying, key=lambda one: one.attempts)
    failed = f"trigger {retry.trigger} failed {count(retry.attempts, 'time')} in lane {retry.lane}: {first_line(retry.error)}"
    return f"{waiting(stream.lanes_retrying, 'lane')} for a retry on stream {stream.stream}; {failed}"


def _backlogs(moment: Moment) -> Alerts:
    backlogs = moment.status.backlogs
    for backlog in backlogs[:MAX_OF_A_KIND]:
        words = f"{waiting(backlog.depth, 'raw event')} in the backlog of {backlog.trigger}{REMOVED if backlog.removed else '.'}"
        if backlog.removed:
            words += f" headrace triggers backlog drop {backlog.trigger} drops them."
        yield _warning(f"backlog:{backlog.trigger}", words, "backlog", backlog.oldest)
    if len(backlogs) > MAX_OF_A_KIND:
        rest = backlogs[MAX_OF_A_KIND:]
        words = f"{waiting(sum(backlog.depth for backlog in rest), 'raw event')} in the backlogs of {count(len(rest), 'more trigger')}."
        yield _warning("backlogs", words, "backlog")


def _runs(moment: Moment) -> Alerts:
    last_runs = {run.pipeline: run for run in reversed(moment.status.runs) if run.state in ("succeeded", "failed")}
    for run in last_runs.values():
        if run.state == "failed":
            yield _error(f"pipeline:{run.pipeline}", f"The last run of {run.pipeline} failed: {first_line(run.error)}", "runs")
    last_tasks = {run.task: run for run in reversed(moment.status.task_runs) if run.state in _RUN_ENDS}
    for task in last_tasks.values():
        if task.state == "failed":
            yield _warning(f"task:{task.task}", f"The last run of the task {task.task} failed: {first_line(task.error)}", "task-runs")


def _behind(scopes: Iterable[ScopeStatus]) -> Iterator[ScopeStatus]:
    return (scope for scope in scopes if scope.kind == "pipeline" and scope.lag > 0)


def _standing(moment: Moment) -> Alerts:
    """Yield alerts for scopes that have events but no progress, and for batches without an end."""
    for scope in _behind(moment.status.scopes):
        about = f"scope:{scope.scope}"
        if scope.running_batch is not None:
            yield from _long_batch(moment, scope)
        elif scope.running_since is None and moment.stored:
            words = f"The scope {scope.scope} stands: no pipeline process runs it, and {waiting(scope.lag, 'event')} in the log. "
            yield _error(about, f"{words}Start one with headrace pipeline.", "ordering", scope.updated)
        elif _stands(moment, scope):
            words = f"The scope {scope.scope} stands: its process runs no batch, although {waiting(scope.lag, 'event')} in the log. "
            yield _error(about, f"{words}headrace logs process pipeline says why.", "ordering", scope.updated)


def _stands(moment: Moment, scope: ScopeStatus) -> bool:
    idle = min(moment.since(scope.updated), moment.since(scope.behind_since)) > STANDING_SECONDS
    return idle and moment.since(scope.running_since) > STARTING_SECONDS


def _long_batch(moment: Moment, scope: ScopeStatus) -> Alerts:
    batch = scope.running_batch
    if batch is None:
        return
    lasts = moment.since(batch.since)
    if lasts > ENDLESS_BATCH_SECONDS or (lasts > LONG_BATCH_SECONDS and lasts > 10 * scope.seconds):
        words = f"Batch {batch.batch:,} of the scope {scope.scope}, with {count(batch.events, 'event')}, has not ended yet."
        rule = _error if lasts > ENDLESS_BATCH_SECONDS else _warning
        yield rule(f"scope:{scope.scope}", words, "runs", batch.since)


def _ordering(moment: Moment) -> Alerts:
    totals = moment.status.totals
    if totals.lost:
        words = f"{count(totals.lost, 'follower')} went on without the leader: it did not come within the lookback."
        yield _warning("ordering:lost", words, "ordering")
    if totals.cycles:
        words = f"{count(totals.cycles, 'cycle')}: events that follow one another, so that no order is right."
        yield _warning("ordering:cycles", words, "ordering")
    for scope in moment.status.scopes:
        yield from _waits(scope, moment.status.now)


def _waits(scope: ScopeStatus, now: datetime) -> Alerts:
    at = now if scope.clock_until is None else min(now, scope.clock_until)  # the scope's clock
    for wait in scope.waits:
        if wait.leader == "missing" and wait.lost_at is not None:
            if 2 * (at - wait.since) > wait.lost_at - wait.since:
                words = f"{wait.id} waits for {wait.follows} in {scope.scope}, and counts as lost if that does not come soon."
                yield _warning(f"scope:{scope.scope}", words, "ordering", wait.since)
            break
    if any(wait.leader == "dead" for wait in scope.waits):
        name = scope.scope.removeprefix("webhook:")
        again = f"headrace webhooks redrive {name} tries it again."
        words = f"The webhook {name} holds back what follows an event that it gave up on: {again}"
        yield _warning(f"scope:{scope.scope}", words, "ordering")


def _dead_letters(moment: Moment) -> Alerts:
    if total := moment.status.dead_letters:
        what = f"{count(total, 'dead letter')}: raw events that were given up on."
        yield _warning("dead-letters", f"{what} Redrive or discard them with headrace dead-letters.", "dead-letters")


def _lasting(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min" if minutes else f"{seconds:.0f} s"


RULES: tuple[Callable[[Moment], Alerts], ...] = (
    _jobs,
    _restarts,
    _standing,
    _streams,
    _triggers,
    _runs,
    _backlogs,
    _ordering,
    _dead_letters,
)
