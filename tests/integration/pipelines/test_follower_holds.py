"""Pipelines with `on_failure="hold"` against the real API, without a JVM: followers of a dead letter are held, other events are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.client import plan_pages
from headrace.client.pipeline import PipelineClient
from headrace.core.batching import Window
from headrace.pipeline.execution.returned_runs import ReturnedRuns
from headrace.pipeline.ordering.orderer import Ordered, pending_events
from headrace.pipeline.runs.run import Run
from headrace.wire.control.jobs import RegisterJob
from headrace.wire.custody.events import EventItem
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterAction, PipelineDeadLetterSelection
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.kit import KEY, Api, leg, running_api
from support.pipelines.scopes import Scope, column

SEEDS = [20261122, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (20261123, 20261124))]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running_api(tmp_path) as running:
        yield running


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        yield made


class Driver:
    """Plans batches and "executes" their runs as a driver does: `fails` says on which events the pipelines fail."""

    def __init__(self, api: Api, client: PipelineClient, scope: Scope, fails: Callable[[str], bool]) -> None:
        self.api, self.client, self.scope, self.fails = api, client, scope, fails
        self.returned = ReturnedRuns()
        self.done: dict[str, list[str]] = {}
        self.clock = 0.0

    def go_on(self, batches: int = 1) -> None:
        for _ in range(batches):
            ordered = self.scope.next(self.clock, {pipe.name for pipe in self.scope.pipelines}, self.returned.take())
            self.scope.told(ordered)
            for number, run in enumerate(ordered.runs):
                self.execute(ordered, number, run)

    def until_idle(self) -> None:
        for _ in range(200):
            self.go_on()
            orderer = self.scope.orderer
            if not len(self.returned) and not orderer.has_free and not orderer.has_news(orderer.holding):
                return
        raise AssertionError("it never comes to rest")

    def execute(self, ordered: Ordered, number: int, run: Run) -> None:
        ids = column(run, "id")
        if not any(map(self.fails, ids)):
            self.returned.succeeded(run)
            self.done.setdefault(run.pipeline, []).extend(ids)
            self.report(run, state="succeeded", dead_letter=run.dead_letter)
        elif self.scope.pipelines[0].batch == "micro" and self.returned.failed(run):
            self.report(run, state="failed", error="no")
            self.returned.add(run)
        else:
            self.report(run, state="failed", error="no", dead_letter=run.dead_letter or f"letter of {ids[0]} at {run.batch}")

    def report(self, run: Run, **news: Any) -> None:
        given = {"run_id": f"{run.batch}.{run.number}", "pipeline": run.pipeline, "scope": "flights", "batch": run.batch}
        given |= {"number": run.number, "started": "2026-01-01T00:00:00Z", "events": len(run.slice), "seqs": run.slice.ranges}
        self.client.report([RunReport.model_validate(given | news)])

    def act(self, action: PipelineDeadLetterAction, *ids: str) -> None:
        assert self.api.store.pipeline_dead_letters.act(action, PipelineDeadLetterSelection(ids=list(ids))).count == len(ids)

    def letters(self) -> list[str]:
        return sorted(letter.id for letter in self.api.store.pipeline_dead_letters.page(limit=1_000).dead_letters if letter.state == "open")

    def held(self) -> int:
        status = self.scope.lease.cursor.report
        assert status is not None
        return status.held


@pytest.mark.parametrize("policy", ["micro", "each", Window(2)])
def test_followers_at_any_depth_wait_for_the_dead_letter(policy: Any, api: Api, client: PipelineClient) -> None:
    ids = api.triggers("a", "b")
    bad = {"1"}
    driver = Driver(api, client, Scope(client, "hold", legs=("a", policy)), lambda event: event in bad)
    # 1 <- 2 <- x (not taken) <- 3, and 9 by itself
    chain = [leg("1", ids["a"]), leg("2", ids["a"], follows="1"), leg("x", ids["b"], follows="2"), leg("3", ids["a"], follows="x")]
    api.feed([*chain, leg("9", ids["a"])])
    driver.until_idle()
    if isinstance(policy, Window):
        assert (len(driver.letters()), driver.done) == (1, {})
        assert driver.held() == 2, "9 is in the letter, with the rest of its window"
        return
    assert driver.done == {"legs": ["9"]}
    assert (len(driver.letters()), driver.held()) == (1, 2)
    assert {name: seqs.tolist() for name, seqs in pending_events(driver.scope.state)[1].items()} == {"legs": [2, 4]}, "as the audit sees it"
    assert driver.scope.lease.cursor.low_watermark == 1, "the log keeps what is held"
    driver.scope.hold("flights")  # another driver
    driver.returned = ReturnedRuns()
    api.feed([leg("4", ids["a"], follows="3"), leg("8", ids["a"], follows="9")])
    driver.until_idle()
    assert driver.done == {"legs": ["9", "8"]}
    bad.clear()
    driver.act("redrive", *driver.letters())
    driver.until_idle()
    assert driver.done == {"legs": ["9", "8", "1", "2", "3", "4"]}
    assert (driver.letters(), driver.held()) == ([], 0)
    assert [key for key in driver.scope.state if key.startswith("held/")] == []


def test_a_discarded_dead_letter_releases_its_followers(api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("a")["a"]
    driver = Driver(api, client, Scope(client, "hold", legs=("a", "micro")), lambda event: event.startswith("bad"))
    api.feed([leg("bad 1", trigger), leg("bad 2", trigger), leg("of both", trigger, follows="bad 1"), leg("2", trigger, follows="bad 2")])
    driver.until_idle()
    assert (driver.done, driver.held(), len(driver.letters())) == ({}, 2, 2)
    first, second = driver.letters()
    driver.act("discard", second)
    driver.until_idle()
    assert (driver.done, driver.held()) == ({"legs": ["2"]}, 1)
    driver.act("redrive", first)
    driver.until_idle()
    assert (driver.done, driver.held(), driver.letters()) == ({"legs": ["2"]}, 1, [first]), "it failed once more"
    driver.act("discard", first)
    driver.until_idle()
    assert (driver.done, driver.held()) == ({"legs": ["2", "of both"]}, 0)


@pytest.mark.parametrize("policy", ["micro", "each"])
def test_a_change_to_release_runs_the_held_events_first(policy: Any, api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("a")["a"]
    driver = Driver(api, client, Scope(client, "hold", legs=("a", policy)), lambda event: event == "1")
    api.feed([leg("1", trigger), leg("2", trigger, follows="1"), leg("3", trigger, follows="2")])
    driver.until_idle()
    assert (driver.done, driver.held()) == ({}, 2)
    driver.scope = Scope(client, "release", legs=("a", policy))
    api.feed([leg("4", trigger, follows="3")])
    driver.go_on()
    assert (driver.done, driver.held()) == ({"legs": ["2", "3", "4"]}, 0)


def test_held_events_of_a_removed_pipeline_are_released(api: Api, client: PipelineClient) -> None:
    trigger = api.triggers("a")["a"]
    driver = Driver(api, client, Scope(client, "hold", legs=("a", "micro")), lambda event: event == "1")
    api.feed([leg("1", trigger), leg("2", trigger, follows="1"), leg("3", trigger, follows="2")])
    driver.until_idle()
    driver.scope = Scope(client, "release", others=("a", "micro"))
    assert driver.scope.orderer.holds_for_removed
    removed = driver.scope.next()
    assert driver.scope.told(removed) == [("legs", ["2", "3"])]
    assert [(run.table, run.format) for run in removed.plan.runs] == [(None, None)]


@pytest.mark.parametrize("page", [1, plan_pages.MAX_PAGE_BYTES])
def test_a_failed_run_is_open_until_a_plan_takes_it_back(
    page: int, api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_pages, "MAX_PAGE_BYTES", page)
    trigger = api.triggers("a")["a"]
    scope = Scope(client, "hold", legs=("a", "micro"))
    driver = Driver(api, client, scope, lambda event: event == "2")
    api.feed([leg(str(number), trigger) for number in range(4)])
    driver.go_on()
    assert len(driver.returned) == 1
    assert [len(Run.opened(run).slice) for run in client.open_runs("flights")] == [4], "a driver that ends here loses nothing"
    driver.go_on()
    assert client.open_runs("flights") == []
    driver.until_idle()
    assert driver.done == {"legs": ["0", "1", "3"]}
    assert len(driver.letters()) == 1


@pytest.mark.parametrize("policy", ["micro", "each"])
@pytest.mark.parametrize("seed", SEEDS)
def test_each_event_is_processed_once_after_its_leaders_or_held(seed: int, policy: Any, api: Api, client: PipelineClient) -> None:
    World(Random(seed), api, client, policy).run()


class World:
    """Forests of events, taken or not by the pipeline; events fail, letters are redriven and discarded, and drivers change."""

    def __init__(self, random: Random, api: Api, client: PipelineClient, policy: Any) -> None:
        self.random, self.api = random, api
        self.ids = api.triggers("a", "b")
        self.bad: set[str] = set()
        self.leaders: dict[str, str | None] = {}
        self.taken: list[str] = []
        self.discarded: set[str] = set()
        self.driver = Driver(api, client, Scope(client, "hold", legs=("a", policy)), lambda event: event in self.bad)

    def run(self) -> None:
        for _ in range(12):
            self.api.feed([self.made() for _ in range(self.random.randrange(1, 10))])
            self.driver.go_on(self.random.randrange(3))
            if self.random.random() < 0.3:
                self.driver.scope.hold("flights")
                self.give_up_runs()
            self.driver.until_idle()
            self.check()
            self.act()
        self.bad.clear()
        if self.driver.letters():
            self.driver.act("redrive", *self.driver.letters())
        self.driver.until_idle()
        self.check()
        assert (self.driver.held(), self.driver.letters()) == (0, [])
        assert sorted([*self.driver.done.get("legs", []), *self.discarded]) == sorted(self.taken)

    def give_up_runs(self) -> None:
        """Let the next driver execute the runs that were open."""
        self.driver.returned = ReturnedRuns()
        for run in map(Run.opened, self.driver.client.open_runs("flights")):
            run.events = self.driver.scope.reader.events(run.slice)
            self.driver.execute(None, 0, run)  # type: ignore[arg-type]

    def made(self) -> EventItem:
        id = f"{len(self.leaders):03}"
        leader = self.random.choice([*self.leaders][-20:]) if self.leaders and self.random.random() < 0.8 else None
        self.leaders[id] = leader
        trigger = "a" if self.random.random() < 0.7 else "b"
        if trigger == "a":
            self.taken.append(id)
            if self.random.random() < 0.15:
                self.bad.add(id)
        return leg(id, self.ids[trigger], follows=leader)

    def above(self, id: str) -> list[str]:
        found: list[str] = []
        leader = self.leaders[id]
        while leader is not None:
            found.append(leader)
            leader = self.leaders[leader]
        return found

    def check(self) -> None:
        done = self.driver.done.get("legs", [])
        assert len(set(done)) == len(done)
        place = {id: number for number, id in enumerate(done)}
        for id in done:
            for leader in self.above(id):
                assert leader not in self.taken or leader in self.discarded or place[leader] < place[id]
        dead = {id for id in self.taken if id in self.bad and id not in place and id not in self.discarded}
        free = [id for id in self.taken if id not in dead and id not in self.discarded and not dead.intersection(self.above(id))]
        assert set(free) <= set(done), "all that follows nothing bad goes on"

    def act(self) -> None:
        letters = {
            letter.id: letter for letter in self.api.store.pipeline_dead_letters.page(limit=1_000).dead_letters if letter.state == "open"
        }
        for id in self.random.sample(sorted(letters), min(len(letters), 2)):
            if self.random.random() < 0.3:
                (seq, _), *_ = letters[id].seqs
                self.discarded |= {event for number, event in enumerate(self.leaders, 1) if number == seq}
                self.driver.act("discard", id)
            else:
                if self.random.random() < 0.6:
                    self.bad.discard(f"{letters[id].seqs[0][0] - 1:03}")
                self.driver.act("redrive", id)


def test_a_run_has_at_most_the_events_of_a_batch_with_any_options(
    api: Api, client: PipelineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipeline.ordering.orderer.MAX_BATCH_EVENTS", 4)
    (trigger,) = api.triggers("legs.a").values()
    scope = Scope(client, "hold", legs=("*", "micro"))
    scope.max_rows = 10**9
    scope.start()
    api.feed(leg(f"{n}", trigger) for n in range(10))
    sizes = [len(run.slice) for _ in range(2) for run in scope.next().runs]  # no pipeline is idle
    for _ in range(4):
        sizes += [len(run.slice) for run in scope.next(idle={"legs"}).runs]
    assert sizes == [4, 4, 2]
