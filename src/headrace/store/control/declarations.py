"""Stage declarations with more triggers than one call takes, page by page, and apply them in bounded transactions.

Invariant: new and changed triggers are applied before undeclared ones are removed, so that an event always
finds one of them. Nothing is applied until all pages are present. After a stop in between, the next declaration
is complete again and repairs the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, insert, literal, or_, select, update

from headrace.errors import ApiRefused
from headrace.store.control import encrypted_arguments, leases
from headrace.store.control.jobs import require_running, touch
from headrace.store.control.restarts import FRESH
from headrace.store.db.database import Database
from headrace.store.db.slices import size_of, take_slice
from headrace.store.dialects.statements import BulkInsert, DriverStatement, driver_rows, in_list, row_by_row, rows_among
from headrace.store.tables.control import projects, staged_triggers, triggers
from headrace.wire.control.triggers import DeclaredTrigger, StageTriggers

MAX_SLICE_TRIGGERS = 1_000
SPECIFIED = ("classpath", "stream", "queue")
POLICY = ("priority", "max_restarts")
ENCRYPTED = ("kwargs", "kwargs_digest")
NEW = {"state": "waiting", "failures": 0, "fired": 0, "rejected": 0, "epoch": 0}

_stored_arguments = DriverStatement(
    "SELECT name, declared, kwargs, kwargs_digest FROM triggers WHERE project = :project AND run_id IS NULL AND name IN :names",
    names="text",
)
_there = DriverStatement("SELECT name FROM staged_triggers WHERE declaration = :declaration AND name IN :names", names="text")
_insert_staged = BulkInsert(staged_triggers)
_known = select(triggers).where(triggers.c.run_id.is_(None), in_list(triggers.c.name, "names"))


def stage(database: Database, job_id: int, page: StageTriggers) -> None:
    """Store a page of a declaration. The same page again changes nothing.

    The arguments are encrypted before the writer's transaction, because other writers wait for it.
    """
    with database.reading() as connection:
        project = require_running(connection, job_id).project
        known = {
            row.name: row for row in _stored_arguments(connection, project=project, names=[trigger.name for trigger in page.triggers]).all()
        }
    rows = [
        _staged_row(database, page.declaration, project, trigger, known.get(trigger.name))
        for trigger in {trigger.name: trigger for trigger in page.triggers}.values()
    ]
    database.write(partial(_insert, job_id=job_id, declaration=page.declaration, rows=rows, now=database.now()))


def _staged_row(database: Database, declaration: str, project: str, trigger: DeclaredTrigger, known: Row[Any] | None) -> tuple[Any, ...]:
    """Return the row of `staged_triggers`, in the order of its columns."""
    what = encrypted_arguments.display_name(project, trigger.name)
    # The trigger may change before this row is applied. Then it is declared at another time.
    same = known.declared if known is not None and encrypted_arguments.unchanged(database.keyring, known, trigger.kwargs, what) else None
    encrypted = encrypted_arguments.encrypt(database.keyring, trigger.kwargs, what)
    specified = (trigger.classpath, encrypted["kwargs"], encrypted["kwargs_digest"], trigger.stream, trigger.queue)
    return (declaration, trigger.name, project, *specified, trigger.priority, trigger.max_restarts, same, database.now())


def _insert(connection: Connection, job_id: int, declaration: str, rows: Sequence[tuple[Any, ...]], now: int) -> None:
    require_running(connection, job_id)
    touch(connection, job_id, now)
    there = set(_there(connection, declaration=declaration, names=[row[1] for row in rows]).scalars())
    _insert_staged(connection, [row for row in rows if row[1] not in there])


def require_staged(connection: Connection, project: str, declaration: str, count: int) -> bool:
    """Return whether the declaration must still be applied, after a check that it is complete.

    Raises:
        ApiRefused: A page is missing.
    """
    last = connection.execute(select(projects.c.declaration).where(projects.c.name == project)).scalar_one_or_none()
    if last == declaration:
        return False
    staged = connection.execute(select(func.count()).select_from(staged_triggers).where(*_of(project, declaration))).scalar_one()
    if staged != count:
        raise ApiRefused(f"{staged:,} of {count:,} triggers are staged.", hint="Send all pages again.", status=409, problem="incomplete")
    return True


class DeclarationPosition(NamedTuple):
    """The position up to which a declaration is applied.

    All names up to `name` are applied, then all removals up to the trigger `last_removed_id`. `end` means that all of it
    is applied.
    """

    name: str = ""
    last_removed_id: int = 0
    end: bool = False


def apply(connection: Connection, project: str, declaration: str, position: DeclarationPosition, now: int) -> DeclarationPosition:
    """Apply one slice of a declaration after `position`. Return the next place."""
    row_by_row(connection)
    rest = (*_of(project, declaration), staged_triggers.c.name > position.name)
    names = select(staged_triggers.c.name, size_of(staged_triggers.c.kwargs)).where(*rest).order_by(staged_triggers.c.name)
    if rows := take_slice(connection, names, MAX_SLICE_TRIGGERS).rows:
        _declare(connection, project, (*rest, staged_triggers.c.name <= rows[-1].name), now)
        return position._replace(name=rows[-1].name)
    named = exists().where(*_of(project, declaration), staged_triggers.c.name == triggers.c.name)
    declared = (
        triggers.c.project == project,
        triggers.c.run_id.is_(None),
        triggers.c.state != "removed",
        triggers.c.id > position.last_removed_id,
    )
    others = select(triggers.c.id, size_of(triggers.c.kwargs)).where(*declared, ~named).order_by(triggers.c.id)
    removed_ids = [row.id for row in take_slice(connection, others, MAX_SLICE_TRIGGERS).rows]
    if removed_ids:
        remove(connection, removed_ids, now)
        return position._replace(last_removed_id=removed_ids[-1])
    return position._replace(end=True)


def remove(connection: Connection, trigger_ids: list[int], now: int) -> None:
    """Revoke triggers that are no longer declared from the jobs that run them. Their rows and counts remain."""
    leases.revoke(connection, trigger_ids)
    for part in leases.parts(trigger_ids):
        connection.execute(update(triggers).where(triggers.c.id.in_(part)).values(state="removed", removed=now))


def remove_others(connection: Connection, project: str, names: Collection[str], after: int, now: int) -> int:
    """Remove one slice of the project's triggers that have other names, after the id `after`.

    Return the id after which to continue, or 0 if no trigger is left.
    """
    declared = (triggers.c.project == project, triggers.c.run_id.is_(None), triggers.c.state != "removed", triggers.c.id > after)
    removed_ids: list[int] = []
    for part in driver_rows(
        connection, select(triggers.c.id, triggers.c.name).where(*declared).order_by(triggers.c.id), MAX_SLICE_TRIGGERS
    ):
        removed_ids += [trigger_id for trigger_id, name in part if name not in names]
        if len(removed_ids) >= MAX_SLICE_TRIGGERS:
            break
    remove(connection, removed_ids[:MAX_SLICE_TRIGGERS], now)
    return removed_ids[MAX_SLICE_TRIGGERS - 1] if len(removed_ids) >= MAX_SLICE_TRIGGERS else 0


def delete_staged(connection: Connection, declaration: str, limit: int) -> int:
    """Delete one slice of the pages of a declaration, at most `limit` triggers. Return the number of triggers."""
    row_by_row(connection)
    mine = staged_triggers.c.declaration == declaration
    staged = select(staged_triggers.c.name, size_of(staged_triggers.c.kwargs)).where(mine).order_by(staged_triggers.c.name)
    names = [row.name for row in take_slice(connection, staged, limit).rows]
    if names:
        connection.execute(delete(staged_triggers).where(mine, staged_triggers.c.name <= names[-1]))
    return len(names)


def staged_declarations(connection: Connection, before: int, limit: int) -> int:
    """Delete pages staged before `before` (microseconds), and the rest of declarations that are applied."""
    over = exists().where(projects.c.name == staged_triggers.c.project, projects.c.declaration == staged_triggers.c.declaration)
    row = connection.execute(select(staged_triggers.c.declaration).where((staged_triggers.c.staged < before) | over).limit(1)).first()
    return 0 if row is None else delete_staged(connection, row.declaration, limit)


def _declare(connection: Connection, project: str, staged: tuple[ColumnElement[bool], ...], now: int) -> None:
    """Declare the triggers of a project as these staged rows specify.

    The database does all of it, because 100,000 rows take seconds to pass through Python.
    """
    # With `run_id IS NULL` alone, PostgreSQL would read an index of nearly all triggers for each row.
    known = (triggers.c.project == project, triggers.c.name == staged_triggers.c.name, func.coalesce(triggers.c.run_id, "") == "")
    removed, same = triggers.c.state == "removed", triggers.c.declared.is_not_distinct_from(staged_triggers.c.same)
    changed = _ids(connection, staged, (*known, or_(removed, ~same, *_differences(SPECIFIED))))
    leases.revoke(connection, changed)
    if changed:
        values = {**FRESH, "declared": now, "removed": None, **_values(SPECIFIED, POLICY, ENCRYPTED)}
        connection.execute(update(triggers).where(*staged, *known, triggers.c.id.in_(changed)).values(values))
    adjusted = _ids(connection, staged, (*known, or_(*_differences(POLICY))))
    if adjusted:
        connection.execute(update(triggers).where(*staged, *known, triggers.c.id.in_(adjusted)).values(_values(POLICY)))
    there = exists().where(*known).correlate(staged_triggers)
    values = {"project": literal(project), "name": staged_triggers.c.name, "declared": literal(now), "registered": literal(now)}
    values |= {name: literal(value) for name, value in NEW.items()} | _values(SPECIFIED, POLICY, ENCRYPTED)
    rows = select(*values.values()).where(*staged, ~there).order_by(staged_triggers.c.name)
    new = connection.execute(insert(triggers).from_select(list(values), rows)).rowcount
    if new or changed or adjusted:
        leases.changed(connection)


def _ids(connection: Connection, staged: tuple[ColumnElement[bool], ...], conditions: tuple[ColumnElement[bool], ...]) -> list[int]:
    """Return the ids of the triggers of staged rows that meet the conditions `conditions`.

    Each trigger is looked up for its row. For a join, PostgreSQL may start from all triggers of the project in
    every slice.
    """
    trigger_id = select(triggers.c.id).where(*conditions).correlate(staged_triggers).scalar_subquery()
    return [one for one in connection.execute(select(trigger_id).where(*staged)).scalars() if one is not None]


def rows_named(connection: Connection, project: str, names: list[str]) -> dict[str, Row[Any]]:
    """Return the triggers of a project with these names, including removed ones."""
    return {row.name: row for row in rows_among(connection, _known.where(triggers.c.project == project), "names", names)}


def _values(*groups: tuple[str, ...]) -> dict[str, Any]:
    return {name: staged_triggers.c[name] for group in groups for name in group}


def _differences(names: tuple[str, ...]) -> list[ColumnElement[bool]]:
    return [triggers.c[name].is_distinct_from(staged_triggers.c[name]) for name in names]


def _of(project: str, declaration: str) -> tuple[Any, Any]:
    return staged_triggers.c.declaration == declaration, staged_triggers.c.project == project
