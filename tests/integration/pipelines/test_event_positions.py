"""An event has one position in a scope, in all pipelines, for late firings, and after failures of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from headrace.client.pipeline import PipelineClient
from headrace.core.batching import Window
from headrace.pipeline.kernel.kernel import Kernel, KernelResult
from headrace.pipeline.ordering.event_positions import EventPositions
from headrace.pipeline.ordering.orderer import Ordered
from headrace.pipeline.runs.slices import Slice
from headrace.wire.control.jobs import CompleteJob, RegisterJob
from headrace.wire.custody.events import EventItem
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from headrace.wire.pipelines.packed_events import MARKS, PackedEvents
from headrace.wire.pipelines.plans import MAX_POSITION_SEQS
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.kit import KEY, Api, leg, running_api
from support.pipelines.scopes import Scope, column

SEEDS = [20261122, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (20261123, 20261124, 20261125))]
STEPS = 20
TRIGGERS = ("a", "b", "c")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running_api(tmp_path) as running:
        yield running


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        yield made


def outcome(ordered: Ordered, number: int, **news: Any) -> RunReport:
    run = ordered.runs[number]
    given = {"run_id": f"{run.batch}.{number}", "pipeline": run.pipeline, "scope": "flights", "batch": run.batch, "number": number}
    given |= {"started": "2026-01-01T00:00:00Z", "events": len(run.slice), "seqs": run.slice.ranges, "dead_letter": run.dead_letter}
    return RunReport.model_validate(given | news)


def test_a_late_firing_releases_leaders_first_and_includes_the_marks(api: Api, client: PipelineClient) -> None:
    ids = api.triggers("a", "b")
    scope = Scope(client, first=("a", "micro"), second=("b", "micro"))
    api.feed([leg("d", ids["a"], follows="c"), leg("y", ids["a"], follows="x")])
    assert scope.next().runs == []
    api.feed([leg("c", ids["a"])])
    ordered = scope.next()
    assert scope.told(ordered) == [("first", ["c", "d"])]
    lost = scope.next(clock=10)
    assert (scope.told(lost), column(lost.runs[0], "mark")) == ([("first", ["y"])], ["lost"])
    scope.start()
    api.feed([leg(id, ids["b"]) for id in ("d", "y", "c")])
    late = scope.next(clock=11)
    assert scope.told(late) == [("second", ["c", "d", "y"])]
    assert (column(late.runs[0], "position"), column(late.runs[0], "mark")) == ([1, 2, 3], [None, None, "lost"])


def test_an_event_older_than_the_scope_gets_one_position(api: Api, client: PipelineClient) -> None:
    ids = api.triggers("a", "b")
    scope = Scope(client, first=("a", "micro"), second=("b", "micro"))
    api.feed([leg("1", ids["a"]), leg("2", ids["a"])])
    scope.hold("later", 3)
    api.feed([leg("3", ids["a"]), leg("2", ids["b"])])
    assert [(run.pipeline, column(run, "position")) for run in runs_of(scope)] == [("first", [1]), ("second", [2])]
    third = Scope(client, first=("a", "micro"), second=("b", "micro"), third=("*", "micro"))
    third.hold("later")
    api.feed([leg("1", ids["b"])])
    assert [(run.pipeline, column(run, "id"), column(run, "position")) for run in runs_of(third)] == [("second", ["1"], [3])]


def runs_of(scope: Scope) -> list[Any]:
    ordered = scope.next()
    scope.told(ordered)
    return ordered.runs


def test_a_reset_scope_numbers_positions_from_one(api: Api, client: PipelineClient) -> None:
    ids = api.triggers("a", "b")
    scope = Scope(client, first=("a", "micro"), second=("b", "micro"))
    api.feed([leg("1", ids["a"]), leg("2", ids["a"])])
    scope.next()
    with PipelineClient(api.url, key=KEY) as other:
        client.complete(CompleteJob(state="succeeded"))
        assert api.store.scopes.reset("flights", 2) is not None
        other.register(RegisterJob(registration_id="another-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        anew = Scope(other, first=("a", "micro"), second=("b", "micro"))
        api.feed([leg("2", ids["b"])])
        assert [(run.pipeline, column(run, "position")) for run in runs_of(anew)] == [("first", [1]), ("second", [1])]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_run_has_each_event_at_the_same_position(seed: int, api: Api, client: PipelineClient) -> None:
    world = World(Random(seed), api, client)
    for _ in range(STEPS):
        world.step()
    world.settle()
    assert world.late
    assert world.redriven


class World:
    """Events in chains come shuffled and twice, triggers fire on them late, drivers restart, and runs fail and are redriven."""

    def __init__(self, random: Random, api: Api, client: PipelineClient) -> None:
        self.random = random
        self.api = api
        self.client = client
        self.ids = api.triggers(*TRIGGERS)
        self.scope = Scope(client, a=("a", "micro"), b=("b", "micro"), three=("b", Window(3)), c=("c", "each"), all=("*", "micro"))
        self.clock = 0.0
        self.made: list[tuple[str, str | None]] = []
        self.unsent: list[tuple[str, str | None]] = []
        self.places: dict[str, int] = {}
        self.leaders: dict[str, str | None] = {}
        self.letters = 0
        self.late = self.redriven = 0

    def step(self) -> None:
        for name in self.random.choices(["feed", "fire_late", "restart", "redrive"], [5, 4, 1, 2], k=2):
            getattr(self, name)()
        self.clock += self.random.choice([0, 1, 6])
        self.check(self.scope.next(clock=self.clock))

    def settle(self) -> None:
        self.api.feed([self.item(*one) for one in self.unsent])
        self.fire_late()
        for _ in range(3):
            self.clock += 11
            self.check(self.scope.next(clock=self.clock))
        numbers = sorted(self.places.values())
        assert len(set(numbers)) == len(numbers) == len(self.places)

    def feed(self) -> None:
        for _ in range(self.random.randrange(1, 8)):
            leader = self.random.choice(self.made)[0] if self.made and self.random.random() < 0.6 else None
            self.made.append((f"{len(self.made):03}", leader))
            self.leaders[self.made[-1][0]] = leader
            self.unsent.append(self.made[-1])
        self.random.shuffle(self.unsent)
        now, self.unsent = self.unsent[2:], self.unsent[:2]
        self.api.feed([self.item(*one) for one in now])

    def item(self, id: str, leader: str | None) -> EventItem:
        return leg(id, *(self.ids[name] for name in self.random.sample(TRIGGERS, self.random.choice([1, 1, 2]))), follows=leader)

    def fire_late(self) -> None:
        sent = [one for one in self.made if one not in self.unsent]
        again = self.random.sample(sent, min(len(sent), 4))
        self.late += len(again)
        self.api.feed([self.item(*one) for one in again])

    def restart(self) -> None:
        self.scope.hold("flights")

    def redrive(self) -> None:
        letters = [letter.id for letter in self.api.store.pipeline_dead_letters.page(limit=100).dead_letters if letter.state == "open"]
        if letters:
            self.redriven += self.api.store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(ids=letters)).count

    def check(self, ordered: Ordered) -> None:
        self.scope.told(ordered)
        for number, run in enumerate(ordered.runs):
            for id, position, mark in zip(column(run, "id"), column(run, "position"), column(run, "mark"), strict=True):
                assert self.places.setdefault(id, position) == position
                leader = self.places.get(self.leaders[id] or "")
                assert leader is None or leader < position or mark == "lost"
            fails = self.random.random() < 0.2
            self.letters += fails
            news = (
                {"state": "failed", "error": "no", "dead_letter": run.dead_letter or f"letter {self.letters}"}
                if fails
                else {"state": "succeeded"}
            )
            self.client.report([outcome(ordered, number, **news)])


class Stored:
    """The blocks of a scope, as a reader that gives all of them twice."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []

    def positions(self, scope: str, seqs: list[int]) -> list[bytes]:
        return self.blocks * 2


