"""The contract of custody: ranges are merged, redeliveries count once, and inconsistent receipts are reported as problems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from headrace.errors import Fenced
from headrace.store import Store
from headrace.store.tables.custody import lanes, recorded_streams, subscriber_sets, trigger_answers
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.streams import LaneReport, StreamReport
from headrace.wire.control.triggers import CleanupTriggers
from support.processes.store import DATABASES, Holder, declaration, holder, opened
from support.sources.custody import answered, books, counts, keep, marks, receipt, record, settle, spill, status, waiting


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with opened(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second")


def problems(store: Store) -> list[tuple[str, int | None, str]]:
    return [(one.lane, one.recorded, one.problem) for stream in books(store).streams for one in stream.problems]


def test_an_audit_without_receipts_is_clean(store: Store, owner: Holder) -> None:
    assert (books(store).clean, books(store).streams, marks(owner)) == (True, [], {})


def test_adjacent_ranges_are_merged(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 9, 10, answered(1, fired=3), answered(2, rejected=1, dead_lettered=1)))
    record(owner, receipt(9, 30, 5, answered(1, fired=5)), receipt(30, 31, 1))
    assert marks(owner) == {"a.jsonl": 31}
    assert counts(store) == {"read": 16, "fired": 8, "filtered": 8}
    assert counts(store, "second") == {"read": 16, "rejected": 1, "dead_lettered": 1, "filtered": 14}
    found = books(store)
    assert found.clean
    assert [(stream.stream, stream.read, stream.lanes) for stream in found.streams] == [("folder", 16, 1)]
    with store.reading() as connection:
        row = connection.execute(select(lanes)).one()
    assert (row.after, row.last, row.read) == (None, 31, 16)


def test_a_repeated_receipt_changes_nothing(store: Store, owner: Holder) -> None:
    first = receipt(None, 9, 10, answered(1, fired=3))
    record(owner, first)
    record(owner, receipt(9, 12, 3))
    before = books(store)
    record(owner, first, receipt(9, 12, 3), receipt(2, 8, 4, answered(1, failed=4)))
    assert books(store) == before
    assert before.clean


def test_a_gap_is_counted_and_reported(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 9, 10))
    record(owner, receipt(11, 20, 4), receipt(20, 21, 1))
    assert problems(store) == [("a.jsonl", 9, "nothing is recorded after 9 up to 11")]
    assert not books(store).clean
    assert counts(store)["read"] == 15


@pytest.mark.parametrize("after", [None, 5])
def test_an_overlap_is_reported_and_not_counted(store: Store, owner: Holder, after: int | None) -> None:
    record(owner, receipt(None, 9, 10))
    record(owner, receipt(after, 12, 7))
    since = "the lane's beginning" if after is None else "5"
    assert problems(store) == [("a.jsonl", 9, f"the range after {since} up to 12 overlaps the receipts up to 9")]
    assert (counts(store)["read"], marks(owner)) == (10, {"a.jsonl": 12})
    record(owner, receipt(12, 13, 1))
    assert len(problems(store)) == 1


def test_a_lane_may_begin_at_any_position(store: Store, owner: Holder) -> None:
    record(owner, receipt(100, 120, 3), receipt(None, 5, 2, lane="b"))
    assert books(store).clean
    assert marks(owner) == {"a.jsonl": 120, "b": 5}
    assert marks(owner, "another") == {}


def test_more_answers_than_raw_events_are_a_problem(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 1, 1, answered(1, fired=2)))
    assert [one.balanced for one in books(store).streams[0].triggers] == [False, True]
    assert problems(store) == [("a.jsonl", None, "trigger 1 answered 2 raw events up to 1, and owed 1")]


def test_an_answer_of_a_trigger_that_owed_none_is_a_problem(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 1, 1), receipt(None, 1, 1, answered(2, fired=1), owed=(1,), lane="b"))
    assert problems(store) == [("b", None, "trigger 2 answered 1 raw events up to 1, and owed 0")]
    assert not books(store).clean


def test_triggers_owe_only_raw_events_read_during_their_subscription(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 3, 3, owed=(1,)))
    record(owner, receipt(3, 5, 2, owed=(2, 1)), receipt(5, 6, 1, owed=(2,)), receipt(6, 8, 2, owed=()))
    assert (counts(store)["read"], counts(store, "second")["read"], books(store).streams[0].read) == (5, 3, 8)


def test_streams_are_audited_separately_with_problems_in_order(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 3, 3), receipt(None, 3, 3, stream="other"))
    record(owner, receipt(7, 8, 1, lane="z"), receipt(4, 8, 1), receipt(9, 10, 1))
    assert [(lane, recorded) for lane, recorded, _ in problems(store)] == [("a.jsonl", 3), ("a.jsonl", 8)]
    assert books(store, "other").clean
    assert [stream.stream for stream in books(store, "other").streams] == ["other"]
    assert not books(store, "folder").clean
    assert books(store, "nowhere").streams == []


def test_a_thousand_filtering_triggers_share_the_receipts_of_a_lane(store: Store) -> None:
    names = [f"t{n}" for n in range(1000)]
    owner = holder(store, *names, hostname="big")
    owner.load(2000)
    owed = tuple(owner.epochs)
    assert len(owed) == 1000
    for n in range(20):
        record(owner, *(receipt(None, 9, 10, answered(owed[0], fired=1), owed=owed, lane=f"{n}-{i}") for i in range(10)))
    with store.reading() as connection:
        sizes = [
            connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (lanes, subscriber_sets, recorded_streams, trigger_answers)
        ]
    assert sizes == [200, 1, 1, 1]
    found = books(store)
    assert found.clean
    assert {(one.read, one.fired) for one in found.streams[0].triggers} == {(2000, 200), (2000, 0)}


def test_receipts_of_a_previous_owner_are_fenced(store: Store, owner: Holder) -> None:
    store.projects.declare(owner.job_id, "flights", declaration("first", "second", stream="moved"))
    store.triggers.cleanup(owner.job_id, CleanupTriggers(trigger_ids=[1, 2]))
    other = holder(store)
    assert set(other.epochs) == {1, 2}
    assert status(owner, receipt(None, 1, 1)) == ["fenced"]
    store.jobs.complete(other.job_id, CompleteJob(state="succeeded"))
    assert status(owner, receipt(None, 1, 1)) == ["fenced"], "nobody holds them now, but somebody newer did"
    store.jobs.complete(owner.job_id, CompleteJob(state="succeeded"))
    with pytest.raises(Fenced):
        record(owner, receipt(None, 1, 1, owed=()))
    assert books(store).streams == []


def test_a_removed_trigger_does_not_block_the_receipts_of_others(store: Store, owner: Holder) -> None:
    store.projects.declare(owner.job_id, "flights", declaration("first"))
    assert set(owner.load()) == {1}
    record(owner, receipt(None, 4, 4, answered(2, fired=1)))
    assert counts(store, "second") == {"read": 4, "fired": 1, "filtered": 3}


@pytest.mark.parametrize(
    ("lane", "problem"),
    [
        (LaneReport(lane="a.jsonl", advanced=9, committed=9), None),
        (LaneReport(lane="a.jsonl", advanced=5, committed=4), None),
        (LaneReport(lane="a.jsonl", advanced=10, committed=9), ("a.jsonl", 9, "advanced up to 10, past what is recorded")),
        (LaneReport(lane="a.jsonl", committed=11), ("a.jsonl", 9, "the upstream has committed up to 11, past what is recorded")),
        (LaneReport(lane="b", advanced=1), ("b", None, "advanced up to 1, past what is recorded")),
        (LaneReport(lane="b", committed=1), None),
    ],
)
def test_the_audit_compares_receipts_with_the_position_of_the_upstream(
    store: Store, owner: Holder, lane: LaneReport, problem: tuple[str, int | None, str] | None
) -> None:
    record(owner, receipt(None, 9, 10))
    store.jobs.heartbeat(owner.job_id, Heartbeat(streams=[StreamReport(stream="folder", state="polling", lanes=[lane])]))
    assert problems(store) == ([] if problem is None else [problem])
    assert books(store).clean == (problem is None)


def test_a_raw_event_unresolved_for_a_minute_is_a_problem_while_its_job_runs(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 9, 10))

    def report(seconds: float, held_by: str | None) -> None:
        stuck = StreamReport(stream="folder", state="polling", oldest_unresolved=seconds, held_by=held_by, oldest_lane="b.jsonl")
        store.jobs.heartbeat(owner.job_id, Heartbeat(streams=[stuck]))

    report(59.0, "trigger 1")
    assert books(store).clean
    report(90.0, "trigger 1 and 3 more")
    when = "2027-01-15T07:58:30.000000Z"
    owed = f"a raw event that was read at {when} is owed an answer for 90 s: held by first and 3 more"
    assert problems(store) == [("b.jsonl", None, owed)]
    assert not books(store).clean
    store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    assert books(store).clean


ACTIONS = st.lists(st.sampled_from(["spill", "fire", "filter", "drain", "receipt", "crash"]), min_size=5, max_size=60)


@settings(deadline=None, max_examples=60)
@given(actions=ACTIONS)
@pytest.mark.slow
def test_the_audit_is_clean_after_random_spills_crashes_and_redeliveries(
    tmp_path_factory: pytest.TempPathFactory, actions: list[str]
) -> None:
    """One lane, one trigger: each raw event is read, answered and recorded; a crash before the receipt delivers the stretch again."""
    with opened("sqlite", tmp_path_factory.mktemp("books")) as store:
        owner = holder(store, "first")
        recorded, position, stretch = 0, 0, {"fired": 0, "spilled": 0, "filtered": 0}
        for action in actions:
            if action in ("spill", "fire", "filter"):
                position += 1
                name = {"spill": "spilled", "fire": "fired", "filter": "filtered"}[action]
                stretch[name] += 1
                if action == "spill":
                    keep(owner, spill(position))
            elif action == "drain":
                if found := waiting(owner):
                    settle(owner, "fired", *(item.number for item in found[: len(found) // 2 + 1]))
            elif action == "crash":
                position, stretch = recorded, dict.fromkeys(stretch, 0)
            elif position > recorded:
                given = answered(1, fired=stretch["fired"], spilled=stretch["spilled"])
                record(owner, receipt(recorded or None, position, position - recorded, given, owed=(1,)))
                recorded, stretch = position, dict.fromkeys(stretch, 0)
            found_books = books(store)
            assert found_books.clean, found_books
        if recorded:
            assert counts(store)["read"] == recorded


def test_a_range_that_another_number_of_shards_has_recorded_is_no_gap(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 9, 10, stream="orders#1-of-2"))
    record(owner, receipt(9, 30, 21, stream="orders#3-of-4"), receipt(30, 40, 10, stream="orders"))
    report = StreamReport(stream="orders#1-of-2", state="polling", lanes=[LaneReport(lane="a.jsonl", committed=40)])
    store.jobs.heartbeat(owner.job_id, Heartbeat(streams=[report]))
    assert problems(store) == [], "the upstream is where the last of them left it"
    record(owner, receipt(40, 50, 10, stream="orders#1-of-2"))
    assert books(store).clean
    record(owner, receipt(52, 60, 8, stream="orders#1-of-2"))
    assert problems(store) == [("a.jsonl", 50, "nothing is recorded after 50 up to 52")]


def test_a_shard_of_the_same_number_or_of_another_stream_explains_no_gap(store: Store, owner: Holder) -> None:
    record(owner, receipt(None, 9, 10, stream="orders#1-of-2"))
    record(owner, *(receipt(None, 40, 10, stream=stream) for stream in ("orders#0-of-2", "refunds#1-of-4", "refunds")))
    record(owner, receipt(40, 50, 10, stream="orders#1-of-2"))
    assert problems(store) == [("a.jsonl", 9, "nothing is recorded after 9 up to 40")]
