"""Planned runs: open from their plan until their outcome is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from headrace.errors import ApiRefused
from headrace.store.dialects.statements import MAX_STATEMENT_VALUES, DriverStatement, ValuesQuery
from headrace.store.pipelines.scope_leases import require_holder
from headrace.store.pipelines.scope_rows import scope_row
from headrace.wire.pipelines.runs import RunReport

_open = ValuesQuery(
    {"incarnation": "text", "batch": "bigint", "number": "bigint"},
    "SELECT r.incarnation, r.batch, r.number, r.slice, r.begun, r.ended FROM given CROSS JOIN planned_runs r "
    "WHERE r.incarnation = given.incarnation AND r.batch = given.batch AND r.number = given.number",
)
# Each statement reads the runs of one batch together. PostgreSQL has no statistics of a young batch, and may scan
# all of its runs each time.
_count = DriverStatement(
    "UPDATE planned_runs SET begun = :begun, ended = :ended WHERE incarnation = :incarnation AND batch = :batch AND number IN :numbers",
    numbers="bigint",
)
_slices = ValuesQuery(
    {"incarnation": "text", "batch": "bigint", "number": "bigint"},
    "SELECT s.incarnation, s.batch, s.number, s.data FROM given CROSS JOIN plan_slices s "
    "WHERE s.incarnation = given.incarnation AND s.batch = given.batch AND s.number = given.number",
)
_close = DriverStatement(
    "DELETE FROM planned_runs WHERE incarnation = :incarnation AND batch = :batch AND number IN :numbers", numbers="bigint"
)
_used = DriverStatement(
    "SELECT DISTINCT slice FROM planned_runs WHERE incarnation = :incarnation AND batch = :batch AND slice IN :numbers", numbers="bigint"
)
_drop = DriverStatement(
    "DELETE FROM plan_slices WHERE incarnation = :incarnation AND batch = :batch AND number IN :numbers", numbers="bigint"
)


class _RunKey(NamedTuple):
    incarnation: str
    batch: int
    number: int


class _Open:
    """One open run while its reports are applied."""

    def __init__(self, number: int, slice: int, begun: int, ended: int) -> None:
        self.number = number
        self.slice = slice
        self.begun = begun
        self.ended = ended
        self.is_over = False
        self.dead_letter_id: str | None = None

    def take(self, report: RunReport) -> None:
        self.begun = max(self.begun, report.attempt)
        if report.state != "running":
            self.ended = max(self.ended, report.attempt)
        self.dead_letter_id = report.dead_letter if report.state == "failed" else None
        self.is_over = report.state == "succeeded" or self.dead_letter_id is not None


class AppliedReports(NamedTuple):
    """The reports that change something, and the slices of the dead letters among them."""

    reports: list[RunReport]
    slices: dict[str, bytes]


def apply_reports(connection: Connection, job_id: int, reports: Sequence[RunReport]) -> AppliedReports:
    """Count attempts of planned runs and close the finished ones.

    A report of a closed planned run changes nothing: it is a repeat whose response was lost.

    Raises:
        Fenced: The job does not hold the scope of a planned run.
        ApiRefused: The scope has no such batch (`conflict`).
    """
    rows = _scopes(connection, job_id, reports)
    runs = _open_runs(connection, (_run_key(rows, report) for report in reports if report.number is not None))
    taken: list[RunReport] = []
    for report in reports:
        run = None if report.number is None else runs.get(_run_key(rows, report))
        if run is not None and not run.is_over:
            run.take(report)
        elif report.number is not None:
            continue
        taken.append(report)
    slices = _dead_letter_slices(connection, runs)
    _write(connection, runs)
    return AppliedReports(taken, slices)


def _scopes(connection: Connection, job_id: int, reports: Iterable[RunReport]) -> dict[str, Any]:
    """Return the rows of the scopes of planned runs."""
    rows: dict[str, Any] = {}
    for report in reports:
        if report.number is None:
            continue
        if report.scope not in rows:
            require_holder(connection, job_id, report.scope)
            rows[report.scope] = scope_row(connection, report.scope)
        if report.batch > rows[report.scope].batch:
            message = f"The scope '{report.scope}' has no batch {report.batch}: its last plan is that of batch {rows[report.scope].batch}."
            raise ApiRefused(message, hint="Store the plan of a batch before the reports of its runs.", status=409, problem="conflict")
    return rows


def _run_key(rows: dict[str, Any], report: RunReport) -> _RunKey:
    return _RunKey(rows[report.scope].incarnation, report.batch, report.number or 0)


def _open_runs(connection: Connection, keys: Iterator[_RunKey]) -> dict[_RunKey, _Open]:
    return {_RunKey(*row[:3]): _Open(*row[2:]) for row in _open(connection, sorted(set(keys)))}


def _dead_letter_slices(connection: Connection, runs: dict[_RunKey, _Open]) -> dict[str, bytes]:
    slice_keys = {
        dead_letter_id: (key.incarnation, key.batch, run.slice)
        for key, run in runs.items()
        if (dead_letter_id := run.dead_letter_id) is not None
    }
    if not slice_keys:
        return {}
    data = {tuple(row[:3]): bytes(row[3]) for row in _slices(connection, sorted(set(slice_keys.values())))}
    return {dead_letter_id: data[key] for dead_letter_id, key in slice_keys.items()}


def _write(connection: Connection, runs: dict[_RunKey, _Open]) -> None:
    attempts: dict[tuple[str, int, int, int], list[int]] = defaultdict(list)
    over: dict[tuple[str, int], list[_Open]] = defaultdict(list)
    for key, run in runs.items():
        if run.is_over:
            over[key[:2]].append(run)
        else:
            attempts[(*key[:2], run.begun, run.ended)].append(key.number)
    for (incarnation, batch, begun, ended), numbers in attempts.items():
        for some in _parts(numbers):
            _count(connection, incarnation=incarnation, batch=batch, begun=begun, ended=ended, numbers=some)
    for (incarnation, batch), closed in over.items():
        close_runs(connection, incarnation, batch, {run.number: run.slice for run in closed})


def close_runs(connection: Connection, incarnation: str, batch: int, closed: Mapping[int, int]) -> None:
    """Delete runs of a batch, and their slices that no other open run has. `closed` maps run numbers to slices."""
    for some in _parts(list(closed)):
        _close(connection, incarnation=incarnation, batch=batch, numbers=some)
    for some in _parts(sorted(set(closed.values()))):
        used = set(_used(connection, incarnation=incarnation, batch=batch, numbers=some).scalars())
        _drop(connection, incarnation=incarnation, batch=batch, numbers=[number for number in some if number not in used])


def _parts(numbers: list[int]) -> Iterator[list[int]]:
    """Yield numbers in chunks that fit into one statement."""
    return (numbers[start : start + MAX_STATEMENT_VALUES] for start in range(0, len(numbers), MAX_STATEMENT_VALUES))
