"""Runs: the last report of each call of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select

from headrace.core.interval_index import interval_node
from headrace.core.values.moments import micros
from headrace.store.control.jobs import require_running
from headrace.store.db.database import Database
from headrace.store.dead_letters.pipelines import settle_dead_letters
from headrace.store.pipelines.planned_runs import AppliedReports, apply_reports
from headrace.store.pipelines.run_totals import add_to_totals, contribution
from headrace.store.pipelines.scope_leases import require_holder
from headrace.store.pipelines.scope_rows import set_pace
from headrace.store.tables.pipelines import runs, scopes
from headrace.wire.pipelines.runs import BatchEnded, RunReport


class Runs:
    """The runs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def report(self, job_id: int, reports: Sequence[RunReport], ended: BatchEnded | None = None) -> None:
        """Store the last report of each run, and its dead letter. The latest attempt wins, and its end wins over
        its start.

        A finished planned run is closed in the same transaction.

        Raises:
            Fenced: The job has ended, or does not hold the scope of a planned run or of the batch that ended.
            ApiRefused: A planned run is of a batch that has no plan (`conflict`).
        """
        self._database.write(lambda connection: _report(connection, job_id, reports, ended, self._database.now()))


def _report(connection: Connection, job_id: int, reports: Sequence[RunReport], ended: BatchEnded | None, now: int) -> None:
    project = require_running(connection, job_id).project
    _store(connection, project, apply_reports(connection, job_id, reports), now)
    if ended is not None:
        require_holder(connection, job_id, ended.scope)
        set_pace(connection, ended.scope, ended.read, ended.seconds)


def _store(connection: Connection, project: str, taken: AppliedReports, now: int) -> None:
    newest: dict[str, RunReport] = {}
    for report in sorted(taken.reports, key=lambda report: _rank(report.attempt, report.state)):
        newest[report.run_id] = report
    known = [runs.c[name] for name in ("run_id", "project", "pipeline", "attempt", "state", "events", "rows", "started")]
    replaced = []
    for row in connection.execute(select(*known).where(runs.c.run_id.in_(newest))).mappings():
        report = newest[row["run_id"]]
        if _rank(report.attempt, report.state) < _rank(row["attempt"], row["state"]):
            del newest[row["run_id"]]
        else:
            replaced.append(row)
    settle_dead_letters(connection, project, list(newest.values()), taken.slices, now)
    if newest:
        incarnations = {scope: _incarnation(connection, scope) for scope in {report.scope for report in newest.values()}}
        rows = [_row(report, project, incarnations[report.scope]) for report in newest.values()]
        connection.execute(delete(runs).where(runs.c.run_id.in_(newest)))
        connection.execute(insert(runs), rows)
        add_to_totals(connection, [contribution(row) for row in rows] + [contribution(row, -1) for row in replaced])


def _rank(attempt: int, state: str) -> tuple[int, bool]:
    return attempt, state != "running"


def _incarnation(connection: Connection, scope: str) -> str:
    return connection.execute(select(scopes.c.incarnation).where(scopes.c.scope == scope)).scalar_one_or_none() or ""


def _row(report: RunReport, project: str, incarnation: str) -> dict[str, Any]:
    return {
        **report.model_dump(exclude={"started", "finished", "seqs", "dead_letter", "number"}),
        "project": project,
        "incarnation": incarnation,
        "started": micros(report.started),
        "finished": None if report.finished is None else micros(report.finished),
        "seqs": msgspec.json.encode(report.seqs).decode(),
        **_seq_interval(report.seqs),
    }


def _seq_interval(seqs: Sequence[tuple[int, int]]) -> dict[str, int | None]:
    """Return the interval of a run's events for lookups, empty if it has none."""
    first, last = min((first for first, _ in seqs), default=0), max((last for _, last in seqs), default=-1)
    node = interval_node(first, last)
    return (
        dict.fromkeys(("first_seq", "last_seq", "interval_node"))
        if node is None
        else {"first_seq": first, "last_seq": last, "interval_node": node}
    )
