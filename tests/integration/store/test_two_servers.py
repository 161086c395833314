"""Two stores on one PostgreSQL database, as of two API servers, behave like one store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import Barrier, Event

import psycopg
import pytest
from sqlalchemy import Connection, func, select, text

from headrace.errors import StorageBusy
from headrace.store import Store, open_store
from headrace.store.dialects import postgresql
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, lanes, subscriber_sets
from headrace.store.tables.log import events
from headrace.wire.control.triggers import LoadTriggers
from headrace.wire.custody.events import EventBatch
from headrace.wire.task_runs import StartRun
from support.processes.postgres import database_of
from support.processes.store import Holder, declaration, event, holder, opened, registration
from support.sources.custody import answered, books, keep, receipt, record, spill

ROUNDS = 40


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    with opened("postgresql", tmp_path) as first, opened("postgresql", tmp_path) as second:
        yield first, second


def through(store: Store, owner: Holder) -> Holder:
    """The same job, speaking to another api."""
    return Holder(store, owner.job_id, owner.epochs)


@pytest.mark.parametrize("seed", [1, 2])
def test_seq_is_commit_order_and_readers_of_the_log_skip_no_event(stores: tuple[Store, Store], seed: int) -> None:
    owner = holder(stores[0], "first", "second")
    ended = Event()

    def append(n: int) -> None:
        chance, mine = Random(f"{seed}-{n}"), through(stores[n % 2], owner)
        for k in range(ROUNDS):
            ids = [f"{n}-{k}-{i}" for i in range(chance.randint(1, 12))]
            statuses = mine.append(*(event(id, 1, 2) for id in ids), event(f"shared-{chance.randint(0, 9)}"))
            assert statuses[:-1] == ["stored"] * len(ids)

    def follow(store: Store) -> list[int]:
        seen: list[int] = []
        while True:
            over = ended.is_set()
            page = store.log.page(after=seen[-1] if seen else 0, limit=7)
            seen += page.table.column("seq").to_pylist()
            if over and not page.table.num_rows:
                return seen

    with ThreadPoolExecutor(8) as pool:
        followers = [pool.submit(follow, store) for store in stores]
        writers = [pool.submit(append, n) for n in range(4)]
        failures = [writer.exception() for writer in writers]
        ended.set()
        seen = [follower.result() for follower in followers]
    assert failures == [None] * 4
    head = stores[0].log.head().head
    assert seen == [list(range(1, head + 1))] * 2
    with stores[1].reading() as connection:
        assert dict(connection.execute(select(triggers.c.id, triggers.c.fired)).all())[2] == head - 10


def test_ids_and_counters_of_two_api_servers_are_consistent(stores: tuple[Store, Store]) -> None:
    owner = holder(stores[0], "first", "second")

    def work(n: int) -> None:
        mine = through(stores[n % 2], owner)
        for k in range(ROUNDS // 2):
            lane = f"{n}-{k % 3}"
            assert keep(mine, spill(k, 1, 2, lane=lane)) == ["stored"]
            if k < 3:
                record(mine, receipt(None, k, 1, answered(1, spilled=1), answered(2, spilled=1), lane=lane))
            else:
                record(mine, receipt(k - 3, k, 1, answered(1, spilled=1), answered(2, spilled=1), lane=lane))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [None] * 4
    total = 4 * (ROUNDS // 2)
    audit = books(stores[0])
    assert audit.clean
    assert [(one.read, one.pending) for one in audit.streams[0].triggers] == [(total, total)] * 2
    with stores[1].reading() as connection:
        numbers = connection.execute(select(backlog.c.number).order_by(backlog.c.number)).scalars().all()
        assert numbers == list(range(1, 2 * total + 1))
        assert connection.execute(select(func.count()).select_from(lanes)).scalar_one() == 12
        assert connection.execute(select(func.count()).select_from(subscriber_sets)).scalar_one() == 1


def test_a_receipt_sent_through_both_api_servers_is_counted_once(stores: tuple[Store, Store]) -> None:
    owner = holder(stores[0], "first")
    both = Barrier(2)

    def send(store: Store) -> None:
        for k in range(ROUNDS):
            both.wait(30)
            sent = [receipt(k - 1 if k else None, k, 1, answered(1, fired=1), owed=(1,))]
            store.log.append(owner.job_id, EventBatch(epochs=owner.epochs, receipts=sent))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(send, stores)) == [None, None]
    audit = books(stores[0])
    assert audit.clean
    assert audit.streams[0].triggers[0].fired == ROUNDS


def test_a_trigger_is_leased_to_one_job_through_two_api_servers(stores: tuple[Store, Store]) -> None:
    owner = holder(stores[0])
    alone = declaration(*(f"t{n}" for n in range(30)), stream=None)
    stores[0].projects.declare(owner.job_id, "flights", alone)
    asking = [(stores[n % 2], stores[n % 2].jobs.register(registration()).id) for n in range(6)]
    together = Barrier(len(asking))

    def load(store: Store, job_id: int) -> list[tuple[int, int]]:
        together.wait(30)
        answer = store.triggers.load(job_id, LoadTriggers(capacity=10))
        return [(lease.trigger_id, lease.epoch) for lease in answer.leases]

    with ThreadPoolExecutor(len(asking)) as pool:
        claimed = [claim for leases in pool.map(load, *zip(*asking, strict=True)) for claim in leases]
    ids = [trigger_id for trigger_id, _ in claimed]
    assert len(ids) == len(set(ids)) > 0
    assert {epoch for _, epoch in claimed} == {1}


def test_a_registration_through_both_api_servers_creates_one_job(stores: tuple[Store, Store]) -> None:
    asked = [registration() for _ in range(10)]
    with ThreadPoolExecutor(4) as pool:
        made = [list(pool.map(store.jobs.register, asked)) for store in stores]
    assert made[0] == made[1]


def test_a_commit_of_one_store_notifies_the_other(stores: tuple[Store, Store]) -> None:
    heard = Event()
    forget = stores[1].observe(heard.set)
    owner = holder(stores[0], "first")
    assert heard.wait(30), "be it only because it may have missed something before it listened"
    heard.clear()
    owner.append(event("a"))
    assert heard.wait(30)
    forget()


def test_a_commit_signal_reaches_both_stores_only_for_its_own_changes(stores: tuple[Store, Store]) -> None:
    rings: SimpleQueue[int] = SimpleQueue()
    stores[0].task_runs.commit_signal.listen(partial(rings.put, 0))
    stores[1].task_runs.commit_signal.listen(partial(rings.put, 1))
    for _ in stores:
        rings.get(timeout=30)  # each might have missed something before it listened
    owner = holder(stores[0], "first")
    heard = SimpleQueue[None]()
    stores[1].observe(lambda: heard.put(None))
    owner.append(event("a"))
    heard.get(timeout=30)
    stores[0].task_runs.start("flights", StartRun(run_id="one", task="t"))
    assert sorted(rings.get(timeout=30) for _ in stores) == [0, 1]
    assert rings.empty()


def test_concurrent_opens_of_an_empty_database_create_its_schema_once(tmp_path: Path) -> None:
    url = database_of(tmp_path, empty=True)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(open_store, [url] * 4))
    assert len({store.instance for store in made}) == 1
    for store in made:
        store.close()


def test_an_idle_transaction_is_ended_and_retried_without_blocking_others(tmp_path: Path) -> None:
    standing, go_on = Event(), Event()
    with opened("postgresql", tmp_path) as first, opened("postgresql", tmp_path) as second:
        owner = holder(first, "first")
        tries: list[int] = []

        def stands_still(connection: Connection) -> int:
            tries.append(len(tries))
            if len(tries) == 1:
                # For this transaction only: a busy machine may need a second for the others.
                connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '1s'"))
                standing.set()
                assert go_on.wait(60)
            return int(connection.execute(select(func.max(events.c.seq))).scalar_one())

        held = first._database.submit(stands_still)
        assert standing.wait(30)
        assert through(second, owner).append(event("a")) == ["stored"]
        go_on.set()
        assert held.result(60) == 1, "it was tried again, and saw what was committed meanwhile"
        assert len(tries) == 2


def test_a_lock_held_by_another_api_server_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgresql.WRITER, "lock_timeout", "50ms")
    with opened("postgresql", tmp_path) as store, psycopg.connect(database_of(tmp_path)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (postgresql.LOCK,))
        with pytest.raises(StorageBusy, match="Another api holds"):
            holder(store, "first")
        other.rollback()
        assert holder(store, "first").append(event("a")) == ["stored"]
