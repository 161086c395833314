"""The ordering of a scope against the real api, without a JVM: what a batch gives, holds, and gives again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.pipeline import PipelineClient
from headrace.core.batching import BatchPolicy, Debounce, Window
from headrace.errors import PipelineError
from headrace.pipeline import orderer as module
from headrace.pipeline.bounds import Begin, Bounds
from headrace.pipeline.driver import beginning
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.orderer import Ordered, Orderer
from headrace.pipeline.ordering_file import OrderingFiles
from headrace.project import Project
from headrace.wire.jobs import RegisterJob
from headrace.wire.pipeline_letters import ActOnPipelineLetters
from headrace.wire.runs import RunReport
from pipeline_kit import KEY, Api, leg, running_api
from store_kit import TurnedClock

SECOND = 1_000_000
LOOKBACK = 10 * SECOND


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running_api(tmp_path) as running:
        yield running


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        yield made


class Scope:
    """A scope's batches, one after the other, by as many processes as one likes."""

    def __init__(self, client: PipelineClient, folder: Path, **pipelines: tuple[str, BatchPolicy]) -> None:
        self.client = client
        self.files = OrderingFiles(folder / "ordering")
        project = Project("flights")
        for name, (on, batch) in pipelines.items():
            project.pipeline(on=on, name=name, batch=batch)(lambda events: None)
        self.pipelines = list(project.pipelines.values())
        self.begin_at(Begin(0))

    def begin_at(self, begin: Begin) -> None:
        """Begin anew, as with --reset-order."""
        self.begin, self.batch, self.last = begin, -1, Bounds(begin.seq, begin.seq, begin.again, begin.again, 0)
        self.start()

    def start(self) -> None:
        """Begin as a new process does."""
        self.orderer = Orderer(self.pipelines, LogReader(self.client, lambda: False, 50), self.files, LOOKBACK, "flights", self.begin)

    def next(self, clock: float = 0) -> Ordered:
        """Order all that is new."""
        head = self.client.news()
        self.batch += 1
        self.last = Bounds(self.last.to, head.head, self.last.again_to, head.again, int(clock * SECOND))
        return self.again()

    def again(self) -> Ordered:
        """Order the last batch (again)."""
        return self.orderer.order(self.batch, self.last)


def told(ordered: Ordered) -> list[tuple[str, list[str]]]:
    return [(part.name, part.table.column("id").to_pylist()) for part in ordered.slices]


