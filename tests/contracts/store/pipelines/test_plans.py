"""The contract of plans: stored once and in order, only by the holder of the scope; a run is open until its outcome is stored."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.db import slices
from headrace.store.pipelines import plans
from headrace.store.redeliveries import redelivered
from headrace.store.tables.pipelines import pipeline_dead_letters, runs
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor, ScopeReport
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from headrace.wire.pipelines.plans import OpenRun, Plan, PlannedRun, PlanPage, SplitRun
from headrace.wire.pipelines.runs import BatchEnded
from support.pipelines.plans import driver, open_runs, places, plan, planned, report, state, stored_cursor, stored_slices
from support.processes.store import event, holder


def test_a_new_scope_begins_at_the_event_of_its_first_driver(store: Store) -> None:
    holder(store, "first").append(*(event(f"{n}") for n in range(5)))
    job = driver(store)
    old, now, third = (store.scope_leases.acquire(job, name, begin) for name, begin in (("old", 1), ("now", None), ("third", 3)))
    assert [one.cursor.cursor for one in (old, now, third)] == [0, 5, 2] == [one.begin_seq for one in (old, now, third)]
    assert len({one.incarnation for one in (old, now, third)}) == 3
    with pytest.raises(ApiRefused, match="ends at event 5: a scope cannot begin at event 7"):
        store.scope_leases.acquire(job, "beyond", 7)
    assert store.scope_leases.acquire(job, "next", 6).cursor.cursor == 5
    assert store.scope_leases.acquire(job, "third", 1) == third, "it has begun"


def test_a_plan_advances_the_scope_and_is_available_to_the_next_driver(store: Store) -> None:
    first = driver(store)
    lease = store.scope_leases.acquire(first, "s")
    told = ScopeReport(lookback=60)
    cursor = Cursor(cursor=9, batch=1, ordered=8, waiting=1, lost=2, late=3, cycles=4, low_watermark=7, last_redelivery_id=2, report=told)
    given = plan(1, planned(0, table="t", format="delta", part="x", dead_letter="l", first=3, last=9, events=5), cursor=cursor)
    store.plans.store(first, "s", given.model_copy(update={"state": {"scope": b"\x00\xff", "order/w/1": b""}}))
    store.jobs.complete(first, CompleteJob(state="failed"))
    second = driver(store)
    assert store.scope_leases.acquire(second, "s")[1:] == (*lease[1:4], cursor)
    run: dict[str, Any] = {
        "batch": 1,
        "number": 0,
        "pipeline": "p",
        "part": "x",
        "table": "t",
        "format": "delta",
        "dead_letter": "l",
        "events": 5,
    }
    assert open_runs(store, second) == [OpenRun(**run, begun=0, ended=0, data=b"1/0")]
    assert state(store, second) == {"scope": b"\x00\xff", "order/w/1": b""}
    store.plans.store(second, "s", plan(2, epoch=2, state={"scope": b"2", "order/w/1": None, "order/w/2": b"w"}))
    assert state(store, second) == {"scope": b"2", "order/w/2": b"w"}
    assert places(store, second) == [(1, 0)]


def test_a_repeated_plan_is_stored_once(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    for _ in range(2):
        store.plans.store(job, "s", plan(1, planned(), state={"k": b"1"}))
    store.runs.report(job, [report(1)])
    store.plans.store(job, "s", plan(1, planned(), state={"k": b"1"}))
    assert places(store, job) == []


@pytest.mark.parametrize(
    "other",
    [
        plan(0),
        plan(3),
        plan(1, cursor=Cursor(cursor=8, batch=1)),
        plan(1, cursor=Cursor(cursor=1, batch=1, last_redelivery_id=1)),
    ],
)
def test_a_plan_out_of_sequence_is_a_conflict(store: Store, other: Plan) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, state={"k": b"1"}))
    with pytest.raises(ApiRefused) as refused:
        store.plans.store(job, "s", other.model_copy(update={"state": {"k": b"2"}}))
    assert refused.value.problem == "conflict"
    assert stored_cursor(store, "s").cursor == 1
    assert state(store, job) == {"k": b"1"}


@pytest.mark.parametrize(
    "other",
    [
        plan(1, planned(0), planned(0)),
        plan(1, planned(0), slices=[]),
        plan(1, slices=[b"x"]),
        plan(1, planned(slice=1), slices=[b"0", b"1"]),
    ],
)
def test_a_plan_with_inconsistent_runs_and_slices_is_refused(store: Store, other: Plan) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    with pytest.raises(ApiRefused, match=r"The runs of the plan|Two runs"):
        store.plans.store(job, "s", other)
    assert stored_cursor(store, "s").batch == 0


def test_only_the_holder_at_its_epoch_can_plan_read_and_report(store: Store) -> None:
    first, other = driver(store), driver(store)
    store.scope_leases.acquire(first, "s")
    store.plans.store(first, "s", plan(1, planned()))
    for epoch in (0, 2):
        with pytest.raises(Fenced):
            store.plans.store(first, "s", plan(2, epoch=epoch))
    store.scope_leases.acquire(other, "its own")

    def refused(job: int) -> None:
        for call in (
            lambda: store.plans.store(job, "s", plan(2)),
            lambda: store.plans.state(job, "s", ""),
            lambda: store.plans.open_runs(job, "s", 0, 0),
            lambda: store.runs.report(job, [report(1)]),
            lambda: store.runs.report(job, [], BatchEnded(scope="s", read=1, seconds=1.0)),
        ):
            with pytest.raises(Fenced):
                call()

    refused(other)
    store.jobs.complete(first, CompleteJob(state="failed"))
    refused(first)
    refused(other)
    assert store.scope_leases.acquire(other, "s").epoch == 2
    assert places(store, other) == [(1, 0)]


def test_attempts_are_counted_and_an_outcome_closes_the_run(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(0, 0), planned(1, 1)))

    def attempts() -> list[tuple[int, int]]:
        return [(run.begun, run.ended) for run in open_runs(store, job)]

    store.runs.report(job, [report(1, attempt=1, state="running")])
    assert attempts() == [(1, 0), (0, 0)]
    store.runs.report(job, [report(1, attempt=1, state="failed", error="no"), report(1, attempt=2, state="running")])
    store.runs.report(job, [report(1, attempt=1, state="running")])
    assert attempts() == [(2, 1), (0, 0)]
    store.runs.report(job, [report(1, attempt=2, state="succeeded", rows=3)])
    assert places(store, job) == [(1, 1)]
    assert stored_slices(store) == [(1, 1)]
    with store.reading() as connection:
        assert connection.execute(select(runs.c.run_id, runs.c.attempt, runs.c.state, runs.c.rows)).all() == [("1.0", 2, "succeeded", 3)]


def test_a_permanently_failed_run_is_closed_and_becomes_a_dead_letter(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned()))
    failed = report(1, attempt=3, state="failed", error="no", dead_letter="l")
    with pytest.raises(Fenced):  # of one body either all is stored or nothing
        store.runs.report(job, [failed, report(1, scope="another")])
    assert places(store, job) == [(1, 0)]
    for _ in range(2):
        store.runs.report(job, [failed])
    assert places(store, job) == []
    with store.reading() as connection:
        assert connection.execute(select(pipeline_dead_letters.c.id, pipeline_dead_letters.c.attempts)).all() == [("l", 3)]


def test_a_repeated_report_does_not_restore_a_dead_letter(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned()))
    failed = report(1, state="failed", error="no", dead_letter="l")
    store.runs.report(job, [failed])
    store.plans.store(job, "s", plan(2, planned(dead_letter="l")))
    store.runs.report(job, [report(2, dead_letter="l")])
    store.runs.report(job, [failed])
    with store.reading() as connection:
        assert connection.execute(select(pipeline_dead_letters.c.id)).all() == []


def test_a_report_of_a_batch_without_a_plan_is_a_conflict(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    with pytest.raises(ApiRefused) as refused:
        store.runs.report(job, [report(1)])
    assert refused.value.problem == "conflict"


def test_a_slice_is_deleted_with_the_last_of_its_runs(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(0, 0), planned(1, 0), planned(2, 1), planned(3, 0)))
    store.plans.store(job, "s", plan(2, planned(0, 0)))
    store.runs.report(job, [report(1, 0), report(1, 2)])
    assert stored_slices(store) == [(1, 0), (2, 0)]
    store.runs.report(job, [report(1, 1), report(1, 3)])
    assert stored_slices(store) == [(2, 0)]


def halves(batch: int, number: int, epoch: int = 1) -> SplitRun:
    parts = [planned(1000 + 2 * number, 0, part="0.0"), planned(1001 + 2 * number, 1, part="0.1", first=2, last=2)]
    return SplitRun(epoch=epoch, batch=batch, number=number, parts=parts, slices=[b"first", b"second"])


def test_a_run_is_split_into_its_parts_once(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(0, 0), planned(1, 0), planned(2, 1)))
    with pytest.raises(Fenced):
        store.plans.split(job, "s", halves(1, 0, epoch=2))
    with pytest.raises(ApiRefused):
        store.plans.split(job, "s", halves(1, 0).model_copy(update={"slices": [b"first"]}))
    for _ in range(2):  # an answer is lost
        store.plans.split(job, "s", halves(1, 0))
    found = [(run.number, run.part, run.data) for run in open_runs(store, job)]
    assert found == [(1, "", b"1/0"), (2, "", b"1/1"), (1000, "0.0", b"first"), (1001, "0.1", b"second")]
    store.runs.report(job, [report(1, 0), report(1, 1000)])
    store.plans.split(job, "s", halves(1, 0))
    assert places(store, job) == [(1, 1), (1, 2), (1, 1001)]
    assert stored_slices(store) == [(1, 0), (1, 1), (1, 1001)]


def test_a_split_of_a_redriven_run_deletes_its_dead_letter(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned()))
    store.runs.report(job, [report(1, state="failed", error="no", dead_letter="l")])
    store.plans.store(job, "s", plan(2, planned(dead_letter="l")))
    store.plans.split(job, "s", halves(2, 0))
    with store.reading() as connection:
        assert connection.execute(select(pipeline_dead_letters.c.id)).all() == []


def test_a_dead_letter_has_the_slice_of_its_run_after_each_redrive(store: Store) -> None:
    owner = holder(store, "legs")
    owner.append(event("1"))
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(0, 0), planned(1, 0, pipeline="q")))
    letters = [report(1, number, run_id=f"r{number}", state="failed", error="no", dead_letter=f"l{number}") for number in range(2)]
    store.runs.report(job, letters)
    assert stored_slices(store) == []
    store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["l0", "l1"]))
    with store.reading() as connection:
        again = redelivered(connection, 0, 9, None)
    assert sorted((each.dead_letter, each.slice) for each in again) == [("l0", b"1/0"), ("l1", b"1/0")]
    assert [letter.error for letter in store.pipeline_dead_letters.page(limit=9).dead_letters] == ["no", "no"]


def test_pages_are_bounded_in_bytes_and_in_rows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    entries = {f"k{n:02}": bytes(300) for n in range(10)} | {"large": bytes(5_000)}
    given = plan(1, *(planned(n, n) for n in range(10)), slices=[bytes(300) for _ in range(10)], state=entries)
    store.plans.store(job, "s", given)
    for bound, most in ((1_000, 5_000), (1 << 20, 3)):
        monkeypatch.setattr(slices, "MAX_SLICE_BYTES", bound)
        monkeypatch.setattr(plans, "PAGE_ROWS", most)
        page = store.plans.state(job, "s", "")
        assert (list(page.entries), page.after) == (["k00", "k01", "k02"], "k02")
        assert len(store.plans.open_runs(job, "s", 0, 0).runs) in (1, 3)
        assert state(store, job) == entries
        assert places(store, job) == [(1, n) for n in range(10)]


def test_the_report_of_a_batch_has_its_speed_after_its_end(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, cursor=Cursor(cursor=5, batch=1, report=ScopeReport(held=2))))
    store.runs.report(job, [], BatchEnded(scope="s", read=5, seconds=0.5))
    store.plans.store(job, "s", plan(2))
    told = stored_cursor(store, "s").report
    assert told is not None
    assert (told.held, told.read, told.seconds) == (0, 5, 0.5)


def test_a_plan_in_pages_is_stored_atomically_and_its_pages_are_deleted(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    first = PlanPage(
        epoch=1, batch=1, page=0, runs=[planned(0), planned(1, 1)], slices=[b"a", b"b"], state={"scope": b"1", "order/w": b"w"}
    )
    second = PlanPage(epoch=1, batch=1, page=1, runs=[planned(2, 2)], slices=[b"c"], state={"late": b"l"})
    last = Plan(epoch=1, cursor=Cursor(cursor=1, batch=1), pages=2)
    for page in (first, second, first):
        store.plans.keep_page(job, "s", page)
    with pytest.raises(ApiRefused, match="has 2 pages, and not all of them were sent"):
        store.plans.store(job, "s", last)
    assert open_runs(store, job) == [], "a page has no effect before its plan"
    for page in (first, second):
        store.plans.keep_page(job, "s", page)
    store.plans.store(job, "s", last)
    assert [(run.number, run.data) for run in open_runs(store, job)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert state(store, job) == {"scope": b"1", "order/w": b"w", "late": b"l"}
    # The answer was lost: all of it is sent again, and changes nothing.
    for page in (first, second):
        store.plans.keep_page(job, "s", page)
    store.plans.store(job, "s", last)
    assert state(store, job) == {"scope": b"1", "order/w": b"w", "late": b"l"}
    with pytest.raises(Fenced):
        store.plans.keep_page(job, "s", first.model_copy(update={"epoch": 2}))


def test_pages_of_an_ended_driver_are_dropped(store: Store) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.keep_page(job, "s", PlanPage(epoch=1, batch=1, page=0, state={"scope": b"1"}))
    store.jobs.complete(job, CompleteJob(state="failed"))
    other = driver(store)
    store.scope_leases.acquire(other, "s")
    assert state(store, other) == {}
    with pytest.raises(ApiRefused, match="not all of them were sent"):
        store.plans.store(other, "s", Plan(epoch=2, cursor=Cursor(cursor=1, batch=1), pages=1))


@pytest.mark.parametrize(("page", "problem"), [(planned(0, 1), "do not name each of its slices"), (planned(7), "one number")])
def test_pages_with_inconsistent_runs_and_slices_are_refused(store: Store, page: PlannedRun, problem: str) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.keep_page(job, "s", PlanPage(epoch=1, batch=1, page=0, runs=[page], slices=[b"a"]))
    with pytest.raises(ApiRefused, match=problem):
        store.plans.store(job, "s", Plan(epoch=1, cursor=Cursor(cursor=1, batch=1), pages=1, runs=[planned(7)]))
    assert state(store, job).keys() == {"page/000000"}
