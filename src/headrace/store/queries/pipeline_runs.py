"""Reports of runs: the newest, one of them, and the runs that took an event."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Integer, Row, bindparam, select

from headrace.core.interval_index import covering_nodes
from headrace.core.values.moments import moment
from headrace.store.tables.pipelines import runs
from headrace.wire.pipelines.runs import RunReport

_COLUMNS = [runs.c[name] for name in RunReport.model_fields if name not in ("seqs", "dead_letter", "number")]

_newest = select(*_COLUMNS, runs.c.seqs).order_by(runs.c.started.desc(), runs.c.run_id).limit(bindparam("limit", type_=Integer))


def last_runs(connection: Connection, *, limit: int, pipeline: str | None = None, with_seqs: bool = True) -> list[RunReport]:
    """Return the runs that started last, the newest first. `with_seqs` includes their `seqs`, which may be long."""
    query = _newest if pipeline is None else _newest.where(runs.c.pipeline == pipeline)
    return [_run(row, with_seqs=with_seqs) for row in connection.execute(query, {"limit": limit})]


def run_called(connection: Connection, run_id: str) -> RunReport | None:
    """Return the run with this id, or None if it does not exist."""
    row = connection.execute(select(*_COLUMNS, runs.c.seqs).where(runs.c.run_id == run_id)).one_or_none()
    return None if row is None else _run(row, with_seqs=True)


def runs_of_event(connection: Connection, seq: int, *, limit: int) -> list[RunReport]:
    """Return the runs that took the event `seq`, the newest first, without their `seqs`."""
    near = select(*_COLUMNS, runs.c.seqs).where(
        runs.c.interval_node.in_(covering_nodes(seq)), runs.c.first_seq <= seq, runs.c.last_seq >= seq
    )
    reports: list[RunReport] = []
    for row in connection.execute(near.order_by(runs.c.started.desc(), runs.c.run_id)):
        if any(first <= seq <= last for first, last in json.loads(row.seqs)):
            reports.append(_run(row, with_seqs=False))
            if len(reports) == limit:
                break
    return reports


def _run(row: Row[*tuple[Any, ...]], *, with_seqs: bool) -> RunReport:
    known = {column.name: getattr(row, column.name) for column in _COLUMNS}
    times = {"started": moment(row.started), "finished": None if row.finished is None else moment(row.finished)}
    return RunReport.model_validate({**known, **times, "seqs": json.loads(row.seqs) if with_seqs else []})
