"""Create the database's schema, migrate it on request, and reject one that this version does not know."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, column, inspect, select, table

from headrace.errors import SchemaError

MIGRATIONS = Path(__file__).parents[1] / "migrations"
REVISION_TABLE = "alembic_version"
_BEFORE_FIRST_RELEASE = re.compile(r"r00\d\d")


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration for the migrations of this package, using `connection`."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


@dataclass(frozen=True, slots=True)
class Step:
    """One migration. `adds` describes what it adds, and `loses` the data that its downgrade deletes."""

    revision: str
    adds: str
    loses: str


def steps() -> tuple[Step, ...]:
    """Return every migration of this version, the oldest first."""
    return _steps_in(MIGRATIONS)


@cache
def _steps_in(migrations: Path) -> tuple[Step, ...]:
    revisions = reversed(list(ScriptDirectory(str(migrations)).walk_revisions()))
    return tuple(Step(one.revision, one.doc.rstrip("."), str(getattr(one.module, "LOSES", "nothing"))) for one in revisions)


def ensure_schema(connection: Connection, where: str, *, migrate: bool) -> None:
    """Bring the database named `where` to this version's schema: always if it is empty, otherwise only with `migrate`.

    Raises:
        SchemaError: The schema is older and `migrate` is off, or this version does not know it.
    """
    current = revision_of(connection, where)
    known = [step.revision for step in steps()]
    if current == known[-1]:
        return
    if current is not None and current not in known:
        raise unknown_schema(where, current)
    if current is not None and not migrate:
        raise SchemaError(
            f"The database {where} has an older schema.", hint="Back it up, then run: headrace db upgrade (or headrace api --migrate)"
        )
    command.upgrade(alembic_config(connection), "head")


def unknown_schema(where: str, revision: str) -> SchemaError:
    """Return the error for a database at a revision that this version does not have."""
    if _BEFORE_FIRST_RELEASE.fullmatch(revision):
        return SchemaError(
            f"The database {where} has the schema {revision} of a Headrace before 0.1.0, which cannot be upgraded.",
            hint="Start with a new database: move this one away, or name another one with --database-url.",
        )
    return SchemaError(
        f"The database {where} has the schema {revision}, which this version of Headrace does not know.",
        hint="Use the newer Headrace that made it, or name another database.",
    )


def revision_of(connection: Connection, where: str) -> str | None:
    """Return the database's revision, or None if it is empty.

    Raises:
        SchemaError: The database has tables, but not Headrace's.
    """
    names = inspect(connection).get_table_names()
    if REVISION_TABLE in names:
        revision: str | None = connection.execute(select(column("version_num")).select_from(table(REVISION_TABLE))).scalar_one_or_none()
        if revision is not None:
            return revision
    if set(names) - {REVISION_TABLE}:
        raise SchemaError(f"The database {where} has tables that are not Headrace's.", hint="Name an empty or new database.")
    return None
