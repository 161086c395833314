"""Upgrade and downgrade on data, with a second revision that only these tests have; and the schema that the revisions create."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, delete, inspect, select

from headrace.errors import SchemaError
from headrace.store import open_store
from headrace.store.db import migrations, schema
from headrace.store.db.migrations import downgrade, status, upgrade
from headrace.store.dialects.engines import engines, parsed
from headrace.store.tables.base import metadata
from headrace.store.tables.control import jobs, triggers
from headrace.store.tables.custody import lanes
from headrace.store.tables.log import events
from support.processes.postgres import database_of, programs
from support.processes.revisions import FIRST, LOSES, SECOND, add_revision
from support.processes.store import DATABASES, TurnedClock, database_url, event, holder, letter, registration
from support.sources.custody import answered, books, keep, positions, receipt, record, spill

UPGRADE = """
import sys
from pathlib import Path
from headrace.store.db import migrations, schema
schema.MIGRATIONS = Path(sys.argv[2])
print(migrations.upgrade(sys.argv[1]).revision)
"""


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes this process a later version of Headrace, whose schema is the second revision."""
    return lambda: monkeypatch.setattr(schema, "MIGRATIONS", add_revision(tmp_path / "later"))


@contextmanager
def writing(url: str) -> Iterator[Connection]:
    """Give a transaction that is not the store's. It may be idle for 10 s, also while the machine is loaded: do not compute in it."""
    readers, writer = engines(parsed(url))
    try:
        with writer.begin() as connection:
            yield connection
    finally:
        readers.dispose()
        writer.dispose()


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """Give a connection that reads, and may be idle for minutes."""
    readers, writer = engines(parsed(url))
    try:
        with readers.connect() as connection:
            yield connection
    finally:
        readers.dispose()
        writer.dispose()


