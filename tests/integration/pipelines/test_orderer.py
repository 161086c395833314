"""The ordering of a scope against the real API, without a JVM: the runs of a plan and the state that it leaves for the next plan."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.pipeline import PipelineClient
from headrace.core.batching import BatchPolicy, Debounce, Window
from headrace.errors import PipelineError
from headrace.pipeline.log_reader import MAX_BATCH_EVENTS, LogReader
from headrace.pipeline.ordering.orderer import Ordered
from headrace.wire.base import MAX_BODY_BYTES
from headrace.wire.control.jobs import RegisterJob
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.kit import KEY, Api, leg, running_api
from support.pipelines.scopes import Scope, column
from support.processes.store import TurnedClock


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running_api(tmp_path) as running:
        yield running


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        yield made


def held(ordered: Ordered) -> int:
    report = ordered.plan.cursor.report
    assert report is not None
    return report.held


@pytest.mark.parametrize("recent", [0, 1_000_000])
def test_a_waiting_event_stays_in_the_log_and_is_released_with_its_leader(
    recent: int, api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipeline.ordering.recent_events.MAX_RECENT_BYTES", recent)
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, legs=("*", "micro"))
    api.feed([leg("c", trigger, follows="b"), leg("x", trigger), leg("b", trigger, follows="a")])
    first = scope.next()
    assert scope.told(first) == [("legs", ["x"])]
    cursor = first.plan.cursor
    assert cursor.report is not None
    assert (cursor.cursor, cursor.waiting, cursor.low_watermark) == (3, 2, 0)
    assert [each.seq for each in cursor.report.waits] == [1, 3]
    api.feed([leg("a", trigger, n=7)])
    second = scope.next(clock=3)
    assert scope.told(second) == [("legs", ["a", "b", "c"])]
    assert column(second.runs[0], "position") == [2, 3, 4]
    assert second.runs[0].slice.ranges == [(1, 1), (3, 4)]
    cursor = second.plan.cursor
    assert cursor.report is not None
    assert (cursor.low_watermark, cursor.report.holds) == (4, [0, 0, 2, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("wrong", [-3_600, 3_600])
def test_a_wrong_clock_of_the_api_server_does_not_change_the_lookback(tmp_path: Path, wrong: int) -> None:
    clock = TurnedClock()
    with running_api(tmp_path, clock=clock) as api, PipelineClient(api.url, key=KEY) as client:
        client.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        trigger = api.triggers("legs.a")["legs.a"]
        scope = Scope(client, legs=("*", "micro"))
        clock.set(wrong)
        api.feed([leg("b", trigger, follows="a"), leg("f", trigger, follows="e")])
        assert scope.told(scope.next()) == []
        clock.set(-wrong)
        api.feed([leg("d", trigger, follows="c")])
        assert scope.told(scope.next(clock=1)) == []
        api.feed([leg("a", trigger), leg("c", trigger)])
        (run,) = scope.next(clock=9).runs
        ids, marks, received = (column(run, name) for name in ("id", "mark", "received"))
        assert (ids[:2], set(ids[2:]), marks) == (["a", "c"], {"b", "d"}, [None] * 4)
        came = dict(zip(ids, received, strict=True))
        assert (came["b"] - came["a"]).total_seconds() == wrong, "the log says when they came by a clock that was wrong"
        given_up = scope.next(clock=10)
        assert (scope.told(given_up), column(given_up.runs[0], "mark")) == ([("legs", ["f"])], ["lost"])


def test_another_driver_continues_after_the_stored_plan(api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, legs=("*", "micro"))
    api.feed([leg("b", trigger, follows="a"), leg("d", trigger, follows="c")])
    scope.next()
    scope.start()
    api.feed([leg("a", trigger), leg("c", trigger)])
    second = scope.next()
    assert scope.told(second) == [("legs", ["a", "c", "b", "d"])]
    assert column(second.runs[0], "position") == [1, 2, 3, 4]
    scope.start()
    assert scope.orderer.at == (4, 0, 0, 0)
    assert scope.next().runs == []


def test_a_large_release_is_split_into_runs_of_bounded_size(api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.ordering.orderer.MAX_BATCH_BYTES", 2_000)
    monkeypatch.setattr("headrace.pipeline.ordering.recent_events.MAX_RECENT_BYTES", 0)
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, legs=("*", "micro"))
    api.feed([leg(f"{number:02}", trigger, follows="leader", text="x" * 500) for number in range(20)])
    assert scope.next().runs == []
    api.feed([leg("leader", trigger)])
    ordered = scope.next()
    told = scope.told(ordered)
    assert [name for name, _ in told] == ["legs", *(f"legs/{part}" for part in range(1, len(told)))]
    assert len(told) > 4
    assert [id for _, ids in told for id in ids] == ["leader", *(f"{number:02}" for number in range(20))]
    assert [position for run in ordered.runs for position in column(run, "position")] == list(range(1, 22))


def test_a_batch_is_bounded_in_bytes(api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.log_reader.MAX_ID_BYTES", 100)
    monkeypatch.setattr("headrace.pipeline.log_reader.MAX_BATCH_BYTES", 1_200)
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, legs=("*", "micro"))
    api.feed([leg(str(number), trigger, text="x" * 500) for number in range(4)])
    api.feed([leg("one larger than a batch", trigger, text="x" * 2_000), leg("last", trigger)])
    runs = []
    while scope.orderer.at.seq < 6:
        runs += scope.told(scope.next())
    assert [ids for _, ids in runs] == [["0", "1"], ["2", "3"], ["one larger than a batch"], ["last"]]


def test_a_late_firing_runs_a_handled_event_only_in_new_pipelines(api: Api, client: PipelineClient) -> None:
    ids = api.triggers("legs.a", "legs.b", "other")
    scope = Scope(client, legs=("legs.*", "micro"), others=("other", "micro"))
    api.feed([leg("1", ids["legs.a"]), leg("2", ids["legs.a"])])
    assert scope.told(scope.next()) == [("legs", ["1", "2"])]
    api.feed([leg("1", ids["legs.b"], ids["other"]), leg("3", ids["other"])])
    second = scope.next()
    assert scope.told(second) == [("others", ["3"]), ("others/1", ["1"])]  # the pipeline `legs` has had it by another trigger
    assert [column(run, "position") for run in second.runs] == [[3], [1]]
    assert [column(run, "triggers") for run in second.runs] == [[["other"]], [["other"]]]
    api.feed([leg("1", ids["other"])])
    assert scope.told(scope.next()) == []


def test_a_firing_on_a_waiting_event_is_released_with_the_event(api: Api, client: PipelineClient) -> None:
    ids = api.triggers("legs.a", "other")
    scope = Scope(client, legs=("legs.*", "micro"), others=("other", "micro"))
    api.feed([leg("b", ids["legs.a"], follows="a")])
    scope.next()
    api.feed([leg("b", ids["other"])])
    scope.next()
    scope.start()
    api.feed([leg("a", ids["legs.a"])])
    assert scope.told(scope.next()) == [("legs", ["a", "b"]), ("others", ["b"])]


def test_a_plan_has_a_bounded_number_of_runs(client: PipelineClient) -> None:
    scope = Scope(client, one=("*", "each"), two=("*", "each"), three=("*", "micro"))
    assert scope.orderer.max_events == 5_000
    assert Scope(client, legs=("*", "micro")).orderer.max_events == 20_000


def test_windows_and_debounces_keep_held_events_over_restarts(api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, each=("*", "each"), three=("*", Window(3)), quiet=("*", Debounce(seconds=2)))
    api.feed([leg("1", trigger), leg("2", trigger)])
    first = scope.next()
    assert scope.told(first) == [("each", ["1"]), ("each/1", ["2"])]
    assert (held(first), first.plan.cursor.low_watermark) == (4, 0)
    scope.start()
    api.feed([leg("3", trigger), leg("4", trigger)])
    second = scope.next(clock=1)
    assert scope.told(second)[2:] == [("three", ["1", "2", "3"])]
    assert column(second.runs[2], "position") == [1, 2, 3]
    scope.start()
    third = scope.next(clock=3)
    assert scope.told(third) == [("quiet", ["1", "2", "3", "4"])]
    assert third.plan.cursor.low_watermark == 3  # the window still holds the fourth
    assert (held(third), scope.state.keys() >= {"held/1/times"}, any(key.startswith("held/2/") for key in scope.state)) == (1, True, False)


def test_held_events_of_a_removed_pipeline_are_released_by_the_next_plan(api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, three=("*", Window(3)))
    api.feed([leg("1", trigger), leg("2", trigger)])
    assert scope.next().runs == []
    scope.pipelines = []
    scope.start()
    assert scope.orderer.holds_for_removed
    removed = scope.next()
    assert scope.told(removed) == [("three", ["1", "2"])]
    assert [(run.table, run.format) for run in removed.plan.runs] == [(None, None)]
    assert [key for key in scope.state if key.startswith("held/")] == []


@pytest.mark.parametrize("policy", ["micro", "each"])
def test_held_events_are_released_when_the_pipeline_drops_its_window(policy: BatchPolicy, api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, legs=("*", Window(5)))
    api.feed([leg("1", trigger), leg("2", trigger)])
    scope.next()
    scope.pipelines = Scope(client, legs=("*", policy)).pipelines
    scope.start()
    api.feed([leg("3", trigger)])
    told = scope.told(scope.next())
    assert [id for _, ids in told for id in ids] == ["1", "2", "3"]
    assert len(told) == (1 if policy == "micro" else 3)


def test_a_redriven_dead_letter_runs_once_in_its_own_pipeline(api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, legs=("*", "micro"), others=("*", "micro"))
    api.feed([leg("1", trigger), leg("2", trigger), leg("3", trigger)])
    run = {"pipeline": "legs", "scope": "flights", "batch": 0, "started": "2026-01-01T00:00:00Z", "events": 2, "seqs": [(1, 1), (3, 3)]}
    scope.next()
    scope.client.report([RunReport.model_validate({**run, "run_id": "r", "state": "failed", "error": "no", "dead_letter": "L"})])
    assert api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["L", "unknown"])).count == 1
    assert api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["L"])).count == 0
    second = scope.next()
    assert [(run.pipeline, run.dead_letter, run.slice.ranges) for run in second.runs] == [("legs", "L", [(1, 1), (3, 3)])]
    assert scope.next().runs == []
    scope.client.report([RunReport.model_validate({**run, "run_id": "r2", "state": "succeeded", "dead_letter": "L"})])
    assert api.store.pipeline_dead_letters.page(limit=1).dead_letters == []


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (None, []),
        (1, [("legs", ["1", "2", "3"]), ("others", ["1", "2"])]),
        (2, [("legs", ["2", "3"]), ("others", ["2"])]),
    ],
)
def test_a_new_scope_ignores_earlier_redrives(asked: int | None, first: list[Any], api: Api, client: PipelineClient) -> None:
    ids = api.triggers("legs.a", "other", "third")
    scope = Scope(client, legs=("legs.*", "micro"), others=("other", "micro"), thirds=("third", "micro"))
    api.feed([leg("1", ids["legs.a"]), leg("2", ids["legs.a"]), leg("3", ids["legs.a"])])
    scope.next()
    api.feed([leg("1", ids["other"]), leg("2", ids["other"])])
    run = {"pipeline": "legs", "scope": "another", "batch": 0, "started": "2026-01-01T00:00:00Z", "events": 1, "seqs": [(1, 1)]}
    failed = RunReport.model_validate({**run, "run_id": "r", "state": "failed", "error": "no", "dead_letter": "L"})
    for number in range(2):
        client.report([failed.model_copy(update={"run_id": f"r{number}"})])
        if not number:
            api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["L"]))
    scope.hold("another", asked)
    assert scope.told(scope.next()) == first
    api.feed([leg("2", ids["third"])])
    api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=["L"]))
    assert scope.told(scope.next()) == [("thirds", ["2"]), ("legs/again5", ["1"])]


def test_events_are_read_by_seq_in_pages(api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("PAGE_ROWS", "MAX_REQUESTED_EVENTS"):
        monkeypatch.setattr(f"headrace.pipeline.log_reader.{size}", 4)
    trigger = api.triggers("legs.a")["legs.a"]
    api.feed([leg(str(number), trigger) for number in range(30)])
    reader = LogReader(client, threading.Event(), 50)
    wanted = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 22, 24, 30]
    assert reader.get_by_seq(wanted).column("seq").to_pylist() == wanted
    assert isinstance(reader.read(3, 17), pa.Table)
    reader.prefetch(17)
    assert reader.read(17, 21).column("seq").to_pylist() == [18, 19, 20, 21]
    with pytest.raises(PipelineError, match="The log has 1 of 2 events"):
        reader.get_by_seq([30, 31])


def test_events_held_by_an_earlier_policy_are_planned_in_bounded_runs(
    api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipeline.ordering.orderer.MAX_RUNS", 10)
    trigger = api.triggers("legs.a")["legs.a"]
    api.feed([leg(str(number), trigger) for number in range(25)])
    scope = Scope(client, singles=("*", Window(1_000)), together=("*", Window(1_000)))
    assert scope.next().runs == []
    changed = Scope(client, singles=("*", "each"), together=("*", "micro"))
    changed.state, changed.lease, changed.max_rows = scope.state, scope.lease, 20
    changed.start()
    sizes = [[(run.pipeline, len(run.slice)) for run in changed.next().runs] for _ in range(3)]
    assert sizes == [[("singles", 1)] * 10 + [("together", 20), ("together", 5)], [("singles", 1)] * 10, [("singles", 1)] * 5]


def test_a_batch_is_bounded_with_any_options(client: PipelineClient) -> None:
    scope = Scope(client, legs=("*", "micro"))
    scope.max_rows = 10**9
    scope.start()
    assert scope.orderer.max_events == MAX_BATCH_EVENTS


@pytest.mark.slow
def test_a_plan_of_many_events_is_stored(api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """400,000 events wait for one leader, and are released at once, to pipelines that take different ones of them."""
    monkeypatch.setattr("headrace.pipeline.ordering.orderer.MAX_BATCH_EVENTS", 300_000)
    trigger, other = api.triggers("legs.a", "legs.b").values()
    count = 400_000
    scope = Scope(client, legs=("*", "micro"), odd=("legs.b", "micro"), held=("*", Window(10**9)))
    scope.max_rows = 10**9
    scope.start()
    chance = random.Random(seed := 23)
    sys.stdout.write(f"seed {seed}\n")
    parents = [0, *(chance.randrange(max(0, n - 1_000), n) for n in range(1, count))]  # a forest that a leader alone releases
    order = list(range(1, count + 1))
    chance.shuffle(order)
    for start in range(0, count, 10_000):
        api.feed(leg(f"{n}", trigger, *([other] * chance.randrange(2)), follows=f"{parents[n - 1]}") for n in order[start : start + 10_000])
    read = largest = 0
    while read < count:
        batch = scope.next()
        assert 0 < batch.plan.cursor.cursor - read <= 300_000
        largest = max(largest, len(batch.plan.model_dump_json()))
        read = batch.plan.cursor.cursor
        assert not batch.runs
    assert largest > MAX_BODY_BYTES
    api.feed([leg("0", trigger)])
    released = scope.next()
    assert released.plan.cursor.waiting == 0
    assert sum(run.events for run in released.plan.runs if run.pipeline == "legs") == count + 1
    assert max(run.events for run in released.plan.runs) <= 300_000
    assert client.state("flights") == scope.state
    assert len(list(client.open_runs("flights"))) == len(released.runs)
