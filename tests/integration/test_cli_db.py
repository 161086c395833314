"""`headrace db`, as a person uses it, on both databases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import SchemaError, UsageError
from headrace.store import open_store
from headrace.store.db.schema import steps
from support.processes.postgres import PASSWORD, QUOTED, database_of
from support.processes.store import DATABASES, TurnedClock, event, holder

HEAD = steps()[-1].revision


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


def test_an_empty_database_is_made_and_shown(home: Path, url: str) -> None:
    before = db(home, url, "status")
    assert before.exit_code == 1
    assert "none yet" in before.output
    assert "headrace db upgrade" in before.output
    assert f"empty → {HEAD}" in db(home, url, "upgrade").output
    assert "already" in db(home, url, "upgrade").output
    after = db(home, url, "status")
    assert after.exit_code == 0
    assert "✓ r0005  Deferred runs" in after.output


def test_going_back_says_what_is_lost_and_needs_a_yes(home: Path, url: str) -> None:
    store = open_store(url, clock=TurnedClock())
    holder(store, "first").append(event("a"))
    store.close()
    asked = db(home, url, "downgrade", "r0003")
    assert isinstance(asked.exception, UsageError)
    assert "every task run" in asked.output
    assert "every connection and variable" in asked.output
    assert "--yes" in (asked.exception.hint or "")
    assert db(home, url, "status").exit_code == 0
    assert f"{HEAD} → r0003" in db(home, url, "downgrade", "r0003", "--yes").output
    with pytest.raises(SchemaError, match="older schema") as refused:
        open_store(url)
    assert "headrace db upgrade" in (refused.value.hint or "")
    assert f"r0003 → {HEAD}" in db(home, url, "upgrade").output
    store = open_store(url, clock=TurnedClock())
    assert store.log.page(after=0).table.column("id").to_pylist() == ["a"]
    store.close()


def test_a_schema_that_is_not_behind_is_refused(home: Path, url: str) -> None:
    empty = db(home, url, "downgrade", "r0001")
    assert isinstance(empty.exception, UsageError)
    assert "no schema" in str(empty.exception)
    db(home, url, "upgrade")
    for revision in (HEAD, "r9999"):
        refused = db(home, url, "downgrade", revision, "--yes")
        assert isinstance(refused.exception, UsageError)
        assert "r0001, r0002" in (refused.exception.hint or "")
