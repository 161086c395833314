"""Migrate a database on request: up without data loss, down after a list of the data that this deletes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from alembic import command
from sqlalchemy import Connection

from headrace.errors import UsageError
from headrace.store.db.errors import display_name, translate_errors
from headrace.store.db.schema import Step, alembic_config, ensure_schema, revision_of, steps, unknown_schema
from headrace.store.dialects.engines import engines, parsed


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The schema of a database and the one that this version needs. `revision` is None if the database is empty."""

    where: str
    revision: str | None
    newest: str
    steps: tuple[Step, ...]

    def check(self) -> None:
        """Raise `SchemaError` unless this version knows the database's schema."""
        if self.revision is not None and all(step.revision != self.revision for step in self.steps):
            raise unknown_schema(self.where, self.revision)


def status(database_url: str) -> SchemaStatus:
    """Return the schema status of the database."""
    with _writing(database_url) as (connection, where):
        return _status(connection, where)


def upgrade(database_url: str) -> SchemaStatus:
    """Upgrade the database to this version's schema. Return its previous status."""
    with _writing(database_url) as (connection, where):
        before = _status(connection, where)
        ensure_schema(connection, where, migrate=True)
    return before


def lost_by(before: SchemaStatus, revision: str) -> tuple[Step, ...]:
    """Return the steps that a downgrade to `revision` reverts, the newest first.

    Raises:
        UsageError: The database is not past that revision.
        SchemaError: This version does not know the database's schema.
    """
    names = [step.revision for step in before.steps]
    before.check()
    here = names.index(before.revision) if before.revision is not None else -1
    if revision not in names[: max(0, here)]:
        raise UsageError(
            f"The database {before.where} is at {before.revision or 'no schema'}, so it cannot go back to {revision}.",
            hint=f"Name one of: {', '.join(names[: max(0, here)]) or 'none; there is nothing to go back to'}.",
        )
    return before.steps[names.index(revision) + 1 : here + 1][::-1]


def downgrade(database_url: str, revision: str) -> SchemaStatus:
    """Downgrade the database to `revision`, deleting the data of later schemas. Return its previous status.

    Raises:
        UsageError: The database is not past that revision.
        SchemaError: The older schema cannot hold the existing data.
    """
    with _writing(database_url) as (connection, where):
        before = _status(connection, where)
        lost_by(before, revision)
        command.downgrade(alembic_config(connection), revision)
    return before


def _status(connection: Connection, where: str) -> SchemaStatus:
    known = steps()
    return SchemaStatus(where, revision_of(connection, where), known[-1].revision, known)


@contextmanager
def _writing(database_url: str) -> Iterator[tuple[Connection, str]]:
    """Yield a connection with the writers' lock, so that concurrent migrations run one after the other."""
    url = parsed(database_url)
    readers, writer = engines(url)
    try:
        with translate_errors(url), writer.begin() as connection:
            yield connection, display_name(url)
    finally:
        readers.dispose()
        writer.dispose()
