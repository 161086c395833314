"""The contract of the event log: each event is stored once, in commit order, and returned unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from headrace.core.identity import event_key
from headrace.errors import Fenced
from headrace.store import Store
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import dead_letters
from headrace.store.tables.log import events, firings
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import EventItem
from headrace.wire.event_schema import OptionalEventFields
from headrace.wire.log import LOG_SCHEMA, NO_LEADER_SEQ
from support.processes.store import DATABASES, START, Holder, event, holder, letter, opened, registration


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second")


def counters(store: Store) -> dict[int, tuple[int, int]]:
    with store.reading() as connection:
        return {row.id: (row.fired, row.rejected) for row in connection.execute(select(triggers))}


def fired(store: Store) -> set[tuple[int, int]]:
    with store.reading() as connection:
        return {(row.seq, row.trigger_id) for row in connection.execute(select(firings))}


def test_an_empty_log_has_no_rows_and_starts_at_one(store: Store) -> None:
    page = store.log.page(after=0)
    assert page.table.schema.equals(LOG_SCHEMA)
    assert (page.table.num_rows, page.head) == (0, 0)
    assert (store.log.head().head, store.log.head().first) == (0, 1)


def test_every_column_is_returned_unchanged(store: Store, owner: Holder) -> None:
    occurred = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    item = event(
        "b",
        1,
        2,
        subject="N1",
        occurred=occurred,
        follows="a",
        payload='{"ü": [1, null]}',
        trace="00-1-2-01",
        stream="folder",
        lane="x.jsonl",
        position=7,
    )
    assert owner.append(item) == ["stored"]
    page = store.log.page(after=0)
    assert page.table.schema.equals(LOG_SCHEMA)
    assert page.head == 1
    assert page.table.to_pylist() == [
        {
            "seq": 1,
            "key": event_key("tests", "b"),
            "leader_key": event_key("tests", "a"),
            "leader_seq": NO_LEADER_SEQ,
            "source": "tests",
            "id": "b",
            "type": "leg",
            "subject": "N1",
            "occurred": occurred,
            "received": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START),
            "follows": "a",
            "trace": "00-1-2-01",
            "payload": '{"ü": [1, null]}',
            "triggers": ["first", "second"],
        }
    ]


def test_every_column_of_the_table_is_filled(store: Store, owner: Holder) -> None:
    optional = {"subject": "s", "follows": "first", "trace": "t", "stream": "u", "lane": "l", "position": 3}
    assert optional.keys() == OptionalEventFields.model_fields.keys()
    assert owner.append(event("first"), event("second", **optional)) == ["stored", "stored"]
    with store.reading() as connection:
        row = connection.execute(select(events).where(events.c.seq == 2)).one()._asdict()
    assert [name for name, value in row.items() if value is None] == []
    assert optional.items() <= row.items()


def test_the_time_of_receipt_is_the_default_of_the_time_of_occurrence(store: Store, owner: Holder) -> None:
    owner.append(event("a"))
    row = store.log.page(after=0).table.to_pylist()[0]
    assert row["occurred"] == row["received"]


def test_seq_is_contiguous_with_rejected_events_between(store: Store, owner: Holder) -> None:
    statuses = owner.append(event("a"), event("b", payload="{"), event("a"), event("c", 99), event("d"))
    assert statuses == ["stored", "invalid", "duplicate", "fenced", "stored"]
    owner.append(event("e"))
    table = store.log.page(after=0).table
    assert table.column("seq").to_pylist() == [1, 2, 3]
    assert table.column("id").to_pylist() == ["a", "d", "e"]
    assert store.log.head().head == 3


def test_a_repeated_event_adds_only_missing_firings(store: Store, owner: Holder) -> None:
    owner.append(event("a", 1))
    assert owner.append(event("a", 1, 2), event("a", 2)) == ["duplicate", "duplicate"]
    assert fired(store) == {(1, 1), (1, 2)}
    assert counters(store) == {1: (1, 0), 2: (1, 0)}
    assert owner.append(event("b", 1), event("b", 1, 2)) == ["stored", "duplicate"]
    assert fired(store) == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert counters(store) == {1: (2, 0), 2: (2, 0)}


def test_equal_ids_of_two_sources_are_different_events(store: Store, owner: Holder) -> None:
    assert owner.append(event("a"), event("a", source="other")) == ["stored", "stored"]


def test_a_leader_is_linked_only_if_it_was_stored_first(store: Store, owner: Holder) -> None:
    owner.append(event("in-log"))
    owner.append(
        event("after-log", follows="in-log"),
        event("before-leader", follows="later"),
        event("later"),
        event("after-batch", follows="later"),
        event("itself", follows="itself"),
        event("other-source", source="other", follows="in-log"),
    )
    rows = {row["id"]: row for row in store.log.page(after=0).table.to_pylist()}
    assert {id: row["leader_seq"] for id, row in rows.items()} == {
        "in-log": -1,
        "after-log": 1,
        "before-leader": -1,
        "later": -1,
        "after-batch": 4,
        "itself": -1,
        "other-source": -1,
    }
    assert rows["itself"]["leader_key"] is None
    assert rows["before-leader"]["leader_key"] == event_key("tests", "later")


@pytest.mark.parametrize("payload", ["", "{", "nul", "{} {}", "{'a': 1}", "NaN"])
def test_an_invalid_payload_is_refused_and_other_events_are_stored(store: Store, owner: Holder, payload: str) -> None:
    assert owner.append(event("bad", payload=payload), event("good", payload="null")) == ["invalid", "stored"]
    assert store.log.head().head == 1


@pytest.mark.parametrize("item", [event("a\0b"), event("a", subject="\0"), event("a", position=2**63)])
def test_an_unstorable_value_is_invalid(owner: Holder, item: EventItem) -> None:
    assert owner.append(item, event("good")) == ["invalid", "stored"]


def test_events_and_dead_letters_at_a_stale_epoch_are_fenced(store: Store, owner: Holder) -> None:
    stale = owner.epochs | {2: owner.epochs[2] - 1}
    owner.epochs = stale
    statuses = owner.append(event("a", 1), event("b", 1, 2), dead_letters=[letter("x", 2), letter("y", 1)])
    assert statuses == ["stored", "fenced", "fenced", "stored"]
    assert fired(store) == {(1, 1)}
    assert counters(store) == {1: (1, 1), 2: (0, 0)}


def test_an_ended_job_is_fenced(store: Store, owner: Holder) -> None:
    store.jobs.complete(owner.job_id, CompleteJob(state="succeeded"))
    with pytest.raises(Fenced):
        owner.append(event("a"))
    assert store.log.head().head == 0


def test_an_unstorable_dead_letter_is_invalid(owner: Holder) -> None:
    letters = [letter("x", position=2**63), letter("y\0"), letter("z")]
    assert owner.append(dead_letters=letters) == ["invalid", "invalid", "stored"]


def test_a_repeated_dead_letter_is_stored_once(store: Store, owner: Holder) -> None:
    assert owner.append(dead_letters=[letter("x", 1, 2), letter("x", 1)]) == ["stored", "duplicate"]
    assert owner.append(dead_letters=[letter("x", 1)]) == ["duplicate"]
    assert counters(store) == {1: (0, 1), 2: (0, 1)}
    with store.reading() as connection:
        row = connection.execute(select(dead_letters)).one()
    assert (row.id, row.triggers, row.raw, row.received) == ("x", "[1,2]", "{", START)


def test_pages_are_bounded_and_contiguous(store: Store, owner: Holder) -> None:
    owner.append(*(event(f"{n}") for n in range(10)))
    assert store.log.page(after=0, limit=4).table.column("seq").to_pylist() == [1, 2, 3, 4]
    assert store.log.page(after=4, to=6).table.column("seq").to_pylist() == [5, 6]
    assert store.log.page(after=9, to=400).table.column("seq").to_pylist() == [10]
    assert store.log.page(after=10).table.num_rows == 0


def test_events_read_by_seq_have_only_their_own_triggers(store: Store, owner: Holder) -> None:
    owner.append(event("1", 1), event("2", 2), event("3", 1, 2), event("4", 1), event("5", 2))
    assert store.log.get_by_seq([1, 3, 5]).table.column("triggers").to_pylist() == [["first"], ["first", "second"], ["second"]]
    assert store.log.get_by_seq([2, 4]).table.column("triggers").to_pylist() == [["second"], ["first"]]


def test_a_page_of_large_payloads_is_bounded_and_never_empty(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.log.pages.MAX_PAYLOAD_BYTES", 100)
    monkeypatch.setattr("headrace.store.log.pages.FIRST_PART_EVENTS", 2)
    owner.append(*(event(f"{n}", payload='"' + "x" * 80 + '"') for n in range(5)))
    pages, after = [], 0
    while (table := store.log.page(after=after).table).num_rows:
        pages.append(table.num_rows)
        after = table.column("seq")[-1].as_py()
    assert pages == [2, 2, 1]


def test_appends_from_many_threads_are_serialized(store: Store, owner: Holder) -> None:
    def append(n: int) -> list[str]:
        return owner.append(*(event(f"{n}-{i}", 1 + i % 2, follows=f"{n}-{i - 1}" if i else None) for i in range(20)), event("shared"))

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(append, range(24)))
    assert sum(status[-1] == "stored" for status in statuses) == 1
    rows = store.log.page(after=0).table.to_pylist()
    assert [row["seq"] for row in rows] == list(range(1, 24 * 20 + 2))
    seq_of = {row["id"]: row["seq"] for row in rows}
    assert all(row["leader_seq"] == seq_of[row["follows"]] < row["seq"] for row in rows if row["follows"])
    assert counters(store) == {1: (24 * 10 + 1, 0), 2: (24 * 10, 0)}


def test_a_fenced_job_does_not_affect_appends_of_others(store: Store, owner: Holder) -> None:
    ended = Holder(store, store.jobs.register(registration()).id, dict(owner.epochs))
    store.jobs.complete(ended.job_id, CompleteJob(state="failed"))
    futures = [store.log.append_later(job.job_id, job.batch(event(f"{n}"))) for n, job in enumerate([owner, ended, owner, ended])]
    answers = [future.result() for future in futures]
    assert [isinstance(answer, Fenced) for answer in answers] == [False, True, False, True]
    assert store.log.head().head == 2


def test_a_known_id_with_another_payload_is_counted_as_a_conflict(store: Store) -> None:
    owner = holder(store, "first", "second")
    a, b = owner.epochs
    assert owner.append(event("x", a, payload="1"), event("y", a, payload="1"), event("x", b, payload="2")) == [
        "stored",
        "stored",
        "duplicate",
    ]
    assert owner.append(event("x", a, b, payload="3"), event("x", a, payload="1"), event("y", a, payload="1")) == ["duplicate"] * 3
    with store.reading() as connection:
        assert {row.name: row.conflicts for row in connection.execute(select(triggers))} == {"first": 1, "second": 2}
        assert [row.payload for row in connection.execute(select(events.c.payload).order_by(events.c.seq))] == ["1", "1"]


def test_events_have_the_name_of_a_watch_without_its_shard(store: Store) -> None:
    owner = holder(store, "orders#0-of-2", "orders#1-of-2")
    assert owner.append(event("a", 1), event("b", 2)) == ["stored", "stored"]
    assert owner.append(event("a", 2)) == ["duplicate"], "after the number of shards changed, another one may read a message again"
    assert store.log.page(after=0).table.column("triggers").to_pylist() == [["orders"], ["orders"]]
    (late,) = store.log.redeliveries(after=0, to=1)
    assert (late.trigger, late.before) == ("orders", ["orders"])
