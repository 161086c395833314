"""PostgreSQL that restarts or is unusable: no event is lost or stored twice, and each error has a clear message."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import Connection, text

from headrace.errors import ApiRefused, HeadraceError, ResourceError, SettingsError, StorageBusy, StorageFull
from headrace.store import open_store
from headrace.store.dialects import engines
from support.processes.ports import free_port
from support.processes.postgres import PASSWORD, QUOTED, Postgres, database_of, shared
from support.processes.store import TurnedClock, event, holder, opened, registration

ROUNDS = 150


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of our own, since we stop it."""
    made = Postgres(fsync=True)
    yield made
    made.close()


@pytest.fixture
def url(server: Postgres) -> str:
    name = f"test_{time.monotonic_ns()}"
    server.admin("CREATE DATABASE {}", name)
    return server.url(name)


def refused(url: str) -> HeadraceError:
    """Return the error of opening the database, which must not tell the password."""
    with pytest.raises(HeadraceError) as caught:
        open_store(url)
    told = f"{caught.value} {caught.value.hint}"
    assert PASSWORD not in told
    assert QUOTED not in told
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_restart_neither_loses_nor_duplicates_events(server: Postgres, url: str, mode: str) -> None:
    store = open_store(url, clock=TurnedClock())
    owner = holder(store, "first")
    half, over = Event(), Event()
    trouble: list[StorageBusy] = []

    def append() -> None:
        for n in range(ROUNDS):
            while True:
                try:
                    owner.append(*(event(f"{n}-{i}") for i in range(20)))
                    break
                except StorageBusy as error:
                    trouble.append(error)
            if n == 50:
                half.set()
        over.set()

    appender = Thread(target=append)
    appender.start()
    assert half.wait(60)
    server.restart(mode)
    assert over.wait(100)
    appender.join()
    rows = store.log.page(after=0).table
    assert rows.column("seq").to_pylist() == list(range(1, 20 * ROUNDS + 1))
    assert rows.column("id").to_pylist() == [f"{n}-{i}" for n in range(ROUNDS) for i in range(20)]
    assert all("does not answer" in str(error) for error in trouble)
    store.close()


def test_calls_report_busy_while_the_server_is_down_and_succeed_afterwards(server: Postgres, url: str) -> None:
    store = open_store(url, clock=TurnedClock())
    owner = holder(store, "first")
    assert owner.append(event("a")) == ["stored"]
    server.stop()
    with pytest.raises(StorageBusy, match="does not answer"):
        store.log.head()
    waiting = [store.log.append_later(owner.job_id, owner.batch(event(f"{n}"))) for n in range(50)]
    assert all(isinstance(future.exception(60), StorageBusy) for future in waiting)
    server.start()
    assert store.log.head().head == 1
    assert owner.append(event("a"), event("b")) == ["duplicate", "stored"]
    store.close()


def test_terminated_sessions_are_reopened_transparently(server: Postgres, url: str) -> None:
    store = open_store(url, clock=TurnedClock())
    owner = holder(store, "first")
    for n in range(3):
        assert store.log.head().head == n
        server.admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test%'")
        assert owner.append(event(f"{n}")) == ["stored"]
    assert store.log.page(after=0).table.num_rows == 3
    store.close()


def test_a_commit_with_a_lost_answer_is_retried_and_stored_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(url, clock=TurnedClock())
    owner = holder(store, "first")
    writing = store._database._writing

    def lost(raw: Any) -> None:
        monkeypatch.undo()
        raw.commit()
        raw.dbapi_connection.close()
        raw.commit()

    monkeypatch.setattr(writing.dialect, "do_commit", lost)
    with pytest.raises(StorageBusy):
        owner.append(event("a"))
    assert owner.append(event("a"), event("b")) == ["duplicate", "stored"]
    assert store.log.page(after=0).table.column("id").to_pylist() == ["a", "b"]
    store.close()


