"""Bounds of one answer or one transaction: bytes of pages, rows of deletions, and the size of the write-ahead log."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, insert, select
from sqlalchemy import event as on

from headrace.core.ordering.delivery import OrderedEvent
from headrace.store import Store
from headrace.store.dead_letters.counts import dead_letter_counts
from headrace.store.dialects import sqlite
from headrace.store.log import pages
from headrace.store.ordering import releases
from headrace.store.ordering.scopes import MAX_SLICE_ROWS, abandoned_scopes, give_up_scope, scope_named
from headrace.store.retention.pruner import Pruner
from headrace.store.tables.custody import dead_letters
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.webhooks import webhooks
from headrace.wire.custody.dead_letters import DeadLetterSelection
from support.processes.store import TurnedClock, event, holder, letter, opened

DAY = 86_400
WEBHOOK = {"url": "https://example", "types": "[]", "secret": "", "policy": "hold", "max_attempts": 8, "timeout": 1, "created": 0}


def test_pages_and_lookups_by_seq_are_bounded_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAYLOAD_BYTES", 100_000)
    owner = holder(store, "first")
    large = '"' + "x" * 9_998 + '"'
    owner.append(*(event(f"{n}", payload=large) for n in range(100)))
    owner.append(*(event(f"s{n}") for n in range(2_000)))
    page = store.log.page(after=0).table
    assert page.num_rows <= 20, "16 rows are taken before it is known how large they are"
    assert store.log.page(after=100).table.num_rows == 2_000
    picked = store.log.get_by_seq(range(1, 200))
    assert picked.table.column("seq").to_pylist() == list(range(1, page.num_rows + 1))
    assert picked.to == page.num_rows
    rest = store.log.get_by_seq(range(90, 1_000))
    assert (rest.table.num_rows, rest.to) == (910, None) or rest.to is not None


def waiting_rows(store: Store, name: str, count: int, state: str = "ready") -> None:
    """Make a webhook with so many events that it has yet to be told of."""

    def work(connection: Any) -> int:
        scope = scope_named(connection, f"webhook:{name}", 1)
        counts = {"delivered": 0, "failed": 0, "dead": 0, "changed": 0}
        connection.execute(insert(webhooks).values(name=name, state="paused", scope_id=scope, **WEBHOOK, **counts))
        shared = {"scope_id": scope, "source": "tests", "occurred": 0, "since": 0, "late": False, "state": state, "due": 0, "attempts": 0}
        rows = [{"seq": n, "id": f"{n}", "key": OrderedEvent.of("tests", f"{n}", None, 0).key, **shared} for n in range(1, count + 1)]
        connection.execute(insert(ordering_events), rows)
        return 0

    store.prune(work)


def count(store: Store, table: Any) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def test_a_webhook_is_removed_in_slices(store: Store) -> None:
    rows = 2 * MAX_SLICE_ROWS + 10
    waiting_rows(store, "large", rows)
    waiting_rows(store, "other", 5)
    deleted: list[int] = []

    @on.listens_for(store._database._writer._engine, "after_cursor_execute")
    def note(_connection: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("DELETE FROM ordering_events"):
            deleted.append(cursor.rowcount)

    assert store.webhooks.remove("large")
    assert not store.webhooks.remove("large")
    assert deleted == [MAX_SLICE_ROWS, MAX_SLICE_ROWS, 10]
    assert (count(store, ordering_events), count(store, ordering_scopes), count(store, webhooks)) == (5, 1, 1)


def test_dead_events_of_a_webhook_are_redriven_in_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RELEASED_EVENTS", 10)
    waiting_rows(store, "large", 35, state="dead")
    waiting_rows(store, "other", 5, state="dead")
    redriven: list[int] = []
    commits: list[int] = []
    engine = store._database._writer._engine

    @on.listens_for(engine, "after_cursor_execute")
    def note(_connection: object, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("UPDATE ordering_events"):
            redriven.append(cursor.rowcount)

    @on.listens_for(engine, "commit")
    def note_commit(_connection: object) -> None:
        commits.append(len(redriven))

    assert store.webhooks.redrive("large") == 35
    assert (redriven, commits) == ([10, 10, 10, 5], [1, 2, 3, 4])
    assert store.webhooks.redrive("large") == 0
    with store.reading() as connection:
        states = select(ordering_events.c.state, func.count()).group_by(ordering_events.c.state)
        assert {row[0]: row[1] for row in connection.execute(states)} == {"ready": 35, "dead": 5}


def test_retention_deletes_remaining_rows_of_a_removed_webhook(store: Store) -> None:
    waiting_rows(store, "large", 30)

    def give_up(connection: Connection) -> int:
        give_up_scope(connection, 1)
        return 1

    store.prune(give_up)
    waiting_rows(store, "large2", 3)
    assert store.prune(lambda connection: abandoned_scopes(connection, 0, 20)) == 20
    Pruner(store, 30).prune()
    assert (count(store, ordering_events), count(store, ordering_scopes)) == (3, 1)


def test_a_pruned_dead_letter_is_still_counted(store: Store, clock: TurnedClock) -> None:
    owner = holder(store, "first")
    owner.append(dead_letters=[letter(name, raw="x" * 1_000) for name in ("a", "b", "c")])
    store.dead_letters.discard(DeadLetterSelection(ids=["a", "b"]))
    clock.turn(31 * DAY)
    Pruner(store, 30).prune()
    assert count(store, dead_letters) == 1
    with store.reading() as connection:
        assert dead_letter_counts(connection) == {"open": 1, "redriven": 0, "discarded": 2}


def test_the_write_ahead_log_is_bounded_with_overlapping_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "MAX_WAL_BYTES", 4 * 1024 * 1024)
    monkeypatch.setattr(sqlite, "MAX_IDLE_WAL_BYTES", 1024 * 1024)
    largest = 0
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "first")
        over = threading.Event()
        turn = threading.Barrier(2)

        def read() -> None:
            """Read by two turns, so that at each moment one of them has a snapshot."""
            while not over.is_set():
                with store.reading() as connection:
                    connection.execute(select(func.max(dead_letters.c.id))).all()
                    try:
                        turn.wait(0.05)
                    except threading.BrokenBarrierError:
                        turn.reset()

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for n in range(60):
                owner.append(*(event(f"{n}-{m}", payload='"' + "x" * 5_000 + '"') for m in range(100)))
                largest = max(largest, (tmp_path / "headrace.db-wal").stat().st_size)
        finally:
            over.set()
            for reader in readers:
                reader.join()
    assert largest < 8 * 1024 * 1024, "30 MB were written"
