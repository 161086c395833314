"""Streams are handed over under load when a triggerer joins or drains: no event is lost or repeated, and each stream has one owner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.chaos.feed import Load
from support.chaos.oracle import Oracle
from support.chaos.plan import Shape
from support.processes.deployment import Deployment, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

STREAMS = 6
SHAPE = Shape(postgresql=False, queues=STREAMS - 1, folders=1, triggers=5, messages=60)


def streams_of(deployment: Deployment) -> dict[int, int]:
    """Return how many streams each job holds that nobody else holds a part of, and that it is not to give back."""
    query = (
        "SELECT job, count(*) FROM (SELECT min(job_id) AS job FROM triggers GROUP BY stream"
        " HAVING count(DISTINCT job_id) = 1 AND count(job_id) = count(*) AND count(revoked_job_id) = 0) GROUP BY job"
    )
    return dict(deployment.rows(query))


def test_streams_are_handed_over_under_load(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment:
        load = Load(tmp_path, SHAPE, seed=1)
        oracle = Oracle(tmp_path, load, f"sqlite:///{deployment.database}", [deployment.url])
        oracle.watch_claims()
        with load.opened():
            project = deployment.project(load.project_text())
            with load.flowing():
                first = deployment.triggerer(project)
                until(lambda: sum(streams_of(deployment).values()) == STREAMS, "one holds all")
                deployment.triggerer(project)
                until(lambda: sorted(streams_of(deployment).values()) == [3, 3], "the second has its share")
                deployment.triggerer(project)
                until(lambda: sorted(streams_of(deployment).values()) == [2, 2, 2], "the third has its share")
                job = next(id for id, pid in deployment.rows("SELECT id, pid FROM jobs") if pid == first.pid)
                drained = deployment.cli("triggerers", "drain", str(job))
                assert drained.returncode == 0, drained.stderr
                assert re.search(rf"Job {job} drains", drained.stdout)
                assert first.popen.wait(90) == 0
                until(lambda: sorted(streams_of(deployment).values()) == [3, 3], "the others have what it had")
                assert deployment.rows("SELECT state FROM jobs WHERE id = ?", job) == [("succeeded",)]
                before = load.sent()
                until(lambda: load.sent() > before + 60, "more is sent")
            oracle.settled(90)
            figures = oracle.judge()
            assert figures["claims"] > STREAMS * SHAPE.triggers, "nothing changed hands"
