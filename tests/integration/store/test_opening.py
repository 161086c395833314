"""Opening a database of either kind: created if empty, migrated on request, refused if it is foreign or of an unknown version."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from headrace.errors import SchemaError
from headrace.store import open_store
from headrace.store.db import schema
from headrace.store.dialects import engines
from headrace.store.tables.base import metadata
from support.processes.postgres import database_of
from support.processes.revisions import add_revision
from support.processes.store import DATABASES, TurnedClock, event, holder


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    return f"sqlite:///{tmp_path / 'headrace.db'}" if request.param == "sqlite" else database_of(tmp_path, empty=True)


def statement(url: str, sql: str) -> None:
    engine = create_engine(engines.parsed(url))
    with engine.begin() as connection:
        connection.exec_driver_sql(sql)
    engine.dispose()


def test_migrations_create_exactly_the_tables_of_the_metadata(url: str) -> None:
    open_store(url).close()
    engine = create_engine(engines.parsed(url))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata) == []
    engine.dispose()


def test_a_reopened_database_keeps_its_events_and_its_instance_id(url: str) -> None:
    with closing(open_store(url, clock=TurnedClock())) as store:
        holder(store, "first").append(event("a"))
        instance = store.instance
    with closing(open_store(url, clock=TurnedClock())) as store:
        assert store.instance == instance
        assert store.log.page(after=0).table.column("id").to_pylist() == ["a"]


def test_a_schema_of_a_newer_version_is_refused(url: str) -> None:
    open_store(url).close()
    statement(url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaError, match="9999") as refused:
        open_store(url, migrate=True)
    assert "newer" in (refused.value.hint or "")


@pytest.mark.parametrize("revision", ["r0001", "r0032"])
def test_a_schema_from_before_the_first_release_is_refused(url: str, revision: str) -> None:
    open_store(url).close()
    statement(url, f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(SchemaError, match=f"{revision} of a Headrace before 0.1.0") as refused:
        open_store(url, migrate=True)
    assert "new database" in (refused.value.hint or "")


def test_an_older_schema_is_migrated_only_on_request(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(url).close()
    monkeypatch.setattr(schema, "MIGRATIONS", add_revision(tmp_path / "migrations"))
    with pytest.raises(SchemaError, match="older schema") as refused:
        open_store(url)
    assert "headrace api --migrate" in (refused.value.hint or "")
    store = open_store(url, migrate=True)
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM subjects").scalar_one() == 0
    store.close()
    open_store(url).close()


def test_a_database_with_foreign_tables_is_refused(url: str) -> None:
    statement(url, "CREATE TABLE theirs (a INTEGER)")
    with pytest.raises(SchemaError, match="not Headrace's"):
        open_store(url, migrate=True)