def test_commits_of_other_stores_are_received_again_after_a_restart(server: Postgres, url: str) -> None:
    first, second = open_store(url), open_store(url)
    heard = Event()
    second.observe(heard.set)
    first.jobs.register(registration())
    assert heard.wait(30)
    heard.clear()  # before the restart: it may have been told of it by the time that a busy machine returns from there
    server.restart()
    assert heard.wait(60), "it listens again, and may have missed something"
    heard.clear()
    first.jobs.register(registration())
    assert heard.wait(30)
    first.close()
    second.close()


def test_a_transaction_is_retried_after_a_serialization_failure(tmp_path: Path) -> None:
    tries: list[str] = []

    def work(connection: Connection) -> int:
        tries.append("once")
        if len(tries) < 3:
            code = {1: "40001", 2: "40P01"}[len(tries)]
            connection.execute(text(f"DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '{code}'; END $$"))
        return len(tries)

    with opened("postgresql", tmp_path) as store:
        assert store._database.write(work) == 3


def test_every_store_uses_the_clock_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day = 86_400_000_000
    here = time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: here() + 5 * day * 1000)
    store = open_store(database_of(tmp_path))
    assert abs(store.now() - here() // 1000) < day
    store.close()


def test_a_text_with_nul_is_refused_and_later_writes_succeed(tmp_path: Path) -> None:
    with opened("postgresql", tmp_path) as store:
        with pytest.raises(ApiRefused, match="cannot hold") as caught:
            store.jobs.register(registration(hostname="a\0b"))
        assert caught.value.status == 422
        assert holder(store, "first").append(event("a")) == ["stored"]


def test_a_wrong_password_is_reported(server: Postgres, url: str) -> None:
    error = refused(url.replace(QUOTED, "wrong"))
    assert "refuses the user or the password" in str(error)
    assert "wrong" not in str(error)


def test_an_unknown_user_is_reported(url: str) -> None:
    assert "refuses the user" in str(refused(url.replace("//headrace:", "//nobody:")))


def test_a_missing_database_is_reported(server: Postgres) -> None:
    error = refused(server.url("nowhere"))
    assert "is not there" in str(error)
    assert "createdb" in (error.hint or "")


def test_an_unreachable_server_is_reported() -> None:
    error = refused(f"postgresql://headrace:{QUOTED}@127.0.0.1:{free_port()}/headrace")
    assert isinstance(error, StorageBusy)
    assert "Connection refused" in str(error)
    assert "Is PostgreSQL running?" in (error.hint or "")


def test_a_read_only_database_is_reported(server: Postgres, url: str) -> None:
    open_store(url).close()
    server.admin("ALTER DATABASE {} SET default_transaction_read_only = on", url.rpartition("/")[2])
    with pytest.raises(StorageFull, match="read-only"):
        open_store(url)


def test_missing_privileges_are_reported(url: str) -> None:
    open_store(url).close()
    database = url.rpartition("/")[2]
    shared_with = url.replace("//headrace:", "//guest:")
    readers, writer = engines.engines(engines.parsed(url))
    with writer.begin() as connection:
        connection.execute(text(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'"))
    readers.dispose()
    writer.dispose()
    error = refused(shared_with)
    assert isinstance(error, ResourceError)
    assert database in str(error)
    assert "owner" in (error.hint or "")


def test_a_missing_driver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.dialects.engines.find_spec", lambda name: None)
    with pytest.raises(SettingsError) as caught:
        open_store("postgresql://localhost/headrace")
    assert "headrace[postgres]" in (caught.value.hint or "")


def test_commits_are_durable_even_if_the_server_disables_synchronous_commit(tmp_path: Path) -> None:
    url = database_of(tmp_path)
    shared().admin("ALTER DATABASE {} SET synchronous_commit = off", url.rpartition("/")[2])
    with opened("postgresql", tmp_path) as store:
        shown = store._database.write(lambda connection: connection.execute(text("SHOW synchronous_commit")).scalar_one())
    assert shown == "on"
