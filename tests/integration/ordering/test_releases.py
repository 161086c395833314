"""Releases and clock corrections in slices, each in its own transaction: a kill between two slices loses no event."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from headrace.store.db.database import Database
from headrace.store.ordering import releases
from headrace.store.ordering.scopes import scope_named
from headrace.store.ordering.sql_store import SqlOrdering
from support.ordering.events import START, Event, caused
from support.ordering.release_process import SLICE
from support.processes.postgres import database_of
from support.processes.store import database_url

FOLLOWERS = 95


SLICES = (("waiting", 4), ("blocked", 4), ("cycle", 4), ("turned", 4))
MORE = (("waiting", 0), ("blocked", 0), ("blocked", 9), ("cycle", 0), ("turned", 0))


@pytest.mark.parametrize(("state", "slices"), [*SLICES, *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE)])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.slow
def test_a_kill_between_two_slices_loses_no_event(
    kind: str, state: str, slices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "RELEASED_EVENTS", SLICE)
    url = database_url(kind, tmp_path) if kind == "sqlite" else database_of(tmp_path, empty=True)
    command = [sys.executable, "-m", "support.ordering.release_process", url, state, str(FOLLOWERS), str(slices)]
    assert subprocess.run(command, cwd=Path(__file__).parents[2]).returncode == -signal.SIGKILL
    database = Database(url)
    try:
        home = SqlOrdering(database, database.write(lambda connection: scope_named(connection, "killed", 3_600_000_000)), by_age=False)
        counts = home.counts()
        left = max(0, FOLLOWERS + (state == "waiting") - SLICE * (slices + 1))  # the leader is in the first slice
        if state != "turned":
            assert (counts.blocked if state == "blocked" else counts.waiting) == left
        assert home.next_due(START) == START
        handled: list[str] = []
        while claims := home.claim(7, START):
            handled += [claim.event.id for claim in claims]
            assert home.settle(claims, START) == len(claims)
        leader = ["leader"] if state == "waiting" else []
        assert handled == [*leader, *(f"f{n}" for n in reversed(range(FOLLOWERS)))], "in order of time, each once"
        assert home.next_due(START) is None
    finally:
        database.close()


def test_postgresql_updates_positions_without_a_join_over_the_scope(tmp_path: Path) -> None:
    database = Database(database_url("postgresql", tmp_path))
    plans: list[str] = []

    def explain(_connection: object, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if "UPDATE ordering_events" in statement and "mark" in statement:
            plans.append("\n".join(row[0] for row in cursor.connection.execute(f"EXPLAIN {statement}", parameters).fetchall()))

    try:
        home = SqlOrdering(database, database.write(lambda connection: scope_named(connection, "chain", 3_600_000_000)), by_age=False)
        home.offer([caused(Event(f"e{n}", f"e{n - 1}", n)) for n in range(1, 2_000)], START)
        event.listen(database._writer._engine, "before_cursor_execute", explain)
        home.offer([caused(Event("e0", None, 0))], START)
    finally:
        database.close()
    assert plans
    assert not [plan for plan in plans if "Join" in plan or "Nested Loop" in plan], plans
