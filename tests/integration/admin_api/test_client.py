"""The command line's client against a real API server: all calls succeed, and a missing API server raises `ApiUnavailable`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.client.admin import client as admin
from headrace.client.admin.client import AdminClient
from headrace.errors import ApiUnavailable
from headrace.wire.calls import admin as calls
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.control.streams import StreamReport
from headrace.wire.pipelines.runs import RunReport
from support.processes.execution_api import Api, serving
from support.processes.store import declaration, event, holder, letter, registration


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as running:
        yield running


def test_the_client_reads_every_list(api: Api) -> None:
    holder(api.store, "first").append(event("a", subject="N1"), event("b"), dead_letters=[letter("x")])
    with AdminClient(api.url) as client:
        status = client.get(calls.GET_STATUS)
        assert (status["head"], status["dead_letters"]) == (2, 1)
        assert [found["id"] for found in client.get(calls.LIST_EVENTS, {"subject": "N1", "limit": 10})["events"]] == ["a"]
        assert [trigger.name for trigger in client.triggers().triggers] == ["first"]
        assert client.streams().streams == []
        assert client.get(calls.LIST_RUNS)["runs"] == []
        assert [found["id"] for found in client.get(calls.LIST_DEAD_LETTERS)["dead_letters"]] == ["x"]


def test_the_client_reads_all_pages_of_triggers_and_streams(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "PAGE", 2)
    names = ["a", "b", "c", "d", "e"]
    owner = holder(api.store, *names)
    other = api.store.jobs.register(registration(project="trains", kind="pipeline"))
    api.store.projects.declare(other.id, "trains", declaration("b", "c"))  # names are their projects' own
    reports = [StreamReport(stream=name, state="polling", lanes=[]) for name in names]
    api.store.jobs.heartbeat(owner.job_id, Heartbeat(streams=reports))
    with AdminClient(api.url) as client:
        assert [trigger.name for trigger in client.triggers().triggers] == ["a", "b", "b", "c", "c", "d", "e"]
        assert [stream.stream for stream in client.streams().streams] == names
    page = api.ask("GET", "/api/v1/triggers?limit=2").json()
    assert ([one["name"] for one in page["triggers"]], page["after"]) == (["a", "b"], page["triggers"][1]["id"])
    page = api.ask("GET", "/api/v1/streams?limit=3&after=b").json()
    assert ([one["stream"] for one in page["streams"]], page["after"]) == (["c", "d", "e"], "e")
    assert api.ask("GET", "/api/v1/streams?after=e").json() == {"streams": [], "after": None}


def test_the_list_of_pipeline_runs_has_the_requested_length(api: Api) -> None:
    job = api.store.jobs.register(registration(kind="pipeline"))
    now = datetime.now(UTC)
    reports = [
        RunReport(run_id=f"{n}", scope="flights", pipeline="legs", batch=n, attempt=1, state="succeeded", started=now, finished=now)
        for n in range(150)
    ]
    api.store.runs.report(job.id, reports)
    with AdminClient(api.url) as client:
        assert [len(client.get(calls.LIST_RUNS, {"limit": limit})["runs"]) for limit in (20, 150, 1_000)] == [20, 150, 150]


def test_an_unreachable_api_server_is_unavailable() -> None:
    with AdminClient("http://127.0.0.1:1") as client, pytest.raises(ApiUnavailable):
        client.get(calls.GET_STATUS)