def rows(url: str) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table, as the database has them."""
    with reading(url) as connection:
        metadata = MetaData()
        metadata.reflect(connection)
        tables = metadata.sorted_tables
        return {one.name: [dict(row) for row in connection.execute(select(one).order_by(*one.primary_key)).mappings()] for one in tables}


def filled(url: str) -> dict[str, list[dict[str, Any]]]:
    """Fill the database with what a triggerer leaves there: events, a dead letter, a backlog, books; return all rows."""
    with closing(open_store(url, clock=TurnedClock())) as store:
        owner = holder(store, "first", "second")
        owner.append(event("a", subject="N14228"), event("b"), dead_letters=[letter("x", lane="a.jsonl", position=3)])
        keep(owner, spill(4))
        record(owner, receipt(None, 1, 2, answered(1, fired=1), owed=(1, 2)))
    return rows(url)


def described(connection: Connection) -> dict[str, list[Any]]:
    """Return what the database says of each table, whatever the order in which its columns were added."""
    found = inspect(connection)
    columns, keys, options = found.get_multi_columns(), found.get_multi_pk_constraint(), found.get_multi_table_options()
    unique, indexes = found.get_multi_unique_constraints(), found.get_multi_indexes()
    return {
        table[1]: [
            {column["name"]: (str(column["type"]), column["nullable"], column["default"]) for column in columns[table]},
            keys[table],
            options.get(table),
            {one["name"]: one["column_names"] for one in unique[table]},
            {one["name"]: (one["column_names"], one["unique"], str(_condition(one))) for one in indexes[table]},
            _without_ids_again(connection, table[1]),
        ]
        for table in columns
        if table[1] != schema.REVISION_TABLE
    }


def _condition(index: Any) -> Any:
    return next((value for name, value in index.get("dialect_options", {}).items() if name.endswith("_where")), None)


def _without_ids_again(connection: Connection, table: str) -> bool | None:
    """Return whether the SQLite table is one with AUTOINCREMENT, which no inspector says."""
    if connection.dialect.name != "sqlite":
        return None
    text = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).scalar_one()
    return "AUTOINCREMENT" in text


@pytest.mark.parametrize("kind", DATABASES)
def test_revisions_create_exactly_the_tables_of_the_code(kind: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    url = f"sqlite:///{empty}/headrace.db" if kind == "sqlite" else database_of(empty, empty=True)
    with writing(url) as connection:
        metadata.create_all(connection)
    with reading(url) as connection:
        expected = described(connection)
    with reading(database_url(kind, tmp_path)) as connection:
        assert described(connection) == expected
    assert expected.keys() == metadata.tables.keys()


@pytest.mark.parametrize("kind", DATABASES)
def test_upgrade_keeps_every_row(kind: str, tmp_path: Path, later: Callable[[], None]) -> None:
    url = database_url(kind, tmp_path)
    before = filled(url)
    later()
    assert upgrade(url).revision == FIRST
    after = rows(url)
    assert after.pop("subjects") == [{"seq": 1, "subject": "N14228"}]
    assert after.pop(schema.REVISION_TABLE) == [{"version_num": SECOND}]
    assert before.pop(schema.REVISION_TABLE) == [{"version_num": FIRST}]
    assert after == before | {
        "events": [row | {"subject": None} for row in before["events"]],
        "jobs": [row | {"owner": "nobody"} for row in before["jobs"]],
    }
    with closing(open_store(url, clock=TurnedClock())) as store:
        owner = holder(store, "first", "second", replaces=before["jobs"][0]["registration_id"], hostname="here")
        assert owner.append(event("b"), event("c")) == ["duplicate", "stored"]
        assert positions(owner) == [4]
        assert books(store).clean


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.slow
def test_downgrade_restores_the_rows(kind: str, tmp_path: Path, later: Callable[[], None]) -> None:
    url = database_url(kind, tmp_path)
    with reading(url) as connection:
        first = described(connection)
    before = filled(url)
    later()
    upgrade(url)
    assert [(step.revision, step.loses) for step in migrations.lost_by(status(url), FIRST)] == [(SECOND, LOSES)]
    assert downgrade(url, FIRST).revision == SECOND
    assert rows(url) == before
    with reading(url) as connection:
        assert described(connection) == first


@pytest.mark.parametrize("kind", DATABASES)
def test_a_refused_downgrade_changes_nothing(kind: str, tmp_path: Path, later: Callable[[], None]) -> None:
    url = database_url(kind, tmp_path)
    filled(url)
    later()
    upgrade(url)
    with writing(url) as connection:
        connection.exec_driver_sql("UPDATE jobs SET hostname = NULL")
    before = rows(url)
    with pytest.raises(SchemaError, match="1 jobs have no host"):
        downgrade(url, FIRST)
    assert rows(url) == before


@pytest.mark.parametrize("kind", DATABASES)
def test_ids_are_not_reused_after_an_upgrade(kind: str, tmp_path: Path, later: Callable[[], None]) -> None:
    url = database_url(kind, tmp_path)
    filled(url)
    later()
    upgrade(url)
    with closing(open_store(url, clock=TurnedClock())) as store:
        store.prune(lambda connection: connection.execute(delete(jobs)).rowcount)
        assert store.jobs.register(registration()).id == 2


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.slow
def test_an_upgrade_killed_midway_changes_nothing(kind: str, tmp_path: Path, later: Callable[[], None]) -> None:
    url = database_url(kind, tmp_path)
    before = filled(url)
    killed = add_revision(tmp_path / "killed", midway="os.kill(os.getpid(), signal.SIGKILL)")
    with run_upgrade(url, killed) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert rows(url) == before
    later()
    assert status(url).revision == FIRST
    with pytest.raises(SchemaError, match="older schema"):
        open_store(url)
    upgrade(url)
    assert rows(url)["subjects"] == [{"seq": 1, "subject": "N14228"}]


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.slow
def test_two_concurrent_upgrades_run_the_revision_once(kind: str, tmp_path: Path) -> None:
    url = database_url(kind, tmp_path)
    filled(url)
    folder = add_revision(tmp_path / "later")
    both = [run_upgrade(url, folder) for _ in range(2)]
    assert sorted(one.communicate()[0].strip() for one in both) == [FIRST, SECOND]
    assert rows(url)["subjects"] == [{"seq": 1, "subject": "N14228"}]


def run_upgrade(url: str, folder: Path) -> subprocess.Popen[str]:
    """Start a process that upgrades the database to the newest revision in `folder`; it prints the revision it found."""
    arguments = [sys.executable, "-c", UPGRADE, url, str(folder)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.parametrize("kind", DATABASES)
def test_ids_are_not_reused_in_a_restored_backup(kind: str, tmp_path: Path) -> None:
    url = database_url(kind, tmp_path)
    filled(url)
    gone = {table.name: table for table in (jobs, triggers, lanes)}
    highest = {name: max(row["id"] for row in found) for name, found in rows(url).items() if name in gone}
    with writing(url) as connection:
        for table in (*gone.values(), events):
            connection.execute(delete(table))
    with closing(open_store(dumped(kind, url, tmp_path / "copy"), clock=TurnedClock())) as store:
        owner = holder(store, "third")
        assert owner.job_id > highest["jobs"]
        assert min(owner.epochs) > highest["triggers"]


def dumped(kind: str, url: str, copy: Path) -> str:
    """Copy the database as the guides say, to the one that stands for the folder `copy`; return its URL."""
    copy.mkdir()
    if kind == "sqlite":
        target_url = f"sqlite:///{copy}/headrace.db"
        with closing(sqlite3.connect(parsed(url).database or "")) as source, closing(sqlite3.connect(copy / "headrace.db")) as target:
            source.backup(target)
        return target_url
    target_url = database_of(copy, empty=True)
    dump = copy / "dump"
    subprocess.run([programs() / "pg_dump", "--format=custom", f"--file={dump}", url], check=True)
    subprocess.run([programs() / "pg_restore", "--no-owner", f"--dbname={target_url}", dump], check=True)
    return target_url
