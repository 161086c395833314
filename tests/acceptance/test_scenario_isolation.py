"""A trigger that sleeps, holds the interpreter lock or uses all CPU time does not delay other triggers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, Feed, Oracle, Process, Trigger, project_text, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

EVEN = Trigger("even", declared=True, match={"half": ["even"]})


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process, the oldest first."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runner_of(triggerer: Process) -> int:
    until(lambda: children(triggerer.pid), "there is a runner")
    return children(triggerer.pid)[0]


def two_streams(tmp_path: Path, other: Feed, blocks: Trigger, feed: Feed) -> str:
    """Return a project with a trigger that blocks, innocent ones beside it, and innocent ones on another stream."""
    first = project_text(feed.queue, [Trigger("same", how={"only": [1, 0]}), EVEN, blocks])
    more = [Trigger("other-even", declared=True, match={"half": ["even"]}), Trigger("other")]
    return first + "\n".join(one.text(other.queue) for one in more) + "\n"


@pytest.mark.parametrize("block", [600, "regex", "burn"])
def test_other_triggers_finish_while_a_trigger_blocks(tmp_path: Path, block: float | str) -> None:
    blocked = tmp_path / "blocked"
    blocks = Trigger("blocks", how={"block_at": 50, "block": block, "once": str(blocked)})
    with Deployment(tmp_path, stuck_timeout=600) as deployment, Feed(tmp_path / "q") as feed, Feed(tmp_path / "other-q") as other:
        triggerer = deployment.triggerer(deployment.project(two_streams(tmp_path, other, blocks, feed)))
        oracle = Oracle(deployment, feed)
        feed.send(100)
        other.send(100)
        until(blocked.exists, "the trigger blocks")
        runner = runner_of(triggerer)
        # All of this comes while it blocks.
        feed.send(1500)
        other.send(1500)
        expected = {"same": range(1600), "even": range(0, 1600, 2), "other": range(1600), "other-even": range(0, 1600, 2)}
        until(lambda: all(oracle.counts().get(name, 0) >= len(wanted) for name, wanted in expected.items()), "the others have it all")
        # What it cannot take is kept for it, so that the broker may go on. Four lanes are read side by side: it blocks among the first 100.
        assert oracle.counts().get("blocks", 0) < 100
        until(lambda: other.left() == 0, "the other upstream is advanced")
        assert deployment.rows("SELECT name FROM triggers WHERE failures > 0") == []
        assert children(triggerer.pid) == [runner], "the runner never ended"
        assert deployment.rows("SELECT state FROM jobs") == [("running",)]


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_trigger_process_neither_loses_nor_repeats_events(tmp_path: Path, which: int) -> None:
    with Deployment(tmp_path) as deployment, Feed(tmp_path / "q") as feed:
        triggers = [Trigger("a"), Trigger("b", how={"pause": [20, 0.01]}), EVEN]
        triggerer = deployment.triggerer(deployment.project(project_text(feed.queue, triggers)))
        oracle = Oracle(deployment, feed)
        runner = runner_of(triggerer)
        for _ in range(3):
            count = feed.sent + 400
            feed.send(400)
            oracle.fired("a", count - 300)
            # The second stands by. One that is killed before it stands is missed by nobody, and not started again at once.
            for pid in children(runner)[which : which + 1]:
                os.kill(pid, signal.SIGKILL)
        expected = {"a": range(1200), "b": range(1200), "even": range(0, 1200, 2)}
        oracle.settled(expected)
        oracle.judge(expected)
        assert children(triggerer.pid) == [runner]
        assert triggerer.stop() == 0
