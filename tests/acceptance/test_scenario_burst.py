"""A burst of messages without pauses, far larger than the queue of any trigger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, Feed, Oracle, Trigger, project_text

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

BURST = int(os.environ.get("SCENARIO_BURST", "10000"))


def test_a_burst_of_messages_loses_no_event(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        # `slow` cannot keep up: what its queue cannot take is kept for it.
        slow = Trigger("slow", how={"pause": [400, 0.1]})
        triggers = [Trigger("a"), slow, Trigger("odd", declared=True, match={"half": ["odd"]}), Trigger("all", declared=True)]
        project = deployment.project(project_text(feed.queue, triggers))
        feed.send(BURST // 2)
        deployment.triggerer(project)
        feed.send(BURST - BURST // 2)
        oracle = Oracle(deployment, feed)
        numbers = range(BURST)
        expected = {"a": numbers, "slow": numbers, "all": numbers, "odd": range(1, BURST, 2)}
        oracle.settled(expected, patience=60 + BURST / 100)
        oracle.judge(expected)
        oracle.balanced({name: len(wanted) for name, wanted in expected.items()}, BURST)
