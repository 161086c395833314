"""Projects: the declarations of one file each.

A declaration is complete: a trigger that it no longer names is removed, but keeps its row and its counts.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update

from headrace.errors import ApiRefused
from headrace.store.control import encrypted_arguments, leases
from headrace.store.control.declarations import (
    MAX_SLICE_TRIGGERS,
    NEW,
    DeclarationPosition,
    apply,
    delete_staged,
    remove_others,
    require_staged,
    rows_named,
    stage,
)
from headrace.store.control.jobs import require_running, touch
from headrace.store.control.restarts import FRESH
from headrace.store.db.database import Database
from headrace.store.keyring import Keyring
from headrace.store.tables.control import projects, triggers
from headrace.store.tables.pipelines import pipelines
from headrace.wire.control.triggers import DeclaredPipeline, DeclaredTrigger, DeclareProject, ProjectDeclared, StageTriggers

MAX_APPLY_SECONDS = 1.0
"""Maximum seconds in which one call applies a staged declaration."""


class Projects:
    """The projects of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def declare(self, job_id: int, name: str, declared: DeclareProject) -> ProjectDeclared:
        """Declare the triggers of the project. A changed trigger loses its lease, so that it runs again.

        Undeclared triggers are removed in bounded transactions. A staged declaration is applied in bounded
        transactions too, for at most `MAX_APPLY_SECONDS` seconds.
        """
        if declared.staged is not None:
            return self._declare_staged(job_id, name, declared)
        now = self._database.now()
        answer, after = self._database.write(lambda connection: _declare(self._database, connection, job_id, name, declared, now))
        names = {trigger.name for trigger in declared.triggers}
        while after:
            after = self._database.write(partial(_remove_more, project=name, names=names, after=after, now=now))
        return answer

    def stage(self, job_id: int, page: StageTriggers) -> None:
        """Store a page of a declaration, until all pages are present and it is declared."""
        stage(self._database, job_id, page)

    def _declare_staged(self, job_id: int, name: str, declared: DeclareProject) -> ProjectDeclared:
        position = self._database.write(lambda connection: _begin(connection, job_id, name, declared, self._database.now()))
        until = monotonic() + MAX_APPLY_SECONDS
        while not position.end and monotonic() < until:
            position = self._database.write(partial(_apply, self._database, job_id, name, declared, position))
        while position.end and self._database.write(
            lambda connection: delete_staged(connection, declared.staged or "", MAX_SLICE_TRIGGERS)
        ):
            pass
        return ProjectDeclared(triggers={}, done=position.end, after=position.name)


def _begin(connection: Connection, job_id: int, project: str, declared: DeclareProject, now: int) -> DeclarationPosition:
    _require_own(connection, job_id, project)
    touch(connection, job_id, now)
    return DeclarationPosition(declared.after, end=not require_staged(connection, project, declared.staged or "", declared.count))


def _apply(
    database: Database, job_id: int, project: str, declared: DeclareProject, position: DeclarationPosition, connection: Connection
) -> DeclarationPosition:
    """Apply one slice of a staged declaration. Return the position up to which it is applied."""
    _require_own(connection, job_id, project)
    now = database.now()
    after = apply(connection, project, declared.staged or "", position, now)
    if after.end:
        _declare_pipelines(connection, project, {pipeline.name: pipeline for pipeline in declared.pipelines})
        connection.execute(delete(projects).where(projects.c.name == project))
        connection.execute(insert(projects).values(name=project, declared=now, declaration=declared.staged))
    return after


def _require_own(connection: Connection, job_id: int, project: str) -> None:
    own = require_running(connection, job_id).project
    if own != project:
        raise ApiRefused(f"Job {job_id} belongs to project '{own}', not to '{project}'.", status=403, problem="forbidden")


