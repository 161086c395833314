"""Records of the database about a scope's runs: the events that each one took, and the firings that the scope has read."""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import Connection, func, select, tuple_

from headrace.core.values.moments import moment
from headrace.store.db.meta import last_pruned_seq
from headrace.store.db.slices import size_of, take_slice
from headrace.store.pipelines.scope_rows import cursor_of, scope_row
from headrace.store.redeliveries import trigger_names
from headrace.store.tables.control import triggers
from headrace.store.tables.log import events, firings
from headrace.store.tables.pipelines import pipeline_dead_letters, redeliveries, run_totals, runs
from headrace.wire.pipelines.scope_audit import (
    FiringPosition,
    LedgerDeadLetter,
    LedgerDeadLetters,
    LedgerFirings,
    LedgerRun,
    LedgerRuns,
    ScopeLedger,
)

PAGE_ROWS: Final = 5_000
"""Maximum number of runs or dead letters of a page. MAX_SLICE_BYTES limits its bytes."""
PAGE_FIRINGS: Final = 100_000
CLOCK_MARGIN: Final = 600 * 1_000_000
"""Maximum difference between the clocks of the API server and a driver, in microseconds."""

_ROW_BYTES: Final = 500
_run = runs.c
_fired = firings.c


def scope_ledger(connection: Connection, log: str, scope: str, now: int) -> ScopeLedger | None:
    """Return the progress of the scope and its number of events in flight, or None if it does not exist.

    `now` is in microseconds.
    """
    row = scope_row(connection, scope)
    if row is None:
        return None
    cursor = cursor_of(row)
    return ScopeLedger(
        scope=scope,
        log=log,
        incarnation=row.incarnation,
        first=max(row.begin_seq, last_pruned_seq(connection), _last_pruned_run_seq(connection, row.project, now)) + 1,
        cursor=cursor.cursor,
        last_redelivery_id=cursor.last_redelivery_id,
        batch=cursor.batch,
        waiting=cursor.waiting,
        held=cursor.report.held if cursor.report else 0,
    )


def ledger_runs(connection: Connection, scope: str, after: str) -> LedgerRuns:
    """Return a page of the scope's successful runs, after the run with this id."""
    columns = [_run[name] for name in ("run_id", "incarnation", "pipeline", "batch", "attempt", "started", "rows", "seqs")]
    query = select(*columns, size_of(_run.seqs, plus=_ROW_BYTES))
    mine = query.where(_run.scope == scope, _run.state == "succeeded", _run.run_id > after).order_by(_run.run_id)
    page = take_slice(connection, mine, PAGE_ROWS)
    page_runs = [LedgerRun(**_named(row, columns), started=moment(row.started), seqs=json.loads(row.seqs)) for row in page.rows]
    return LedgerRuns(runs=page_runs, after=page_runs[-1].run_id if page.full else None)


def ledger_dead_letters(connection: Connection, scope: str, after: str) -> LedgerDeadLetters:
    """Return a page of the scope's dead letters, after the one with this id."""
    dead_letter = pipeline_dead_letters.c
    query = select(dead_letter.id, dead_letter.pipeline, dead_letter.seqs, size_of(dead_letter.seqs, plus=_ROW_BYTES))
    page = take_slice(connection, query.where(dead_letter.scope == scope, dead_letter.id > after).order_by(dead_letter.id), PAGE_ROWS)
    page_dead_letters = [LedgerDeadLetter(id=row.id, pipeline=row.pipeline, seqs=json.loads(row.seqs)) for row in page.rows]
    return LedgerDeadLetters(dead_letters=page_dead_letters, after=page_dead_letters[-1].id if page.full else None)


def ledger_firings(connection: Connection, scope: str, to: int, last_redelivery_id: int, after: tuple[int, int]) -> LedgerFirings:
    """Return a page of firings of triggers in the scope's project, up to the event `to` and the redelivery `last_redelivery_id`."""
    row = scope_row(connection, scope)
    mine = select(triggers.c.id).where(triggers.c.project == (None if row is None else row.project))
    position = (_fired.seq, _fired.trigger_id)
    bounds = (_fired.seq >= after[0], _fired.seq <= to, tuple_(*position) > after)
    query = select(*position).where(*bounds, _fired.trigger_id.in_(mine)).order_by(*position).limit(PAGE_FIRINGS)
    page_firings = [(row[0], row[1]) for row in connection.execute(query)]
    later = _unread(connection, after[0], page_firings[-1][0] if page_firings else to, last_redelivery_id)
    reported = [pair for pair in page_firings if pair not in later] if later else page_firings
    return LedgerFirings(
        names=trigger_names(connection, {trigger for _, trigger in reported}, None),
        seqs=[seq for seq, _ in reported],
        fired=[trigger for _, trigger in reported],
        after=FiringPosition(seq=page_firings[-1][0], trigger=page_firings[-1][1]) if len(page_firings) == PAGE_FIRINGS else None,
    )


def _named(row: Any, columns: list[Any]) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in columns if column.name not in ("started", "seqs")}


def _unread(connection: Connection, first: int, last: int, last_redelivery_id: int) -> set[tuple[int, int]]:
    """Return the pairs (seq, trigger) of these seqs that redeliveries after `last_redelivery_id` contain."""
    condition = redeliveries.c.seq.between(first, last) & (redeliveries.c.id > last_redelivery_id) & redeliveries.c.trigger_id.is_not(None)
    return {(row[0], row[1]) for row in connection.execute(select(redeliveries.c.seq, redeliveries.c.trigger_id).where(condition))}


def _last_pruned_run_seq(connection: Connection, project: str, now: int) -> int:
    """Return the last seq that a run may have taken whose report retention has deleted.

    The value is 0 if retention has deleted no report of the project.
    """
    known = connection.execute(select(func.count(), func.min(_run.started)).where(_run.project == project)).one()
    total = connection.execute(select(func.sum(run_totals.c.runs)).where(run_totals.c.project == project)).scalar_one() or 0
    if known[0] >= total:
        return 0
    oldest = now if known[1] is None else known[1] + CLOCK_MARGIN
    query = select(events.c.seq).where(events.c.received < oldest).order_by(events.c.seq.desc()).limit(1)
    return int(connection.execute(query).scalar_one_or_none() or 0)
