"""Plans: the events that each batch of a scope reads and assigns to pipelines, stored before any output. Also the
open runs and the scope's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, delete, select, tuple_

from headrace.errors import ApiRefused
from headrace.store.db.database import Database
from headrace.store.db.slices import size_of, take_slice
from headrace.store.dead_letters.pipelines import unsettled_dead_letters
from headrace.store.dialects.statements import BulkInsert, DriverStatement, Upsert
from headrace.store.pipelines.event_positions import add_positions, positions_of
from headrace.store.pipelines.plan_pages import drop_pages, keep_page, whole_plan
from headrace.store.pipelines.planned_runs import close_runs
from headrace.store.pipelines.scope_leases import require_holder
from headrace.store.pipelines.scope_rows import cursor_of, move_scope, scope_row
from headrace.store.tables.pipelines import pipeline_dead_letters, plan_slices, planned_runs, scope_state
from headrace.wire.pipelines.plans import OpenRun, OpenRuns, Plan, PlannedRun, PlanPage, Positions, ScopeDeadLetters, ScopeState, SplitRun

PAGE_ROWS: Final = 5_000
"""Maximum number of state keys or open runs on one page; MAX_SLICE_BYTES also bounds it."""
_RUN_BYTES: Final = 500
"""Bytes that an open run counts for beside its slice."""

_add_runs = BulkInsert(planned_runs)
_add_slices = BulkInsert(plan_slices)
_set_state = Upsert(scope_state, ["incarnation", "key"], lambda new: {"value": new["value"]})
_delete_state = DriverStatement("DELETE FROM scope_state WHERE incarnation = :incarnation AND key = :key")


class Plans:
    """The plans of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def store(self, job_id: int, scope: str, plan: Plan) -> None:
        """Store the plan of the scope's next batch. Storing the last plan again changes nothing.

        Raises:
            Fenced: The job has ended, or does not hold the scope at the plan's epoch.
            ApiRefused: The plan is not for the next batch (`conflict`), or its runs and slices do not match.
        """
        if not plan.pages:
            _check(plan.runs, plan.slices)
        self._database.write(lambda connection: _store(connection, job_id, scope, plan, self._database.now()))

    def keep_page(self, job_id: int, scope: str, page: PlanPage) -> None:
        """Store a page of the plan of the scope's next batch. It has no effect before `store` receives the plan
        that counts it.

        Raises:
            Fenced: The job has ended, or does not hold the scope at the page's epoch.
        """
        self._database.write(lambda connection: _keep_page(connection, job_id, scope, page))

    def split(self, job_id: int, scope: str, split: SplitRun) -> None:
        """Replace an open run by its parts. A run that is no longer open has already been replaced.

        Raises:
            Fenced: The job has ended, or does not hold the scope at this epoch.
            ApiRefused: The parts and the slices do not match.
        """
        _check(split.parts, split.slices)
        self._database.write(lambda connection: _split(connection, job_id, scope, split))

    def state(self, job_id: int, scope: str, after: str) -> ScopeState:
        """Return a page of the scope's state, by key. Raises `Fenced` if the job does not hold the scope."""
        with self._database.reading() as connection:
            return state_page(connection, _incarnation(connection, job_id, scope), after)

    def positions(self, job_id: int, scope: str, seqs: Sequence[int]) -> Positions:
        """Return the blocks that may have the positions of these events. Raises `Fenced` if the job does not hold the scope."""
        with self._database.reading() as connection:
            return positions_of(connection, _incarnation(connection, job_id, scope), seqs)

    def dead_letters(self, job_id: int, scope: str, pipeline: str, after: str) -> ScopeDeadLetters:
        """Return a page of a pipeline's unsettled dead letters, by id. Raises `Fenced` if the job does not hold the scope."""
        with self._database.reading() as connection:
            _incarnation(connection, job_id, scope)
            return unsettled_dead_letters(connection, scope, pipeline, after)

    def open_runs(self, job_id: int, scope: str, batch: int, number: int) -> OpenRuns:
        """Return a page of the scope's open runs after the given one. Raises `Fenced` if the job does not hold the scope."""
        with self._database.reading() as connection:
            return open_runs_page(connection, _incarnation(connection, job_id, scope), batch, number)


def state_page(connection: Connection, incarnation: str, after: str) -> ScopeState:
    """Return a page of the state of a scope, by key."""
    columns = (scope_state.c.key, scope_state.c.value, size_of(scope_state.c.value))
    query = select(*columns).where(scope_state.c.incarnation == incarnation, scope_state.c.key > after).order_by(scope_state.c.key)
    page = take_slice(connection, query, PAGE_ROWS)
    return ScopeState(entries={row.key: row.value for row in page.rows}, after=page.rows[-1].key if page.full else None)


def open_runs_page(connection: Connection, incarnation: str, batch: int, number: int) -> OpenRuns:
    """Return a page of the open runs of a scope after the given one."""
    run, slice = planned_runs.c, plan_slices.c
    size = size_of(slice.data, plus=_RUN_BYTES)
    same_slice = (slice.incarnation == run.incarnation) & (slice.batch == run.batch) & (slice.number == run.slice)
    query = select(planned_runs, slice.data, size).join(plan_slices, same_slice)
    after = tuple_(run.batch, run.number) > (batch, number)
    page = take_slice(connection, query.where(run.incarnation == incarnation, after).order_by(run.batch, run.number), PAGE_ROWS)
    return OpenRuns(runs=[_open_run(row) for row in page.rows])