def test_what_waits_stays_in_the_log_and_comes_with_its_leader(
    api: Api, client: PipelineClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CACHED", 0)
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, tmp_path, legs=("*", "micro"))
    api.feed([leg("c", trigger, follows="b"), leg("x", trigger), leg("b", trigger, follows="a")])
    first = scope.next()
    assert told(first) == [("legs", ["x"])]
    assert (first.holdings.waiting, first.holdings.kept) == (2, 0)
    assert [each.seq for each in first.holdings.report.waits] == [1, 3]
    api.feed([leg("a", trigger, n=7)])
    second = scope.next(clock=3)
    assert told(second) == [("legs", ["a", "b", "c"])]
    assert second.slices[0].table.column("position").to_pylist() == [2, 3, 4]
    assert second.slices[0].table.column("waited").to_pylist() == [0, 3, 3]
    assert second.slices[0].seqs == [(1, 1), (3, 4)]
    assert (second.holdings.kept, second.holdings.report.holds) == (4, [0, 0, 2, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("wrong", [-3_600, 3_600])
def test_a_wrong_clock_of_the_api_gives_up_no_leader_early_and_none_late(tmp_path: Path, wrong: int) -> None:
    clock = TurnedClock()
    with running_api(tmp_path, clock=clock) as api, PipelineClient(api.url, key=KEY) as client:
        client.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        trigger = api.triggers("legs.a")["legs.a"]
        scope = Scope(client, tmp_path, legs=("*", "micro"))
        clock.set(wrong)
        api.feed([leg("b", trigger, follows="a"), leg("f", trigger, follows="e")])
        assert told(scope.next()) == []
        clock.set(-wrong)
        api.feed([leg("d", trigger, follows="c")])
        assert told(scope.next(clock=1)) == []
        api.feed([leg("a", trigger), leg("c", trigger)])
        table = scope.next(clock=9).slices[0].table
        ids, marks, received = (table.column(name).to_pylist() for name in ("id", "mark", "received"))
        assert (ids[:2], set(ids[2:]), marks) == (["a", "c"], {"b", "d"}, [None] * 4)
        came = dict(zip(ids, received, strict=True))
        assert (came["b"] - came["a"]).total_seconds() == wrong, "the log says when they came by a clock that was wrong"
        given_up = scope.next(clock=10)
        assert (told(given_up), given_up.slices[0].table.column("mark").to_pylist()) == ([("legs", ["f"])], ["lost"])


def test_a_batch_that_runs_again_gives_the_same_in_the_same_process_or_another(api: Api, client: PipelineClient, tmp_path: Path) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, tmp_path, legs=("*", "micro"))
    api.feed([leg("b", trigger, follows="a"), leg("d", trigger, follows="c")])
    scope.next()
    api.feed([leg("a", trigger), leg("c", trigger)])
    once = scope.next()
    api.feed([leg("late", trigger)])
    for start_anew in (False, True):
        if start_anew:
            scope.start()
        again = scope.again()
        assert [part.table.to_pylist() for part in again.slices] == [part.table.to_pylist() for part in once.slices]
        assert again.holdings == once.holdings


def test_a_firing_that_comes_after_its_event_was_handled_brings_it_to_those_who_had_it_not(
    api: Api, client: PipelineClient, tmp_path: Path
) -> None:
    ids = api.triggers("legs.a", "legs.b", "other")
    scope = Scope(client, tmp_path, legs=("legs.*", "micro"), others=("other", "micro"))
    api.feed([leg("1", ids["legs.a"]), leg("2", ids["legs.a"])])
    assert told(scope.next()) == [("legs", ["1", "2"])]
    api.feed([leg("1", ids["legs.b"], ids["other"]), leg("3", ids["other"])])
    second = scope.next()
    assert told(second) == [("others", ["3", "1"])]  # the pipeline `legs` has had it by another trigger
    assert second.slices[0].table.column("position").to_pylist() == [3, 4]
    api.feed([leg("1", ids["other"])])
    assert told(scope.next()) == []


def test_a_firing_on_an_event_that_waits_comes_with_it(api: Api, client: PipelineClient, tmp_path: Path) -> None:
    ids = api.triggers("legs.a", "other")
    scope = Scope(client, tmp_path, legs=("legs.*", "micro"), others=("other", "micro"))
    api.feed([leg("b", ids["legs.a"], follows="a")])
    scope.next()
    api.feed([leg("b", ids["other"])])
    scope.next()
    scope.start()
    api.feed([leg("a", ids["legs.a"])])
    assert told(scope.next()) == [("legs", ["a", "b"]), ("others", ["b"])]


def test_a_batch_that_runs_again_does_not_see_what_fired_since(api: Api, client: PipelineClient, tmp_path: Path) -> None:
    ids = api.triggers("legs.a", "other")
    scope = Scope(client, tmp_path, legs=("legs.*", "micro"), others=("other", "micro"))
    api.feed([leg("1", ids["legs.a"])])
    once = scope.next()
    api.feed([leg("1", ids["other"])])
    scope.start()
    assert told(scope.again()) == told(once) == [("legs", ["1"])]
    assert told(scope.next()) == [("others", ["1"])]


def test_windows_and_debounces_hold_every_event_over_restarts(api: Api, client: PipelineClient, tmp_path: Path) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, tmp_path, each=("*", "each"), three=("*", Window(3)), quiet=("*", Debounce(seconds=2)))
    api.feed([leg("1", trigger), leg("2", trigger)])
    first = scope.next()
    assert told(first) == [("each", ["1"]), ("each/1", ["2"])]
    assert (first.holdings.report.held, first.holdings.kept) == (4, 0)
    scope.start()
    api.feed([leg("3", trigger), leg("4", trigger)])
    second = scope.next(clock=1)
    assert told(second)[2:] == [("three", ["1", "2", "3"])]
    assert second.slices[2].table.column("position").to_pylist() == [1, 2, 3]
    scope.start()
    third = scope.next(clock=3)
    assert told(third) == [("quiet", ["1", "2", "3", "4"])]
    assert third.holdings.kept == 3  # the window still holds the fourth


