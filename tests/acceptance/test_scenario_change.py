"""A trigger is added, one is changed and one is removed while the stream runs: each trigger fires once on each of its events."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, Feed, Oracle, Trigger, project_text

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


@pytest.mark.parametrize("declared", [False, True], ids=["written in Python", "declared"])
def test_triggers_are_added_changed_and_removed_while_the_stream_runs(tmp_path: Path, declared: bool) -> None:
    def one(name: str, half: str, how: str) -> Trigger:
        match = {"half": [half]} if half else None
        only = {"even": [2, 0], "odd": [2, 1], "": [1, 0]}[half]
        return Trigger(name, declared=True, match=match) if declared else Trigger(name, how={"only": only}, tag=how)

    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        steady = [Trigger("steady"), Trigger("always", declared=True)]
        before = [*steady, one("changed", "", "old"), one("narrowed", "", "old"), one("removed", "", "old")]
        after = [*steady, one("changed", "", "new"), one("narrowed", "odd", "new"), one("added", "", "new")]
        oracle = Oracle(deployment, feed)
        deployment.triggerer(deployment.project(project_text(feed.queue, before)))
        first = feed.send(500)
        oracle.fired("removed", 500)
        second = deployment.triggerer(deployment.project(project_text(feed.queue, after), "changed.py"))
        # Once the one that was added fires, the others are as they are declared now: all of it happens in one step.
        while not oracle.counts().get("added"):
            assert second.popen.poll() is None
            feed.send(10)
            time.sleep(0.02)
        between = range(len(first), feed.sent)
        for name in ("steady", "always", "changed"):
            oracle.fired(name, feed.sent)
        last = feed.send(500)
        oracle.settled({name: range(feed.sent) for name in ("steady", "always", "changed")})
        log = oracle.log()
        expected = {name: range(feed.sent) for name in ("steady", "always", "changed")}
        # What came while it was being declared may be before or after that.
        assert set(first) <= log["removed"].keys() <= {*first, *between}
        assert set(last) <= log["added"].keys() <= {*between, *last}
        assert (
            {*first, *(n for n in (*between, *last) if n % 2)} <= log["narrowed"].keys() <= {*first, *between, *(n for n in last if n % 2)}
        )
        oracle.judge(expected | {name: sorted(log[name]) for name in ("removed", "added", "narrowed")})
