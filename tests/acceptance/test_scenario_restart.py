"""All triggers restart, one of them a second later than the others: no event in between is lost or stored twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.processes.deployment import Deployment, Feed, Oracle, Trigger, project_text

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    "late", [{"late": 1.0}, {"fail_turns": 1}, {"slow_start": 1.0}], ids=["sleeps before it asks", "fails at first", "constructor blocks"]
)
def test_a_restart_with_one_late_trigger_neither_loses_nor_repeats_events(tmp_path: Path, late: dict[str, Any]) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        triggers = [Trigger("a"), Trigger("b"), Trigger("late", how=late), Trigger("all", declared=True)]
        project = deployment.project(project_text(feed.queue, triggers))
        oracle = Oracle(deployment, feed)
        running = deployment.triggerer(project)
        for turn in range(2):
            feed.send(200)
            oracle.fired("a", 200 + 800 * turn)
            # In order the first time, at once the second time, always while messages come.
            for _ in range(3):
                feed.send(200)
            if turn:
                running.kill()
                running = deployment.triggerer(project, replaces=running)
            else:
                assert running.stop() == 0
                running = deployment.triggerer(project)
        feed.send(200)
        expected = dict.fromkeys(["a", "b", "late", "all"], range(feed.sent))
        oracle.settled(expected)
        oracle.judge(expected)
        oracle.balanced(dict.fromkeys(expected, feed.sent), feed.sent)
