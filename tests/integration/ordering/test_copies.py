"""A process builds its copy of a scope without the writers' lock. Other processes write meanwhile, and the copy includes their writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.store.db.database import Database
from headrace.store.dialects import statements
from headrace.store.ordering import replica
from headrace.store.ordering.replica import MAX_JOURNAL_STEPS, STEPS_IN_LOCK
from headrace.store.ordering.scopes import scope_named
from headrace.store.ordering.sql_store import SqlOrdering
from headrace.store.ordering.standalone.store import StandaloneOrderingStore
from headrace.store.tables.base import metadata
from headrace.store.tables.ordering import ORDERING_TABLES
from support.ordering.events import START, Event, caused
from support.ordering.transactions import Transactions
from support.processes.postgres import database_of
from support.processes.store import database_url

WAITING = 60
PAGE = 7
LOOKBACK = 3_600_000_000

pytestmark = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "ROWS_IN_LOCK", PAGE)
    monkeypatch.setattr(replica, "PAGE_ROWS", PAGE)


class Homes:
    """Homes of one scope, each as in a process of its own."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.url = database_url(kind, folder) if kind == "sqlite" else database_of(folder, empty=True)
        self._close: list[Any] = []

    def own(self) -> StandaloneOrderingStore:
        home = StandaloneOrderingStore(self.url, "s", LOOKBACK, by_age=False)
        self._close.append(home)
        return home

    def shared(self) -> SqlOrdering:
        database = Database(self.url)
        self._close.append(database)
        database.write(lambda connection: metadata.create_all(connection, tables=ORDERING_TABLES))
        return SqlOrdering(database, database.write(lambda connection: scope_named(connection, "s", LOOKBACK)), by_age=False)

    def close(self) -> None:
        for one in self._close:
            one.close()


@pytest.fixture
def homes(kind: str, tmp_path: Path) -> Iterator[Homes]:
    made = Homes(kind, tmp_path)
    try:
        yield made
    finally:
        made.close()


def offer(home: SqlOrdering, *ids: str, leader: str | None) -> None:
    home.offer([caused(Event(id, leader, 0))._replace(body="null") for id in ids], START)


def while_built(monkeypatch: pytest.MonkeyPatch, work: Any) -> list[int]:
    """Do `work` between the pages of each copy that is built; return a list that has the rows of each page."""
    pages: list[int] = []
    rows_of = statements.driver_rows

    def watched(*given: Any) -> Iterator[Any]:
        for page in rows_of(*given):
            work(len(pages))
            pages.append(len(page))
            yield page

    monkeypatch.setattr(replica, "driver_rows", watched)
    return pages


@pytest.mark.parametrize("which", ["own", "shared"])
def test_a_copy_includes_writes_during_its_construction(which: str, homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    other, home = homes.own(), getattr(homes, which)()
    offer(other, *(f"f{n:03}" for n in range(WAITING)), leader="leader")
    pages = while_built(monkeypatch, lambda page: offer(other, f"later{page:03}", leader="leader"))
    offer(home, "leader", leader=None)
    assert sum(pages) == WAITING
    assert max(pages) <= PAGE
    handled = []
    while claims := home.claim(10, START):
        handled += [claim.event.id for claim in claims]
        assert home.settle(claims, START) == len(claims)
    assert handled == ["leader", *(f"f{n:03}" for n in range(WAITING)), *(f"later{page:03}" for page in range(len(pages)))]


def test_a_transaction_reads_a_bounded_number_of_waiting_events(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    other = homes.own()
    offer(other, *(f"f{n}" for n in range(WAITING)), leader="leader")
    home = homes.own()
    counted = Transactions(monkeypatch)
    offer(home, "one", leader="none")
    for n in range(STEPS_IN_LOCK + 1):
        offer(other, f"other{n}", leader="leader")
    offer(home, "two", leader="none")
    assert max(counted.read) <= STEPS_IN_LOCK, counted.read
    assert home.counts().waiting == WAITING + STEPS_IN_LOCK + 3


@pytest.mark.parametrize("which", ["own", "shared"])
def test_a_copy_that_cannot_catch_up_is_built_in_the_transaction(which: str, homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others forget the journal between each two pages."""
    other, home = homes.own(), getattr(homes, which)()
    offer(other, *(f"f{n}" for n in range(WAITING)), leader="leader")
    monkeypatch.setattr(replica, "MAX_JOURNAL_STEPS", 1)

    def hurry(page: int) -> None:
        for n in range(2):
            offer(other, f"later {page} {n}", leader="leader")

    pages = while_built(monkeypatch, hurry)
    offer(home, "leader", leader=None)
    assert len(pages) >= replica.BUILDS * (WAITING // PAGE)
    claims = home.claim(1_000, START)
    assert len(claims) == 1 + WAITING + 2 * len(pages)


def test_a_copy_is_rebuilt_after_its_journal_steps_were_pruned(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    other, home = homes.own(), homes.own()
    offer(home, "one", leader="none")
    monkeypatch.setattr(replica, "MAX_JOURNAL_STEPS", 4)
    for n in range(MAX_JOURNAL_STEPS // 8):
        offer(other, f"f{n}", leader="leader")
    offer(home, "leader", leader=None)
    assert len(home.claim(100, START)) == 1 + MAX_JOURNAL_STEPS // 8
