"""`headrace upstreams` with real processes: the reader, the positions and the lag of a queue, and its next messages after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.sources.queue.writer import QueueWriter
from support.processes.deployment import Deployment, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

PROJECT = """
from headrace import Project, Queue

project = Project("shop")
project.watch("orders", Queue({path!r}), id="$.n")
"""


def listed(deployment: Deployment) -> Any:
    return json.loads(deployment.cli("upstreams", "list", "--json").stdout)["upstreams"][0]


def test_the_lag_becomes_0_and_a_peek_shows_what_no_triggerer_has_read(tmp_path: Path) -> None:
    path = tmp_path / "orders.queue"
    with Deployment(tmp_path / "deployment") as deployment, QueueWriter(path) as queue:
        project = deployment.project(PROJECT.format(path=str(path)))
        queue.send_many({"n": number} for number in range(50))
        triggerer = deployment.triggerer(project)
        until(lambda: deployment.rows("SELECT count(*) FROM events")[0][0] == 50, "all events are stored")
        until(lambda: listed(deployment)["lag"] == 0, "the report of the advance")
        upstream = listed(deployment)
        assert (upstream["kind"], upstream["projects"], upstream["state"]) == ("queue", ["shop"], "polling")
        assert (upstream["unread"], upstream["outstanding"], upstream["problems"]) == (0, 0, [])
        assert [(lane["stored"], lane["advanced"]) for lane in upstream["lanes"]] == [(50, 50)]
        triggerer.kill()
        queue.send_many({"n": number} for number in range(50, 53))
        until(lambda: listed(deployment)["state"] == "silent", "the triggerer is silent")
        assert (listed(deployment)["lag"], "sends no heartbeats" in listed(deployment)["unread_because"]) == (None, True)
        peeked = json.loads(deployment.cli("upstreams", "peek", "orders", "--project", str(project), "--json").stdout)
        assert [one["position"] for one in peeked["messages"]] == [51, 52, 53]
        deployment.triggerer(project)
        until(lambda: deployment.rows("SELECT count(*) FROM events")[0][0] == 53, "the rest is stored")
        assert deployment.cli("audit").returncode == 0
