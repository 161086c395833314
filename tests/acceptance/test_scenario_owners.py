"""Triggers of one stream on two triggerers: one triggerer holds the stream, and the other acquires it after a loss of the first."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, Feed, Oracle, Trigger, project_text, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

TRIGGERS = [Trigger("a"), Trigger("b"), Trigger("all", declared=True)]


def test_a_second_triggerer_acquires_the_stream_of_a_killed_triggerer(tmp_path: Path) -> None:
    with Deployment(tmp_path, job_timeout=6) as deployment, Feed(tmp_path / "q") as feed:
        project = deployment.project(project_text(feed.queue, TRIGGERS))
        oracle = Oracle(deployment, feed)
        two = [deployment.triggerer(project), deployment.triggerer(project)]
        feed.send(500)
        oracle.fired("all", 500)
        (holder,) = _holders(deployment)
        until(lambda: len(_running(deployment)) == 2, "both are registered")
        feed.send(500)
        oracle.fired("all", 1000)
        assert _holders(deployment) == {holder}
        killed, other = sorted(two, key=lambda one: one.pid != _running(deployment)[holder])
        feed.send(500)
        killed.kill()
        feed.send(500)
        expected = dict.fromkeys(["a", "b", "all"], range(2000))
        oracle.settled(expected)
        (successor,) = _holders(deployment)
        assert successor != holder
        assert _running(deployment)[successor] == other.pid
        oracle.judge(expected)
        oracle.balanced(dict.fromkeys(expected, 2000), 2000)


def test_a_triggerer_suspended_beyond_the_job_timeout_is_fenced(tmp_path: Path) -> None:
    with Deployment(tmp_path, job_timeout=6) as deployment, Feed(tmp_path / "q") as feed:
        project = deployment.project(project_text(feed.queue, TRIGGERS))
        oracle = Oracle(deployment, feed)
        sleeper = deployment.triggerer(project)
        feed.send(500)
        oracle.fired("all", 500)
        (holder,) = _holders(deployment)
        feed.send(3000)
        sleeper.send(signal.SIGSTOP)
        deployment.triggerer(project)
        until(lambda: _holders(deployment) not in ({holder}, set()), "the other takes over")
        feed.send(500)
        sleeper.send(signal.SIGCONT)
        expected = dict.fromkeys(["a", "b", "all"], range(4000))
        oracle.settled(expected)
        oracle.judge(expected)
        oracle.balanced(dict.fromkeys(expected, 4000), 4000)


def _holders(deployment: Deployment) -> set[int]:
    """Return the jobs that hold triggers of the stream."""
    with deployment.admin() as client:
        return {trigger.job_id for trigger in client.triggers().triggers if trigger.job_id is not None}


def _running(deployment: Deployment) -> dict[int, int]:
    """Return the process of each job that lives."""
    return dict(deployment.rows("SELECT id, pid FROM jobs WHERE state = 'running'"))