@pytest.mark.parametrize("spread", [1, 3, MAX_POSITION_SEQS // 2, MAX_POSITION_SEQS, 10 * MAX_POSITION_SEQS])
def test_position_blocks_are_compact_and_have_each_position_once(spread: int) -> None:
    random = np.random.default_rng(7)
    seqs = random.permutation(np.arange(1, 2_001) * spread)
    marks = random.integers(0, 4, len(seqs)).astype(np.int8)
    kernel, stored = Kernel(0), Stored()
    positions = EventPositions(stored, "s", kernel)  # type: ignore[arg-type]
    kernel.position = len(seqs)
    positions.released(KernelResult(seqs, marks, np.zeros(len(seqs), dtype=np.int64)))
    blocks = positions.blocks()
    assert positions.blocks() == []
    assert all(0 <= block.last - block.first < MAX_POSITION_SEQS for block in blocks)
    assert sum(len(Slice.unpack(block.data)) for block in blocks) == len(seqs)
    first = PackedEvents.decode(blocks[0].data)
    for row in range(20):
        here = bool(blocks[0].first <= seqs[row] <= blocks[0].last)
        assert first.find(int(seqs[row])) == ((row + 1, MARKS[marks[row]]) if here else None)
    assert first.find(blocks[0].last + 1) is None
    stored.blocks = [block.data for block in blocks]
    chosen = random.choice(len(seqs), 50, replace=False)
    found = positions.of([*seqs[chosen].tolist(), 10**9])
    order = np.argsort(chosen)
    assert found.seqs.tolist() == [*seqs[chosen[order]].tolist(), 10**9]
    assert found.positions.tolist() == [*(chosen[order] + 1).tolist(), len(seqs) + 1]
    assert found.marks.tolist() == [*marks[chosen[order]].tolist(), 0]
    assert positions.of([10**9]).positions.tolist() == [len(seqs) + 1]
    assert len(positions.blocks()) == 1