def _check(runs: Sequence[PlannedRun], slices: Sequence[bytes]) -> None:
    """Raise `ApiRefused` if two runs have the same number, if a run names a missing slice, or if a slice has no run."""
    numbers = {run.number for run in runs}
    named = {run.slice for run in runs}
    if len(numbers) < len(runs):
        raise ApiRefused("Two runs of the plan have one number.", status=422, problem="invalid")
    if named != set(range(len(slices))):
        raise ApiRefused("The runs of the plan do not name each of its slices, and no other.", status=422, problem="invalid")


def _store(connection: Connection, job_id: int, scope: str, plan: Plan, now: int) -> None:
    job = require_holder(connection, job_id, scope, plan.epoch)
    row = scope_row(connection, scope)
    if _is_stored(row, plan):
        drop_pages(connection, row.incarnation)  # pages of a repeated plan
        return
    if plan.cursor.batch != row.batch + 1:
        raise ApiRefused(
            f"The last batch of the scope '{scope}' is {row.batch}: batch {plan.cursor.batch} cannot follow it.",
            hint="Take the scope again, and go on from its cursor.",
            status=409,
            problem="conflict",
        )
    if plan.pages:
        plan = whole_plan(connection, row.incarnation, plan)
        _check(plan.runs, plan.slices)
    move_scope(connection, scope, job, plan.cursor, now, epoch=plan.epoch)
    batch_key = (row.incarnation, plan.cursor.batch)
    _add_runs(connection, [(*batch_key, *_run(run)) for run in plan.runs])
    _add_slices(connection, [(*batch_key, number, data) for number, data in enumerate(plan.slices)])
    add_positions(connection, *batch_key, plan.positions)
    _take_back(connection, row.incarnation, plan.taken_back)
    _change_state(connection, row.incarnation, plan.state)


def _keep_page(connection: Connection, job_id: int, scope: str, page: PlanPage) -> None:
    require_holder(connection, job_id, scope, page.epoch)
    keep_page(connection, str(scope_row(connection, scope).incarnation), page)


def _take_back(connection: Connection, incarnation: str, runs: Sequence[tuple[int, int]]) -> None:
    """Close open runs whose events the state contains from now on."""
    if not runs:
        return
    run = planned_runs.c
    mine = (run.incarnation == incarnation, tuple_(run.batch, run.number).in_(runs))
    slices = {tuple(row[:2]): row.slice for row in connection.execute(select(run.batch, run.number, run.slice).where(*mine))}
    for batch, number in runs:
        if (batch, number) not in slices:
            message = f"The run {number} of batch {batch} is not open: its events cannot be taken back."
            raise ApiRefused(message, hint="Take the scope again, and go on from its open runs.", status=409, problem="conflict")
        close_runs(connection, incarnation, batch, {number: slices[batch, number]})


def _split(connection: Connection, job_id: int, scope: str, split: SplitRun) -> None:
    require_holder(connection, job_id, scope, split.epoch)
    batch_key = (str(scope_row(connection, scope).incarnation), split.batch)
    run = planned_runs.c
    mine = (run.incarnation == batch_key[0]) & (run.batch == split.batch) & (run.number == split.number)
    parent = connection.execute(select(run.slice, run.dead_letter_id).where(mine)).one_or_none()
    if parent is None:
        return
    numbers = {part.slice: part.number for part in split.parts}  # no other slice of the batch has the number of a part
    _add_runs(connection, [(*batch_key, *_run(part.model_copy(update={"slice": numbers[part.slice]}))) for part in split.parts])
    _add_slices(connection, [(*batch_key, numbers[number], data) for number, data in enumerate(split.slices)])
    close_runs(connection, *batch_key, {split.number: parent.slice})
    if parent.dead_letter_id is not None:
        connection.execute(delete(pipeline_dead_letters).where(pipeline_dead_letters.c.id == parent.dead_letter_id))


def _is_stored(row: Any, plan: Plan) -> bool:
    """Return whether the plan is the last stored one. Its response was lost."""
    before = cursor_of(row)
    planned = (plan.cursor.cursor, plan.cursor.last_redelivery_id)
    return (row.epoch, row.batch) == (plan.epoch, plan.cursor.batch) and (before.cursor, before.last_redelivery_id) == planned


def _run(run: PlannedRun) -> tuple[Any, ...]:
    """Return the columns of `planned_runs` from `number` on."""
    return (run.number, run.pipeline, run.part, run.table, run.format, run.dead_letter, run.events, run.first, run.slice, 0, 0)


def _change_state(connection: Connection, incarnation: str, changes: dict[str, bytes | None]) -> None:
    _delete_state.each(connection, [(incarnation, key) for key, value in changes.items() if value is None])
    changed = {key: value for key, value in changes.items() if value is not None}
    _set_state(connection, [{"incarnation": incarnation, "key": key, "value": value} for key, value in changed.items()])


def _incarnation(connection: Connection, job_id: int, scope: str) -> str:
    require_holder(connection, job_id, scope)
    return str(scope_row(connection, scope).incarnation)


def _open_run(row: Any) -> OpenRun:
    same = ("batch", "number", "pipeline", "part", "format", "events", "begun", "ended", "data")
    return OpenRun(table=row.table_name, dead_letter=row.dead_letter_id, **{name: getattr(row, name) for name in same})
