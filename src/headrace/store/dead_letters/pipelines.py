"""Dead letters of pipelines: the events of a run that failed permanently. The log retains their payloads.

open ──redrive──► redriven ──the pipeline takes them──► deleted
  ▲ └──discard──► discarded    └──it fails again──► open, with more attempts
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from headrace.core.values.moments import moment
from headrace.errors import ApiRefused
from headrace.store.db.database import Database
from headrace.store.db.slices import size_of, take_slice
from headrace.store.dead_letters.short_ids import full_ids, short_id
from headrace.store.redeliveries import Redrive, record_redrives
from headrace.store.tables.pipelines import pipeline_dead_letters
from headrace.wire.custody.pipeline_dead_letters import (
    PipelineDeadLetter,
    PipelineDeadLetterAction,
    PipelineDeadLetterActionResult,
    PipelineDeadLetterList,
    PipelineDeadLetterSelection,
)
from headrace.wire.pipelines.plans import ScopeDeadLetter, ScopeDeadLetters
from headrace.wire.pipelines.runs import RunReport

PAGE_DEAD_LETTERS: Final = 5_000
"""Maximum number of dead letters on a page; MAX_SLICE_BYTES also bounds it."""
BATCH_DEAD_LETTERS: Final = 500
"""Dead letters that one transaction changes."""

_row_of = pipeline_dead_letters.c
_COLUMNS = [column for column in _row_of if column.name != "slice"]


class PipelineDeadLetters:
    """The dead letters of the pipelines of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, *, limit: int) -> PipelineDeadLetterList:
        """Return the newest dead letters."""
        with self._database.reading() as connection:
            rows = connection.execute(select(*_COLUMNS).order_by(_row_of.received.desc(), _row_of.id).limit(limit))
            return PipelineDeadLetterList(dead_letters=[_dead_letter(row._asdict()) for row in rows])

    def one(self, id: str) -> PipelineDeadLetter:
        """Return one dead letter. Raises `ApiRefused` if no dead letter has this id."""
        with self._database.reading() as connection:
            (full,) = full_ids(connection, _row_of.id, [id])
            row = connection.execute(select(*_COLUMNS).where(_row_of.id == full)).one_or_none()
        if row is None:
            raise _unknown(id)
        return _dead_letter(row._asdict())

    def act(self, action: PipelineDeadLetterAction, selection: PipelineDeadLetterSelection) -> PipelineDeadLetterActionResult:
        """Redrive or discard dead letters of pipelines. Only open ones change; by id, discarded ones too.

        Raises:
            ApiRefused: Neither ids nor a pipeline are given, or both are. Or an id is the prefix of several.
        """
        if bool(selection.ids) == (selection.pipeline is not None):
            raise ApiRefused("Name dead letters by their ids, or by their pipeline.", status=422, problem="invalid")
        with self._database.reading() as connection:
            ids = full_ids(connection, _row_of.id, selection.ids)
            known = set(connection.execute(select(_row_of.id).where(_row_of.id.in_(ids))).scalars())
            left = _chosen(connection, action, selection.model_copy(update={"ids": ids}))
        unknown = [requested for requested, id in zip(selection.ids, ids, strict=True) if id not in known]
        count = 0
        while left:
            changed, left = self._database.write(partial(_act, action=action, ids=left, by_id=bool(ids), now=self._database.now()))
            count += changed
        return PipelineDeadLetterActionResult(count=count, unknown=unknown)


def _unknown(id: str) -> ApiRefused:
    hint = "See: headrace dead-letters pipelines"
    return ApiRefused(f"No dead letter of a pipeline has the id {id}.", hint=hint, status=404, problem="not-found")