def _declare(
    database: Database, connection: Connection, job_id: int, project: str, declared: DeclareProject, now: int
) -> tuple[ProjectDeclared, int]:
    """Declare all triggers and remove one slice of the others.

    Return the answer, and the trigger id after which removal continues, or 0 if no trigger is left.
    """
    _require_own(connection, job_id, project)
    connection.execute(delete(projects).where(projects.c.name == project))
    connection.execute(insert(projects).values(name=project, declared=now))
    _declare_pipelines(connection, project, {pipeline.name: pipeline for pipeline in declared.pipelines})
    declared_triggers = {trigger.name: trigger for trigger in declared.triggers}
    after = remove_others(connection, project, declared_triggers.keys(), 0, now)
    _declare_triggers(connection, project, declared_triggers, now, database.keyring)
    ids = {row.id: name for name, row in rows_named(connection, project, list(declared_triggers)).items()}
    return ProjectDeclared(triggers={ids[one]: one for one in sorted(ids)}), after


def _remove_more(connection: Connection, project: str, names: Collection[str], after: int, now: int) -> int:
    """Remove another slice of the undeclared triggers, unless another declaration arrived meanwhile."""
    last = connection.execute(select(projects.c.declared).where(projects.c.name == project)).scalar_one_or_none()
    return remove_others(connection, project, names, after, now) if last == now else 0


def _declare_triggers(connection: Connection, project: str, declared: dict[str, DeclaredTrigger], now: int, keyring: Keyring) -> None:
    known = rows_named(connection, project, list(declared))
    changed: list[tuple[int, dict[str, Any]]] = []
    new: list[dict[str, Any]] = []
    for name, trigger in declared.items():
        values = _values(trigger)
        policy = {"priority": trigger.priority, "max_restarts": trigger.max_restarts}
        row = known.get(name)
        what = encrypted_arguments.display_name(project, name)
        same = row is not None and encrypted_arguments.unchanged(keyring, row, trigger.kwargs, what)
        if row is not None and same and row.state != "removed" and _keeps(row, values):
            _adjust(connection, row, policy)
            continue
        values |= policy | encrypted_arguments.encrypt(keyring, trigger.kwargs, what)
        if row is None:
            new.append({"project": project, "name": name, "declared": now, "registered": now, **NEW, **values})
        else:
            changed.append((row.id, values))
    leases.revoke(connection, [trigger_id for trigger_id, _ in changed])
    for trigger_id, values in changed:
        connection.execute(update(triggers).where(triggers.c.id == trigger_id).values(**FRESH, declared=now, removed=None, **values))
    if new:
        connection.execute(insert(triggers), new)
    if new or changed:
        leases.changed(connection)


def _keeps(row: Row[Any], values: dict[str, Any]) -> bool:
    return all(getattr(row, column) == value for column, value in values.items())


def _adjust(connection: Connection, row: Row[Any], policy: dict[str, Any]) -> None:
    """Change the settings that do not affect the job that runs the trigger. The trigger continues to run."""
    if not _keeps(row, policy):
        connection.execute(update(triggers).where(triggers.c.id == row.id).values(**policy))
        leases.changed(connection)


def _values(trigger: DeclaredTrigger) -> dict[str, Any]:
    return {"classpath": trigger.classpath, "stream": trigger.stream, "queue": trigger.queue}


def _declare_pipelines(connection: Connection, project: str, declared: dict[str, DeclaredPipeline]) -> None:
    known = {row.name: row.id for row in connection.execute(select(pipelines.c.name, pipelines.c.id).where(pipelines.c.project == project))}
    connection.execute(update(pipelines).where(pipelines.c.project == project).values(removed=True))
    for name, pipeline in declared.items():
        patterns = msgspec.json.encode(pipeline.on).decode()
        values: dict[str, Any] = {"patterns": patterns, "table_name": pipeline.table, "batch": pipeline.batch, "removed": False}
        values["on_failure"] = pipeline.on_failure
        if name in known:
            connection.execute(update(pipelines).where(pipelines.c.id == known[name]).values(**values))
        else:
            connection.execute(insert(pipelines).values(project=project, name=name, **values))
