from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Connection, Engine, create_engine, event

from headrace.errors import StorageBusy
from headrace.store.db.writer import Writer


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path / 'writer.db'}")
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE kept (n INTEGER PRIMARY KEY)")
    yield made
    made.dispose()


@pytest.fixture
def commits(engine: Engine) -> list[int]:
    seen: list[int] = []
    event.listen(engine, "commit", lambda connection: seen.append(1))
    return seen


@pytest.fixture
def writer(engine: Engine, commits: list[int]) -> Iterator[Writer]:
    made = Writer(engine)
    yield made
    made.close()


class Held:
    """Holds the writer inside a work until `release`, so that what is submitted meanwhile waits together."""

    def __init__(self, writer: Writer) -> None:
        entered, self.release = Event(), Event()

        def work(connection: Connection) -> None:
            entered.set()
            assert self.release.wait(30)

        self.future = writer.submit(work)
        assert entered.wait(30)


def insert(writer: Writer, n: int) -> Future[int]:
    def work(connection: Connection) -> int:
        connection.exec_driver_sql("INSERT INTO kept VALUES (?)", (n,))
        return n

    return writer.submit(work)


def stored(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT n FROM kept ORDER BY n").scalars())


def test_queued_writes_share_one_commit(writer: Writer, engine: Engine, commits: list[int]) -> None:
    held = Held(writer)
    futures = [insert(writer, n) for n in range(10)]
    held.release.set()
    assert [future.result() for future in futures] == list(range(10))
    assert stored(engine) == list(range(10))
    assert len(commits) == 2


def test_a_failed_write_is_rolled_back_without_affecting_other_writes(writer: Writer, engine: Engine) -> None:
    def fails(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO kept VALUES (99)")
        raise KeyError("no")

    held = Held(writer)
    before, failing, after = insert(writer, 1), writer.submit(fails), insert(writer, 2)
    held.release.set()
    assert (before.result(), after.result()) == (1, 2)
    with pytest.raises(KeyError):
        failing.result()
    assert stored(engine) == [1, 2]


def test_items_of_one_collector_are_passed_in_one_batch(writer: Writer) -> None:
    def collector(connection: Connection, items: Sequence[int]) -> list[tuple[int, int]]:
        return [(item, len(items)) for item in items]

    held = Held(writer)
    first = [writer.collect(collector, n) for n in range(3)]
    between = insert(writer, 1)
    last = writer.collect(collector, 3)
    held.release.set()
    assert [future.result() for future in first] == [(0, 3), (1, 3), (2, 3)]
    assert between.result() == 1
    assert last.result() == (3, 1)


def test_a_cancelled_write_is_skipped_and_the_writer_continues(writer: Writer, engine: Engine) -> None:
    held = Held(writer)
    given_up = insert(writer, 1)
    assert given_up.cancel()
    held.release.set()
    assert insert(writer, 2).result() == 2
    assert stored(engine) == [2]
    alone = Held(writer)
    only = insert(writer, 3)
    assert only.cancel()
    alone.release.set()
    assert insert(writer, 4).result() == 4


def test_closing_finishes_queued_writes_and_rejects_new_writes(writer: Writer, engine: Engine) -> None:
    futures = [insert(writer, n) for n in range(300)]
    writer.close()
    writer.close()
    assert wait(futures, timeout=0).not_done == set()
    assert stored(engine) == list(range(300))
    with pytest.raises(StorageBusy):
        insert(writer, 300)


def test_all_queued_writes_fail_together_while_the_database_is_unavailable(writer: Writer) -> None:
    tries: list[int] = []

    def away(connection: Connection) -> None:
        tries.append(1)
        raise StorageBusy("The database does not answer.")

    held = Held(writer)
    futures = [writer.submit(away) for _ in range(50)]
    held.release.set()
    assert all(isinstance(future.exception(30), StorageBusy) for future in futures)
    assert len(tries) == 1
