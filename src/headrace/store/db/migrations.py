"""Moving a database from one schema to another, asked for by a person: up without a loss, down with what that loses said first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from alembic import command
from sqlalchemy import Connection

from headrace.errors import UsageError
from headrace.store.db.errors import named, told
from headrace.store.db.schema import Step, alembic_config, ensure_schema, revision_of, steps, unknown_schema
from headrace.store.dialects.engines import engines, parsed


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """Where a database is and where this version would have it; `revision` is None where the database is empty."""

    where: str
    revision: str | None
    newest: str
    steps: tuple[Step, ...]

    def check(self) -> None:
        """Raise `SchemaError` unless this version knows the database's schema."""
        if self.revision is not None and all(step.revision != self.revision for step in self.steps):
            raise unknown_schema(self.where, self.revision)


def status(database_url: str) -> SchemaStatus:
    """Return what schema the database has."""
    with _writing(database_url) as (connection, where):
        return _status(connection, where)


def upgrade(database_url: str) -> SchemaStatus:
    """Bring the database to this version's schema; return what it was before."""
    with _writing(database_url) as (connection, where):
        before = _status(connection, where)
        ensure_schema(connection, where, migrate=True)
    return before


def lost_by(before: SchemaStatus, revision: str) -> tuple[Step, ...]:
    """Return the steps that going back to `revision` takes back, the newest first.

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
    """Take the database back to `revision`, with what the later schemas hold; return what it was before.

    Raises:
        UsageError: The database is not past that revision.
        SchemaError: The older schema cannot hold what is there.
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
    """Give a connection that holds the writers' lock, so that two who migrate follow each other."""
    url = parsed(database_url)
    readers, writer = engines(url)
    try:
        with told(url), writer.begin() as connection:
            yield connection, named(url)
    finally:
        readers.dispose()
        writer.dispose()
