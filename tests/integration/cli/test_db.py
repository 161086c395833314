"""`headrace db` on both databases."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import SchemaError, UsageError
from headrace.store import open_store
from headrace.store.db import schema
from headrace.store.dialects.engines import parsed
from support.processes.postgres import PASSWORD, QUOTED, database_of
from support.processes.revisions import FIRST, LOSES, SECOND, add_revision
from support.processes.store import DATABASES, TurnedClock, event, holder


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/headrace.db" if request.param == "sqlite" else database_of(tmp_path, empty=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def db(home: Path, url: str, *arguments: str) -> Result:
    given = {name: "" for name in os.environ if name.startswith("HEADRACE_")}
    result = CliRunner().invoke(app, ["db", *arguments, "--home", str(home), "--database-url", url], env=given)
    assert PASSWORD not in result.output
    assert QUOTED not in result.output
    return result


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes this process a later version of Headrace, whose schema is the second revision."""
    return lambda: monkeypatch.setattr(schema, "MIGRATIONS", add_revision(tmp_path / "later"))


def set_revision(url: str, revision: str) -> None:
    engine = create_engine(parsed(url))
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
    engine.dispose()


def test_an_empty_database_is_created_and_shown(home: Path, url: str) -> None:
    before = db(home, url, "status")
    assert before.exit_code == 1
    assert "none yet" in before.output
    assert "headrace db upgrade" in before.output
    assert f"empty → {FIRST}" in db(home, url, "upgrade").output
    assert "already" in db(home, url, "upgrade").output
    after = db(home, url, "status")
    assert after.exit_code == 0
    assert "✓ 0001  The schema of the first release" in after.output


def test_an_older_database_is_shown_and_upgraded(home: Path, url: str, later: Callable[[], None]) -> None:
    db(home, url, "upgrade")
    later()
    before = db(home, url, "status")
    assert before.exit_code == 1
    assert f"schema {FIRST}, this version's is {SECOND}" in before.output
    assert f"· {SECOND}  Subjects of events in a table of their own, and owners of jobs" in before.output
    assert "headrace db upgrade" in before.output
    assert f"{FIRST} → {SECOND}" in db(home, url, "upgrade").output
    assert db(home, url, "status").exit_code == 0


def test_a_downgrade_lists_the_lost_data_and_needs_confirmation(home: Path, url: str, later: Callable[[], None]) -> None:
    store = open_store(url, clock=TurnedClock())
    holder(store, "first").append(event("a"))
    store.close()
    later()
    db(home, url, "upgrade")
    asked = db(home, url, "downgrade", FIRST)
    assert isinstance(asked.exception, UsageError)
    assert f"{SECOND} is taken back, and with it is lost: {LOSES}." in asked.output
    assert "--yes" in (asked.exception.hint or "")
    assert db(home, url, "status").exit_code == 0, "nothing was done"
    assert f"{SECOND} → {FIRST}" in db(home, url, "downgrade", FIRST, "--yes").output
    with pytest.raises(SchemaError, match="older schema") as refused:
        open_store(url)
    assert "headrace db upgrade" in (refused.value.hint or "")
    assert f"{FIRST} → {SECOND}" in db(home, url, "upgrade").output
    store = open_store(url, clock=TurnedClock())
    assert store.log.page(after=0).table.column("id").to_pylist() == ["a"]
    store.close()


def test_a_downgrade_to_a_schema_that_is_not_older_is_refused(home: Path, url: str, later: Callable[[], None]) -> None:
    empty = db(home, url, "downgrade", FIRST)
    assert isinstance(empty.exception, UsageError)
    assert "no schema" in str(empty.exception)
    db(home, url, "upgrade")
    refused = db(home, url, "downgrade", FIRST, "--yes")
    assert isinstance(refused.exception, UsageError)
    assert "nothing to go back to" in (refused.exception.hint or "")
    later()
    db(home, url, "upgrade")
    for revision in (SECOND, "9998"):
        refused = db(home, url, "downgrade", revision, "--yes")
        assert isinstance(refused.exception, UsageError)
        assert f"Name one of: {FIRST}." in (refused.exception.hint or "")


@pytest.mark.parametrize(
    ("revision", "hint"),
    [("9999", "Use the newer Headrace that made it"), ("r0032", "Start with a new database")],
    ids=["newer", "removed"],
)
@pytest.mark.parametrize("command", [["status"], ["upgrade"], ["downgrade", FIRST, "--yes"]], ids=lambda command: command[0])
def test_an_unknown_schema_is_refused_with_a_hint(home: Path, url: str, command: list[str], revision: str, hint: str) -> None:
    db(home, url, "upgrade")
    set_revision(url, revision)
    refused = db(home, url, *command)
    assert isinstance(refused.exception, SchemaError)
    assert revision in str(refused.exception)
    assert hint in (refused.exception.hint or "")
