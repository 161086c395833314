"""Planned runs: open from their plan until their outcome is stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from headrace.errors import ApiRefused
from headrace.store.dialects import Given, Plain
from headrace.store.scope_leases import require_holder
from headrace.store.scope_rows import scope_row
from headrace.wire.runs import RunReport

_open = Given(
    {"incarnation": "text", "batch": "bigint", "number": "bigint"},
    "SELECT r.incarnation, r.batch, r.number, r.slice, r.begun, r.ended FROM given CROSS JOIN planned_runs r "
    "WHERE r.incarnation = given.incarnation AND r.batch = given.batch AND r.number = given.number",
)
_count = Plain(
    "UPDATE planned_runs SET begun = :begun, ended = :ended WHERE incarnation = :incarnation AND batch = :batch AND number = :number"
)
_close = Plain("DELETE FROM planned_runs WHERE incarnation = :incarnation AND batch = :batch AND number = :number")
_drop_slice = Plain(
    "DELETE FROM plan_slices WHERE incarnation = :incarnation AND batch = :batch AND number = :number AND NOT EXISTS ("
    "SELECT 1 FROM planned_runs r WHERE r.incarnation = plan_slices.incarnation AND r.batch = plan_slices.batch "
    "AND r.slice = plan_slices.number)"
)


class _Place(NamedTuple):
    incarnation: str
    batch: int
    number: int


class _Open:
    """One open run while its reports are taken up."""

    def __init__(self, slice: int, begun: int, ended: int) -> None:
        self.slice = slice
        self.begun = begun
        self.ended = ended
        self.is_over = False

    def take(self, report: RunReport) -> None:
        self.begun = max(self.begun, report.attempt)
        if report.state != "running":
            self.ended = max(self.ended, report.attempt)
        self.is_over = report.state == "succeeded" or (report.state == "failed" and report.letter is not None)


def take_up(connection: Connection, job_id: int, reports: Sequence[RunReport]) -> list[RunReport]:
    """Count attempts of planned runs and close those that are over; return the reports that say something new.

    A report of a planned run that is closed says nothing new: it is a repeat whose answer was lost.

    Raises:
        Fenced: The job does not hold the scope of a planned run.
        ApiRefused: The scope has no such batch (`conflict`).
    """
    rows = _scopes(connection, job_id, reports)
    runs = _open_runs(connection, (_place(rows, report) for report in reports if report.number is not None))
    taken: list[RunReport] = []
    for report in reports:
        run = None if report.number is None else runs.get(_place(rows, report))
        if run is not None and not run.is_over:
            run.take(report)
        elif report.number is not None:
            continue
        taken.append(report)
    _write(connection, runs)
    return taken


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


def _place(rows: dict[str, Any], report: RunReport) -> _Place:
    return _Place(rows[report.scope].incarnation, report.batch, report.number or 0)


def _open_runs(connection: Connection, places: Iterator[_Place]) -> dict[_Place, _Open]:
    return {_Place(*row[:3]): _Open(*row[3:]) for row in _open(connection, sorted(set(places)))}


def _write(connection: Connection, runs: dict[_Place, _Open]) -> None:
    over = [place for place, run in runs.items() if run.is_over]
    _count.each(connection, [(run.begun, run.ended, *place) for place, run in runs.items() if not run.is_over])
    _close.each(connection, over)
    _drop_slice.each(connection, sorted({(place.incarnation, place.batch, runs[place].slice) for place in over}))
