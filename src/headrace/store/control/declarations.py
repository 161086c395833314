"""Declarations of more triggers than one call takes: staged page by page, then applied a bounded number in each commit.

The law of applying: what is new or changed comes before anything that is no longer declared goes, so that no event finds neither. Until
all pages are there, nothing is applied. After a stop in between comes the next declaration, which is whole again.
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

AT_ONCE = 1_000
SPECIFIED = ("classpath", "stream", "queue")
POLICY = ("priority", "max_restarts")
SEALED = ("kwargs", "kwargs_digest")
NEW = {"state": "waiting", "failures": 0, "fired": 0, "rejected": 0, "epoch": 0}

_kept = DriverStatement(
    "SELECT name, declared, kwargs, kwargs_digest FROM triggers WHERE project = :project AND run_id IS NULL AND name IN :names",
    names="text",
)
_there = DriverStatement("SELECT name FROM staged_triggers WHERE declaration = :declaration AND name IN :names", names="text")
_insert_staged = BulkInsert(staged_triggers)
_known = select(triggers).where(triggers.c.run_id.is_(None), in_list(triggers.c.name, "names"))


def stage(database: Database, job_id: int, page: StageTriggers) -> None:
    """Keep a page of a declaration; the same page again changes nothing.

    The arguments are sealed before the writer's transaction, which others wait for.
    """
    with database.reading() as connection:
        project = require_running(connection, job_id).project
        known = {row.name: row for row in _kept(connection, project=project, names=[trigger.name for trigger in page.triggers]).all()}
    rows = [
        _staged_row(database, page.declaration, project, trigger, known.get(trigger.name))
        for trigger in {trigger.name: trigger for trigger in page.triggers}.values()
    ]
    database.write(partial(_insert, job_id=job_id, declaration=page.declaration, rows=rows, now=database.now()))


def _staged_row(database: Database, declaration: str, project: str, trigger: DeclaredTrigger, known: Row[Any] | None) -> tuple[Any, ...]:
    """Return the row of `staged_triggers`, in the order of its columns."""
    what = encrypted_arguments.named(project, trigger.name)
    # It may change before this is applied: then it is declared at another moment.
    same = known.declared if known is not None and encrypted_arguments.unchanged(database.keyring, known, trigger.kwargs, what) else None
    sealed = encrypted_arguments.encrypt(database.keyring, trigger.kwargs, what)
    specified = (trigger.classpath, sealed["kwargs"], sealed["kwargs_digest"], trigger.stream, trigger.queue)
    return (declaration, trigger.name, project, *specified, trigger.priority, trigger.max_restarts, same, database.now())


def _insert(connection: Connection, job_id: int, declaration: str, rows: Sequence[tuple[Any, ...]], now: int) -> None:
    require_running(connection, job_id)
    touch(connection, job_id, now)
    there = set(_there(connection, declaration=declaration, names=[row[1] for row in rows]).scalars())
    _insert_staged(connection, [row for row in rows if row[1] not in there])


def require_staged(connection: Connection, project: str, declaration: str, count: int) -> bool:
    """Return whether the declaration is still to be applied; it is complete then.

    Raises:
        ApiRefused: Some of it is missing.
    """
    last = connection.execute(select(projects.c.declaration).where(projects.c.name == project)).scalar_one_or_none()
    if last == declaration:
        return False
    staged = connection.execute(select(func.count()).select_from(staged_triggers).where(*_of(project, declaration))).scalar_one()
    if staged != count:
        raise ApiRefused(f"{staged:,} of {count:,} triggers are staged.", hint="Send all pages again.", status=409, problem="incomplete")
    return True


class Place(NamedTuple):
    """How far a declaration is applied: all names up to `name`, then all that went up to the trigger `gone`. `end`: all of it."""

    name: str = ""
    gone: int = 0
    end: bool = False


def apply(connection: Connection, project: str, declaration: str, place: Place, now: int) -> Place:
    """Apply some of a declaration after `place`; return the next place."""
    row_by_row(connection)
    rest = (*_of(project, declaration), staged_triggers.c.name > place.name)
    names = select(staged_triggers.c.name, size_of(staged_triggers.c.kwargs)).where(*rest).order_by(staged_triggers.c.name)
    if rows := take_slice(connection, names, AT_ONCE).rows:
        _declare(connection, project, (*rest, staged_triggers.c.name <= rows[-1].name), now)
        return place._replace(name=rows[-1].name)
    named = exists().where(*_of(project, declaration), staged_triggers.c.name == triggers.c.name)
    declared = (triggers.c.project == project, triggers.c.run_id.is_(None), triggers.c.state != "removed", triggers.c.id > place.gone)
    others = select(triggers.c.id, size_of(triggers.c.kwargs)).where(*declared, ~named).order_by(triggers.c.id)
    gone = [row.id for row in take_slice(connection, others, AT_ONCE).rows]
    if gone:
        remove(connection, gone, now)
        return place._replace(gone=gone[-1])
    return place._replace(end=True)


def remove(connection: Connection, trigger_ids: list[int], now: int) -> None:
    """Take triggers that are no longer declared from the jobs that run them; their rows and counts stay."""
    leases.revoke(connection, trigger_ids)
    for part in leases.parts(trigger_ids):
        connection.execute(update(triggers).where(triggers.c.id.in_(part)).values(state="removed", removed=now))


def remove_others(connection: Connection, project: str, names: Collection[str], after: int, now: int) -> int:
    """Remove some triggers of a project that have other names, from the id `after` on; return after which id to go on (0: nowhere)."""
    declared = (triggers.c.project == project, triggers.c.run_id.is_(None), triggers.c.state != "removed", triggers.c.id > after)
    gone: list[int] = []
    for part in driver_rows(connection, select(triggers.c.id, triggers.c.name).where(*declared).order_by(triggers.c.id), AT_ONCE):
        gone += [trigger_id for trigger_id, name in part if name not in names]
        if len(gone) >= AT_ONCE:
            break
    remove(connection, gone[:AT_ONCE], now)
    return gone[AT_ONCE - 1] if len(gone) >= AT_ONCE else 0


def forget(connection: Connection, declaration: str, most: int) -> int:
    """Forget one slice of the pages of a declaration, at most so many triggers; return how many."""
    row_by_row(connection)
    mine = staged_triggers.c.declaration == declaration
    staged = select(staged_triggers.c.name, size_of(staged_triggers.c.kwargs)).where(mine).order_by(staged_triggers.c.name)
    names = [row.name for row in take_slice(connection, staged, most).rows]
    if names:
        connection.execute(delete(staged_triggers).where(mine, staged_triggers.c.name <= names[-1]))
    return len(names)


def staged_declarations(connection: Connection, before: int, most: int) -> int:
    """Forget what was staged before `before` (microseconds), and what is left of declarations that are applied."""
    over = exists().where(projects.c.name == staged_triggers.c.project, projects.c.declaration == staged_triggers.c.declaration)
    found = connection.execute(select(staged_triggers.c.declaration).where((staged_triggers.c.staged < before) | over).limit(1)).first()
    return 0 if found is None else forget(connection, found.declaration, most)


def _declare(connection: Connection, project: str, staged: tuple[ColumnElement[bool], ...], now: int) -> None:
    """Make the triggers of a project what these staged rows say: all in the database, as 100,000 rows take seconds to go through Python."""
    # For `run_id IS NULL` alone PostgreSQL would read an index of nearly all triggers, once for each row.
    known = (triggers.c.project == project, triggers.c.name == staged_triggers.c.name, func.coalesce(triggers.c.run_id, "") == "")
    removed, same = triggers.c.state == "removed", triggers.c.declared.is_not_distinct_from(staged_triggers.c.same)
    changed = _ids(connection, staged, (*known, or_(removed, ~same, *_differences(SPECIFIED))))
    leases.revoke(connection, changed)
    if changed:
        values = {**FRESH, "declared": now, "removed": None, **_values(SPECIFIED, POLICY, SEALED)}
        connection.execute(update(triggers).where(*staged, *known, triggers.c.id.in_(changed)).values(values))
    adjusted = _ids(connection, staged, (*known, or_(*_differences(POLICY))))
    if adjusted:
        connection.execute(update(triggers).where(*staged, *known, triggers.c.id.in_(adjusted)).values(_values(POLICY)))
    there = exists().where(*known).correlate(staged_triggers)
    values = {"project": literal(project), "name": staged_triggers.c.name, "declared": literal(now)}
    values |= {name: literal(value) for name, value in NEW.items()} | _values(SPECIFIED, POLICY, SEALED)
    rows = select(*values.values()).where(*staged, ~there).order_by(staged_triggers.c.name)
    new = connection.execute(insert(triggers).from_select(list(values), rows)).rowcount
    if new or changed or adjusted:
        leases.changed(connection)


def _ids(connection: Connection, staged: tuple[ColumnElement[bool], ...], wanted: tuple[ColumnElement[bool], ...]) -> list[int]:
    """Return the triggers of staged rows that are as wanted.

    Each is looked up for its row: of a join, PostgreSQL may begin with all triggers of the project, in every slice.
    """
    found = select(triggers.c.id).where(*wanted).correlate(staged_triggers).scalar_subquery()
    return [one for one in connection.execute(select(found).where(*staged)).scalars() if one is not None]


def rows_named(connection: Connection, project: str, names: list[str]) -> dict[str, Row[Any]]:
    """Return the triggers of a project that have these names, also those that were removed."""
    return {row.name: row for row in rows_among(connection, _known.where(triggers.c.project == project), "names", names)}


def _values(*groups: tuple[str, ...]) -> dict[str, Any]:
    return {name: staged_triggers.c[name] for group in groups for name in group}


def _differences(names: tuple[str, ...]) -> list[ColumnElement[bool]]:
    return [triggers.c[name].is_distinct_from(staged_triggers.c[name]) for name in names]


def _of(project: str, declaration: str) -> tuple[Any, Any]:
    return staged_triggers.c.declaration == declaration, staged_triggers.c.project == project
