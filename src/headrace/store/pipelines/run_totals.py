"""Totals of each pipeline's runs: counters that change with every report, so that reading them costs one row for each pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, select

from headrace.store.dialects.statements import Excluded, Upsert
from headrace.store.tables import pipelines as tables

_COUNTS = ("runs", "failed", "events", "rows")
_t = tables.run_totals.c


class RunTotals(NamedTuple):
    """The totals of one pipeline's runs; `last` is when the last one started, in microseconds."""

    runs: int
    failed: int
    events: int
    rows: int
    last: int | None


class Contribution(NamedTuple):
    """What a run adds to the totals of its pipeline."""

    project: str
    pipeline: str
    runs: int
    failed: int
    events: int
    rows: int
    last: int


def _changed(new: Excluded) -> dict[str, Any]:
    later = case((_t.last < new["last"], new["last"]), else_=_t.last)
    return {name: _t[name] + new[name] for name in _COUNTS} | {"last": later}


_add = Upsert(tables.run_totals, ["project", "pipeline"], _changed)


def contribution(run: Mapping[Any, Any], sign: int = 1) -> Contribution:
    """Return the contribution of a row of `runs`, negated with a `sign` of -1. Events and rows count once the run has succeeded."""
    done = run["state"] == "succeeded"
    events, rows = (run["events"], run["rows"] or 0) if done else (0, 0)
    failed = run["state"] == "failed"
    return Contribution(run["project"], run["pipeline"], sign, sign * failed, sign * events, sign * rows, run["started"])


def add_to_totals(connection: Connection, contributions: Iterable[Contribution]) -> None:
    """Add contributions to the totals of their pipelines."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for one in contributions:
        mine = sums.setdefault((one.project, one.pipeline), dict.fromkeys(_COUNTS, 0) | {"last": one.last})
        for name in _COUNTS:
            mine[name] += getattr(one, name)
        mine["last"] = max(mine["last"], one.last)
    _add(connection, [{"project": project, "pipeline": pipeline, **mine} for (project, pipeline), mine in sorted(sums.items())])


def run_totals(connection: Connection) -> dict[tuple[str, str], RunTotals]:
    """Return the totals by (project, pipeline)."""
    return {(row[0], row[1]): RunTotals(*row[2:]) for row in connection.execute(select(tables.run_totals))}
