"""`advance` that fails 20 times, blocks indefinitely, or fails or blocks on one lane of eight."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenario_triggers import TroubledQueue
from support.processes.deployment import Deployment, Feed, Oracle, Trigger, project_text, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

TRIGGERS = [Trigger("a"), Trigger("b"), Trigger("even", declared=True, match={"half": ["even"]})]


@pytest.mark.parametrize("how", [{"raise": 20}, {"hang": 3}], ids=["raises 20 times", "hangs for ever"])
def test_a_failed_advance_neither_loses_nor_repeats_events(tmp_path: Path, how: dict[str, int]) -> None:
    with Deployment(tmp_path, advance_timeout=1) as deployment, Feed(tmp_path / "q", lanes=2) as feed:
        upstream = TroubledQueue(feed.path, how=how)
        deployment.triggerer(deployment.project(project_text(upstream, TRIGGERS)))
        oracle = Oracle(deployment, feed)
        feed.send(500)
        oracle.fired("a", 500)
        feed.send(500)
        expected = {"a": range(1000), "b": range(1000), "even": range(0, 1000, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        oracle.balanced({"a": 1000, "b": 1000, "even": 500}, 1000)


@pytest.mark.parametrize("what", ["raise_until", "hang_until"])
def test_a_lane_that_cannot_be_advanced_does_not_block_other_lanes(tmp_path: Path, what: str) -> None:
    gate = tmp_path / "gate"
    with Deployment(tmp_path, advance_timeout=1) as deployment, Feed(tmp_path / "q", lanes=8) as feed:
        upstream = TroubledQueue(feed.path, how={"lane": "lane-3", what: str(gate)})
        deployment.triggerer(deployment.project(project_text(upstream, TRIGGERS)))
        oracle = Oracle(deployment, feed)
        for turn in range(1, 4):
            feed.send(800)
            for name, count in {"a": 800, "b": 800, "even": 400}.items():
                oracle.fired(name, count * turn)
            until(lambda: feed.left() == feed.left("lane-3"), "seven lanes are advanced")
        assert feed.left("lane-3") == 300
        until(lambda: _reported(deployment), "the lane's error is reported")
        gate.touch()
        expected = {"a": range(2400), "b": range(2400), "even": range(0, 2400, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        oracle.balanced({"a": 2400, "b": 2400, "even": 1200}, 2400)


def _reported(deployment: Deployment) -> bool:
    with deployment.admin() as client:
        return any(lane.error for stream in client.streams().streams for lane in stream.lanes)
