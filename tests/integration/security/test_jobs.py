"""Calls that a job must not make: access to leases of another job, stale epochs, invalid declarations, bodies above the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace.wire.problem import PROBLEM_PREFIX
from support.processes.execution_api import Api, serving
from support.processes.store import declaration, registration

SECRET = "swordfish-7"
FAILED = {"type": "E", "message": "m", "number": 1}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api"), max_body_bytes=200_000) as running:
        yield running


def slug(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, str(response.json()["type"]).removeprefix(PROBLEM_PREFIX)


class Job:
    """A triggerer of a project, with what it holds."""

    def __init__(self, api: Api, project: str, **kwargs: Any) -> None:
        self.api = api
        made = api.ask("POST", "/execution/jobs", json=registration(project=project).model_dump()).json()
        self.id, self.token = made["job_id"], made["token"]
        declared = declaration("mine", **kwargs)
        assert self.ask("PUT", f"/execution/projects/{project}", declared.model_dump()).status_code == 200
        self.leases = {
            one["trigger_id"]: one["epoch"] for one in self.ask("POST", "/execution/triggers/load", {"capacity": 9}).json()["leases"]
        }
        (self.trigger,) = self.leases

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return self.api.ask(method, path, token=self.token, json=body)


def test_only_the_holder_of_a_lease_reads_the_arguments(api: Api) -> None:
    owner, other = Job(api, "one", api_key=SECRET), Job(api, "two")
    path, asked = "/execution/triggers/workloads", {"trigger_ids": [owner.trigger]}
    assert owner.ask("POST", path, asked).json()["workloads"][0]["kwargs"] == {"api_key": SECRET}
    assert other.ask("POST", path, asked).json()["workloads"] == []
    for shown in ("/api/v1/triggers", "/api/v1/status"):
        assert SECRET not in api.ask("GET", shown).text


def test_a_job_cannot_change_triggers_of_another_job(api: Api) -> None:
    owner, other = Job(api, "three"), Job(api, "four")
    epoch = owner.leases[owner.trigger]
    assert slug(other.ask("POST", f"/execution/triggers/{owner.trigger}/failure", FAILED | {"epoch": epoch})) == (409, "fenced")
    gone = other.ask("POST", "/execution/triggers/cleanup", {"trigger_ids": [owner.trigger], "epochs": {owner.trigger: epoch}})
    assert gone.status_code == 204
    assert slug(other.ask("PUT", "/execution/projects/three", declaration().model_dump())) == (403, "forbidden")
    assert slug(other.ask("POST", f"/execution/jobs/{owner.id}/heartbeat", {})) == (403, "forbidden")
    event = {"id": "forged", "source": "s", "type": "t", "payload": "{}", "firings": [owner.trigger]}
    stored = other.ask("POST", "/execution/triggers/events", {"epochs": {owner.trigger: epoch}, "events": [event]})
    assert stored.json()["events"] == ["fenced"]
    held = owner.ask("POST", f"/execution/jobs/{owner.id}/heartbeat", {}).json()["leases"]
    assert [one["trigger_id"] for one in held] == [owner.trigger], "it still holds what it held"
    assert "forged" not in api.ask("GET", "/api/v1/events").text


def test_a_stale_epoch_is_fenced(api: Api) -> None:
    owner = Job(api, "five")
    stale = owner.leases[owner.trigger] - 1
    assert slug(owner.ask("POST", f"/execution/triggers/{owner.trigger}/failure", FAILED | {"epoch": stale})) == (409, "fenced")
    event = {"id": "stale", "source": "s", "type": "t", "payload": "{}", "firings": [owner.trigger]}
    stored = owner.ask("POST", "/execution/triggers/events", {"epochs": {owner.trigger: stale}, "events": [event]})
    assert stored.json()["events"] == ["fenced"]


CLASSPATHS = [
    "",
    "os",
    "os.system; import x",
    "a..b",
    ".a.B",
    "a.B\n",
    "a.B\x00",
    "../../etc/passwd",
    "a.<locals>.B",
    "a.b()",
    "a b.C",
    "x" * 501,
]


@pytest.mark.parametrize("classpath", CLASSPATHS)
def test_an_invalid_class_path_is_refused(api: Api, classpath: str) -> None:
    made = api.ask("POST", "/execution/jobs", json=registration(project="six").model_dump()).json()
    declared = declaration("mine").model_dump()
    declared["triggers"][0]["classpath"] = classpath
    assert slug(api.ask("PUT", "/execution/projects/six", token=made["token"], json=declared)) == (422, "invalid")


def test_an_unauthenticated_body_is_not_parsed(api: Api) -> None:
    for token in (None, "nonsense"):
        headers = {"Content-Type": "application/json"}
        response = api.ask("POST", "/execution/triggers/events", token=token, content=b"{" * 100_000, headers=headers)
        assert slug(response) == (401, "unauthorized")


def test_a_body_above_the_size_limit_is_refused_and_changes_nothing(api: Api) -> None:
    job = Job(api, "seven")
    big = {"id": "big", "source": "s", "type": "t", "payload": json.dumps("x" * 300_000), "firings": [job.trigger]}
    assert slug(job.ask("POST", "/execution/triggers/events", {"epochs": job.leases, "events": [big]})) == (413, "too-large")
    assert slug(api.ask("PUT", "/api/v1/variables/big", json={"value": "x" * 300_000})) == (413, "too-large")
    assert slug(api.ask("PUT", "/api/v1/variables/big", json={"value": "x" * 70_000})) == (422, "invalid")


def test_the_error_for_an_invalid_secret_does_not_contain_it(api: Api) -> None:
    for path, body in (
        ("/api/v1/variables/x", {"value": SECRET, "more": SECRET}),
        ("/api/v1/variables/x", {"value": [SECRET]}),
        ("/api/v1/connections/x", {"kind": "http", "password": {"deep": SECRET}}),
        ("/api/v1/connections/x", {"kind": "http", "port": SECRET}),
        ("/api/v1/connections/x", {"kind": "http\0", "password": SECRET}),
        ("/api/v1/variables/x", {"value": SECRET, "description": "\0"}),
    ):
        response = api.ask("PUT", path, json=body)
        assert slug(response) == (422, "invalid")
        assert SECRET not in response.text


@pytest.mark.parametrize("called", ["..%2f..%2fkey", "%2e%2e%2fkey", "....//key", "%00", "trigger-1-job-1.log%2f..%2f..%2fkey", "a" * 5000])
def test_a_log_name_outside_the_folder_is_not_found(api: Api, called: str) -> None:
    for kind in ("triggers", "runs"):
        response = api.ask("GET", f"/api/v1/logs/{kind}/{called}")
        assert response.status_code in (404, 409, 422), response.text


def test_a_registration_with_an_invalid_log_url_is_refused(api: Api) -> None:
    for url in ("file:///etc/passwd", "http://127.0.0.1:80/x", "gopher://a:1", "http://a:1@b:2", "http://a:99999999"):
        asked = registration().model_dump() | {"log_url": url}
        assert slug(api.ask("POST", "/execution/jobs", json=asked)) == (422, "invalid")