def test_a_dead_letter_that_is_redriven_comes_once_to_its_own_pipeline(api: Api, client: PipelineClient, tmp_path: Path) -> None:
    trigger = api.triggers("legs.a")["legs.a"]
    scope = Scope(client, tmp_path, legs=("*", "micro"), others=("*", "micro"))
    api.feed([leg("1", trigger), leg("2", trigger), leg("3", trigger)])
    run = {"pipeline": "legs", "scope": "flights", "batch": 0, "started": "2026-01-01T00:00:00Z", "events": 2, "seqs": [(1, 1), (3, 3)]}
    scope.next()
    scope.client.report([RunReport.model_validate({**run, "run_id": "r", "state": "failed", "error": "no", "letter": "L"})])
    assert api.store.pipeline_letters.act("redrive", ActOnPipelineLetters(ids=["L", "unknown"])).count == 1
    assert api.store.pipeline_letters.act("redrive", ActOnPipelineLetters(ids=["L"])).count == 0
    second = scope.next()
    assert [(part.pipeline.name, part.letter, part.seqs) for part in second.slices] == [("legs", "L", [(1, 1), (3, 3)])]
    assert scope.next().slices == []
    scope.client.report([RunReport.model_validate({**run, "run_id": "r2", "state": "succeeded", "letter": "L"})])
    assert api.store.pipeline_letters.page(limit=1).letters == []


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (None, []),
        (1, [("legs", ["1", "2", "3"]), ("others", ["1", "2"])]),
        (2, [("legs", ["2", "3"]), ("others", ["2"])]),
    ],
)
def test_a_new_scope_leaves_alone_what_was_given_again_before_it(
    asked: int | None, first: list[Any], api: Api, client: PipelineClient, tmp_path: Path
) -> None:
    ids = api.triggers("legs.a", "other", "third")
    scope = Scope(client, tmp_path, legs=("legs.*", "micro"), others=("other", "micro"), thirds=("third", "micro"))
    api.feed([leg("1", ids["legs.a"]), leg("2", ids["legs.a"]), leg("3", ids["legs.a"])])
    scope.next()
    api.feed([leg("1", ids["other"]), leg("2", ids["other"])])
    run = {"pipeline": "legs", "scope": "flights", "batch": 0, "started": "2026-01-01T00:00:00Z", "events": 1, "seqs": [(1, 1)]}
    failed = RunReport.model_validate({**run, "run_id": "r", "state": "failed", "error": "no", "letter": "L"})
    for number in range(2):
        client.report([failed.model_copy(update={"run_id": f"r{number}"})])
        if not number:
            api.store.pipeline_letters.act("redrive", ActOnPipelineLetters(ids=["L"]))
    scope.files = OrderingFiles(tmp_path / "anew")
    scope.begin_at(beginning(client, asked))
    assert told(scope.next()) == first
    api.feed([leg("2", ids["third"])])
    api.store.pipeline_letters.act("redrive", ActOnPipelineLetters(ids=["L"]))
    assert told(scope.next()) == [("thirds", ["2"]), ("legs/again5", ["1"])]


@pytest.mark.parametrize("asked", [5, 2**70])
def test_a_scope_cannot_begin_beyond_the_end_of_the_log(asked: int, api: Api, client: PipelineClient) -> None:
    ids = api.triggers("legs.a")
    api.feed([leg("1", ids["legs.a"]), leg("2", ids["legs.a"]), leg("3", ids["legs.a"])])
    assert beginning(client, 4).seq == 3
    with pytest.raises(PipelineError, match="The event log ends at event 3") as refused:
        beginning(client, asked)
    assert "--from now" in (refused.value.hint or "")


def test_an_ordering_that_is_gone_is_told(client: PipelineClient, tmp_path: Path) -> None:
    scope = Scope(client, tmp_path, legs=("*", "micro"))
    scope.batch = 5
    with pytest.raises(PipelineError, match="What the scope held after batch 5 is not in") as caught:
        scope.next()
    assert "--reset-order" in (caught.value.hint or "")


def test_many_events_are_picked_in_portions(api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("PAGE_ROWS", "MOST_PICKED"):
        monkeypatch.setattr(f"headrace.pipeline.log_reader.{size}", 4)
    trigger = api.triggers("legs.a")["legs.a"]
    api.feed([leg(str(number), trigger) for number in range(30)])
    reader = LogReader(client, lambda: False, 50)
    wanted = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 22, 24, 30]
    assert reader.pick(wanted).column("seq").to_pylist() == wanted
    assert isinstance(reader.read(3, 17), pa.Table)
    reader.look_ahead(17)
    assert reader.read(17, 21).column("seq").to_pylist() == [18, 19, 20, 21]
    with pytest.raises(PipelineError, match="The log has 1 of 2 events"):
        reader.pick([30, 31])
