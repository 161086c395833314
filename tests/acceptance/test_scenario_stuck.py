"""One of three triggers is stuck: it gets its whole backlog, and the others get each event once without delay."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.wire.calls import admin as calls
from support.processes.deployment import Deployment, Feed, Oracle, Trigger, project_text, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


def test_a_trigger_stuck_past_the_ack_timeout_gets_its_backlog_after_release(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Deployment(tmp_path, ack_timeout=2) as deployment, Feed(tmp_path / "q") as feed:
        stuck = Trigger("stuck", how={"stuck_at": 50, "gate": str(gate)})
        triggers = [Trigger("a"), Trigger("b"), stuck, Trigger("even", declared=True, match={"half": ["even"]})]
        deployment.triggerer(deployment.project(project_text(feed.queue, triggers)))
        oracle = Oracle(deployment, feed)
        numbers = range(2000)
        feed.send(1000)
        oracle.fired("a", 1000)
        feed.send(1000)
        # The others have it all, and the queue is empty, while one is still stuck: what it cannot take is kept for it.
        for name, count in {"a": 2000, "b": 2000, "even": 1000}.items():
            oracle.fired(name, count)
        oracle.advanced()
        assert not gate.exists()
        assert oracle.backlog() > 1000
        with deployment.admin() as client:
            assert client.get(calls.GET_AUDIT)["clean"]
        gate.touch()
        expected = {"a": numbers, "b": numbers, "stuck": numbers, "even": range(0, 2000, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        oracle.balanced({"a": 2000, "b": 2000, "stuck": 2000, "even": 1000}, 2000)


def test_a_hanging_filter_is_restarted_and_continues(tmp_path: Path) -> None:
    with Deployment(tmp_path, ack_timeout=2) as deployment, Feed(tmp_path / "q") as feed:
        triggers = [Trigger("a"), Trigger("b"), Trigger("hung", how={"hang_at": 77})]
        deployment.triggerer(deployment.project(project_text(feed.queue, triggers)))
        oracle = Oracle(deployment, feed)
        expected = dict.fromkeys(["a", "b", "hung"], feed.send(1500))
        oracle.settled(expected)
        oracle.judge(expected)


def test_a_stuck_trigger_gets_its_backlog_after_a_restart_of_its_triggerer(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Deployment(tmp_path, ack_timeout=2) as deployment, Feed(tmp_path / "q") as feed:
        triggers = [Trigger("a"), Trigger("b"), Trigger("stuck", how={"stuck_at": 0, "gate": str(gate)})]
        project = deployment.project(project_text(feed.queue, triggers))
        first = deployment.triggerer(project)
        oracle = Oracle(deployment, feed)
        expected = dict.fromkeys(["a", "b", "stuck"], feed.send(1500))
        oracle.fired("a", 1500)
        oracle.advanced()
        until(lambda: oracle.backlog() == 1500, "all is kept for the stuck one")
        assert first.stop() == 0
        gate.touch()
        deployment.triggerer(project)
        oracle.settled(expected)
        oracle.judge(expected)


def test_a_raw_event_without_an_answer_becomes_a_dead_letter(tmp_path: Path) -> None:
    with Deployment(tmp_path, ack_timeout=0.5) as deployment, Feed(tmp_path / "q") as feed:
        never = str(tmp_path / "never")
        triggers = [Trigger("a"), Trigger("stuck", how={"stuck_at": 10, "gate": never})]
        deployment.triggerer(deployment.project(project_text(feed.queue, triggers)))
        oracle = Oracle(deployment, feed)
        numbers = feed.send(300)
        expected = {"a": numbers, "stuck": [n for n in numbers if n != 10]}
        oracle.settled(expected, letters=1)
        oracle.judge(expected, letters=[("stuck", "failed", 10)])