def settle_dead_letters(connection: Connection, project: str, reports: Iterable[RunReport], slices: Mapping[str, bytes], now: int) -> None:
    """Store the events of each run that failed permanently, and delete the dead letter of a run that later
    succeeded. `slices` has the slices of dead letters.
    """
    for report in reports:
        if report.dead_letter is None or report.state == "running":
            continue
        mine = _row_of.id == report.dead_letter
        if report.state == "succeeded":
            connection.execute(delete(pipeline_dead_letters).where(mine))
            continue
        news = {"run_id": report.run_id, "error": report.error or "", "state": "open"}
        known = connection.execute(select(_row_of.attempts, _row_of.run_id).where(mine)).one_or_none()
        if known is None:
            row = {"project": project, "scope": report.scope, "pipeline": report.pipeline, "batch": report.batch, "events": report.events}
            row |= {"seqs": msgspec.json.encode(report.seqs).decode(), "attempts": report.attempt, "received": now}
            row["slice"] = slices.get(report.dead_letter)
            connection.execute(insert(pipeline_dead_letters).values(id=report.dead_letter, **row, **news))
        elif known.run_id != report.run_id:
            connection.execute(update(pipeline_dead_letters).where(mine).values(attempts=known.attempts + report.attempt, **news))


def unsettled_dead_letters(connection: Connection, scope: str, pipeline: str, after: str) -> ScopeDeadLetters:
    """Return a page of a pipeline's dead letters after the given id. Settled and discarded dead letters are omitted."""
    mine = (_row_of.scope == scope, _row_of.pipeline == pipeline, _row_of.state != "discarded", _row_of.id > after)
    page = take_slice(
        connection, select(_row_of.id, _row_of.seqs, size_of(_row_of.seqs)).where(*mine).order_by(_row_of.id), PAGE_DEAD_LETTERS
    )
    dead_letters = [ScopeDeadLetter(id=row.id, seqs=msgspec.json.decode(row.seqs, type=list[tuple[int, int]])) for row in page.rows]
    return ScopeDeadLetters(dead_letters=dead_letters, after=dead_letters[-1].id if page.full else None)


def _chosen(connection: Connection, action: PipelineDeadLetterAction, selection: PipelineDeadLetterSelection) -> Sequence[str]:
    """Select the requested dead letters, the oldest first."""
    condition = _row_of.id.in_(selection.ids) if selection.ids else _row_of.pipeline == selection.pipeline
    query = select(_row_of.id).where(condition, _row_of.state.in_(_states(action, by_id=bool(selection.ids))))
    return connection.execute(query.order_by(_row_of.received, _row_of.id).limit(selection.limit)).scalars().all()


def _states(action: PipelineDeadLetterAction, *, by_id: bool) -> list[str]:
    return ["open", "discarded"] if action == "redrive" and by_id else ["open"]


def _act(connection: Connection, action: PipelineDeadLetterAction, ids: Sequence[str], by_id: bool, now: int) -> tuple[int, Sequence[str]]:
    """Act on one slice of these dead letters; return the number of changed dead letters, and the remaining dead letters."""
    mine = (_row_of.id.in_(ids), _row_of.state.in_(_states(action, by_id=by_id)))
    query = select(_row_of.id, _row_of.seqs, size_of(_row_of.seqs, _row_of.error)).where(*mine).order_by(_row_of.received, _row_of.id)
    batch = take_slice(connection, query, BATCH_DEAD_LETTERS)
    changed = [row.id for row in batch.rows]
    becomes = "redriven" if action == "redrive" else "discarded"
    connection.execute(update(pipeline_dead_letters).where(_row_of.id.in_(changed)).values(state=becomes, acted=now))
    if action == "redrive":
        record_redrives(connection, [Redrive(_first(row.seqs), row.id) for row in batch.rows])
    return len(changed), [id for id in ids if id not in set(changed)] if batch.full else []


def _first(seqs: str) -> int:
    ranges = msgspec.json.decode(seqs, type=list[tuple[int, int]])
    return ranges[0][0] if ranges else 0


def _dead_letter(row: dict[str, object]) -> PipelineDeadLetter:
    times = {name: None if row[name] is None else moment(int(str(row[name]))) for name in ("received", "acted")}
    return PipelineDeadLetter.model_validate(
        {**row, **times, "short": short_id(str(row["id"])), "seqs": msgspec.json.decode(str(row["seqs"]))}
    )
