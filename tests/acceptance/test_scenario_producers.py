"""A custom producer that sleeps, holds the interpreter lock, uses all CPU time or ends its process does not delay other triggers."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acceptance.test_scenario_isolation import children, runner_of
from scenario_triggers import BlockingQueue
from support.processes.deployment import Deployment, Feed, Oracle, Trigger, project_text, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

WATCH = Trigger("watch", declared=True)


class Scene:
    """A watch on a queue of Headrace's own, and two users' producers, of which one misbehaves `how`; each with a queue."""

    def __init__(self, folder: Path, **how: Any) -> None:
        self.folder = folder
        self.once = folder / "misbehaved"
        self.pids = folder / "pids"
        self.pids.mkdir()
        self.own, self.good, self.bad = Feed(folder / "own-q"), Feed(folder / "good-q"), Feed(folder / "bad-q")
        self._how = {"once": str(self.once), **how}
        self.sent = 0

    def project(self) -> str:
        """Return the project file."""
        good = BlockingQueue(self.good.path, how={"pids": str(self.pids)})
        bad = BlockingQueue(self.bad.path, how=self._how)
        text = project_text(self.own.queue, [WATCH])
        text += Trigger("good.watch", declared=True).text(good) + "\n" + Trigger("good.trigger").text(good) + "\n"
        return text + Trigger("bad.watch", declared=True).text(bad) + "\n" + Trigger("bad.trigger").text(bad) + "\n"

    def send(self, count: int) -> None:
        """Send so many messages to each queue."""
        self.sent += count
        for feed in (self.own, self.good, self.bad):
            feed.send(count)

    def misbehaves(self) -> bool:
        """Whether it has; until then messages go on coming: a lane is asked for its end only while something of it is under way."""
        if not self.once.exists():
            self.send(10)
        return self.once.exists()


@pytest.fixture
def feeds() -> Iterator[list[Feed]]:
    found: list[Feed] = []
    yield found
    for feed in found:
        feed.__exit__()


def begin(deployment: Deployment, scene: Scene, feeds: list[Feed]) -> Any:
    for feed in (scene.own, scene.good, scene.bad):
        feed.__enter__()
        feeds.append(feed)
    return deployment.triggerer(deployment.project(scene.project()))


def numbers(deployment: Deployment, name: str) -> Counter[int]:
    """Return how often a trigger is in the log as fired on each message, and check that each lane is in order."""
    query = (
        "SELECT e.payload FROM events e JOIN firings f ON f.seq = e.seq JOIN triggers t ON t.id = f.trigger_id"
        " WHERE t.name = ? ORDER BY e.seq"
    )
    found = [msgspec.json.decode(payload)["n"] for (payload,) in deployment.rows(query, name)]
    for lane in range(4):
        mine = [n for n in found if n % 4 == lane]
        assert mine == sorted(mine), f"{name} is not in order in lane {lane}"
    return Counter(found)


def all_of(deployment: Deployment, oracle: Oracle, names: tuple[str, ...], count: int) -> None:
    until(lambda: all(oracle.counts().get(name, 0) >= count for name in names), f"{names} fire {count} times: {oracle.counts()}")
    for name in names:
        assert numbers(deployment, name) == Counter(range(count)), name


def failures_of_others(deployment: Deployment) -> list[tuple[str, str]]:
    """Return the triggers that failed although their producer did nothing wrong, with their failures."""
    return deployment.rows("SELECT name, failure FROM triggers WHERE failures > 0 AND name NOT LIKE 'bad%'")


INNOCENT = ("watch", "good.watch", "good.trigger")
BAD = ("bad.watch", "bad.trigger")


@pytest.mark.parametrize(
    ("where", "block"),
    [
        ("poll", 600),
        ("poll", "regex"),
        ("advance", 600),
        *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in [("poll", "burn"), ("lane", 600), ("init", 600), ("end", "burn")]),
    ],
)
def test_other_triggers_continue_while_a_producer_blocks(tmp_path: Path, feeds: list[Feed], where: str, block: float | str) -> None:
    with Deployment(tmp_path, stuck_timeout=600) as deployment:
        scene = Scene(tmp_path, where=where, block=block, at=50, again=True)
        triggerer = begin(deployment, scene, feeds)
        oracle = Oracle(deployment, scene.own)
        scene.send(100)
        until(scene.misbehaves, "the producer blocks")
        runner = runner_of(triggerer)
        scene.send(1500)
        all_of(deployment, oracle, INNOCENT, scene.sent)
        until(lambda: scene.own.left() == scene.good.left() == 0, "the other upstreams are advanced")
        assert failures_of_others(deployment) == []
        assert children(triggerer.pid) == [runner], "the runner never ended"
        assert deployment.rows("SELECT state FROM jobs") == [("running",)]
        # It was alone in its process, or the others have begun again in another, once.
        assert len(list(scene.pids.iterdir())) <= 2


@pytest.mark.parametrize(
    ("where", "block"), [("poll", 600), ("poll", "exit"), ("advance", "segfault"), ("poll", "SystemExit"), ("init", "raise")]
)
def test_a_producer_restarts_after_it_blocked_or_ended_its_process(
    tmp_path: Path, feeds: list[Feed], where: str, block: float | str
) -> None:
    with Deployment(tmp_path, stuck_timeout=3) as deployment:
        scene = Scene(tmp_path, where=where, block=block, at=50)
        triggerer = begin(deployment, scene, feeds)
        oracle = Oracle(deployment, scene.own)
        scene.send(400)
        until(scene.once.exists, "the producer misbehaves")
        runner = runner_of(triggerer)
        scene.send(400)
        all_of(deployment, oracle, INNOCENT, 800)
        all_of(deployment, oracle, BAD, 800)
        until(lambda: scene.own.left() == scene.good.left() == scene.bad.left() == 0, "all is advanced")
        assert children(triggerer.pid) == [runner], "the runner never ended"
        assert failures_of_others(deployment) == []
        assert triggerer.stop() == 0


def test_a_stuck_producer_is_reported_with_its_stack(tmp_path: Path, feeds: list[Feed]) -> None:
    with Deployment(tmp_path, stuck_timeout=3) as deployment:
        scene = Scene(tmp_path, where="poll", block=600, at=0, again=True)
        triggerer = begin(deployment, scene, feeds)
        scene.bad.send(10)
        until(lambda: all_failed(deployment), "its triggers have failed")
        failures = dict(deployment.rows("SELECT name, failure FROM triggers WHERE name LIKE 'bad%'"))
        for name, failure in failures.items():
            assert "scenario_triggers.py" in failure, (name, failure)
            assert "_block" in failure, (name, failure)
        log = (tmp_path / f"{triggerer.name}.log").read_text()
        assert "The producer of queue:" in log


def all_failed(deployment: Deployment) -> bool:
    rows = deployment.rows("SELECT failure FROM triggers WHERE name LIKE 'bad%'")
    return len(rows) == 2 and all(failure is not None for (failure,) in rows)


def test_a_killed_producer_process_neither_loses_nor_repeats_events(tmp_path: Path, feeds: list[Feed]) -> None:
    with Deployment(tmp_path) as deployment:
        scene = Scene(tmp_path)
        triggerer = begin(deployment, scene, feeds)
        oracle = Oracle(deployment, scene.own)
        runner = runner_of(triggerer)
        for round in range(3):
            scene.send(400)
            oracle.fired("good.watch", 400 * round + 100)
            for pid in [int(one.name) for one in scene.pids.iterdir()]:
                if pid in children(runner):
                    os.kill(pid, signal.SIGKILL)
        all_of(deployment, oracle, (*INNOCENT, *BAD), 1200)
        until(lambda: scene.own.left() == scene.good.left() == scene.bad.left() == 0, "all is advanced")
        assert children(triggerer.pid) == [runner]
        assert triggerer.stop() == 0


def test_a_producer_that_never_closes_does_not_block_other_triggers(tmp_path: Path, feeds: list[Feed]) -> None:
    with Deployment(tmp_path, stuck_timeout=600) as deployment:
        scene = Scene(tmp_path, where="aclose", block=600)
        triggerer = begin(deployment, scene, feeds)
        oracle = Oracle(deployment, scene.own)
        scene.send(100)
        all_of(deployment, oracle, (*INNOCENT, *BAD), 100)
        # Its triggers are gone from the project, so that it is closed; the others stay.
        text = "\n".join(line for line in scene.project().splitlines() if "bad." not in line)
        runner = runner_of(triggerer)
        other = deployment.triggerer(deployment.project(text, "other.py"))
        until(scene.once.exists, "it is closed")
        scene.own.send(500)
        scene.good.send(500)
        all_of(deployment, oracle, INNOCENT, 600)
        assert children(triggerer.pid) == [runner]
        assert other.popen.poll() is None


def test_a_project_without_custom_producers_has_no_producer_process(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, [WATCH, Trigger("alone")])))
        oracle = Oracle(deployment, feed)
        feed.send(100)
        oracle.fired("alone", 100)
        # One for the trigger.
        assert len(children(runner_of(triggerer))) == 1
