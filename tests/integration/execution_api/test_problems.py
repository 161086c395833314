"""Refusals of the execution API: always a problem with a stable type, a text and the version of the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.api.auth.authentication import Tokens
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.custody.events import EventBatch
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import declaration, event, registration

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(Path(tmp_path_factory.mktemp("api")), max_body_bytes=100_000) as running:
        yield running


def problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM_JSON
    body: dict[str, Any] = response.json()
    assert body["type"] == PROBLEM_PREFIX + slug
    assert body["status"] == status
    assert body["title"]
    return body


def registered(api: Api, kind: Any = "triggerer") -> dict[str, Any]:
    answer: dict[str, Any] = api.ask("POST", "/execution/jobs", json=registration(kind).model_dump()).json()
    return answer


def test_every_answer_has_the_version_of_the_api(api: Api) -> None:
    response = api.ask("POST", "/execution/jobs", json=registration().model_dump())
    assert response.status_code == 200
    assert response.headers[VERSION_HEADER] == API_VERSION


@pytest.mark.parametrize(("version", "says"), [("", "not known"), ("1999-01-01", "1999-01-01 is not known")])
def test_an_unknown_version_is_refused(api: Api, version: str, says: str) -> None:
    body = problem(api.ask("GET", "/execution/events/head", headers={VERSION_HEADER: version}), 400, "unsupported-version")
    assert says in body["detail"]
    assert API_VERSION in body["hint"]


def test_a_missing_version_is_refused(api: Api) -> None:
    response = httpx.get(api.url + "/execution/events/head", trust_env=False, timeout=60)
    assert "is missing" in problem(response, 400, "unsupported-version")["detail"]
    assert response.headers[VERSION_HEADER] == API_VERSION


@pytest.mark.parametrize(
    "token",
    [None, "nonsense", KEY, Tokens("another key", 1).token(1, "triggerer")],
    # A token names its expiry: as an id it would differ between the workers of xdist.
    ids=["none", "nonsense", "the deployment key", "a token of another key"],
)
def test_an_invalid_token_is_unauthorized(api: Api, token: str | None) -> None:
    response = api.ask("GET", "/execution/events/head", token=token)
    problem(response, 401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"


def test_a_token_of_another_database_is_unauthorized(api: Api) -> None:
    registered(api)
    forged = Tokens(KEY, api.store.instance + 1).token(1, "triggerer")
    problem(api.ask("POST", "/execution/jobs/1/heartbeat", token=forged, json={}), 401, "unauthorized")


def test_a_job_token_cannot_register_a_job(api: Api) -> None:
    token = registered(api)["token"]
    problem(api.ask("POST", "/execution/jobs", token=token, json=registration().model_dump()), 401, "unauthorized")


def test_a_job_cannot_act_for_another_job(api: Api) -> None:
    mine, other = registered(api), registered(api)
    for call in ("heartbeat", "complete"):
        path = f"/execution/jobs/{other['job_id']}/{call}"
        problem(api.ask("POST", path, token=mine["token"], json={"state": "failed"} if call == "complete" else {}), 403, "forbidden")


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("pipeline", "/execution/triggers/load", {"capacity": 1}),
        ("pipeline", "/execution/triggers/events", {"epochs": {}}),
        ("triggerer", "/execution/scopes/s/plans", {"epoch": 1, "cursor": {"cursor": 1, "batch": 1}}),
        ("triggerer", "/execution/runs", {"runs": []}),
    ],
)
def test_a_call_for_another_kind_of_job_is_forbidden(api: Api, kind: str, path: str, body: dict[str, Any]) -> None:
    assert kind in problem(api.ask("POST", path, token=registered(api, kind)["token"], json=body), 403, "forbidden")["detail"]


def test_a_job_cannot_declare_another_project(api: Api) -> None:
    token = registered(api)["token"]
    response = api.ask("PUT", "/execution/projects/trains", token=token, json=declaration("first").model_dump())
    assert "trains" in problem(response, 403, "forbidden")["detail"]


def test_an_ended_job_is_fenced(api: Api) -> None:
    job = registered(api)
    assert api.ask("POST", f"/execution/jobs/{job['job_id']}/complete", token=job["token"], json={"state": "failed"}).status_code == 204
    problem(api.ask("POST", "/execution/triggers/load", token=job["token"], json={"capacity": 1}), 409, "fenced")


@pytest.mark.parametrize(
    ("path", "content", "names"),
    [
        ("/execution/triggers/load", b'{"capacity": 0}', "capacity"),
        ("/execution/triggers/load", b'{"capacity": 1, "more": 2}', "more"),
        ("/execution/triggers/load", b"{", "JSON"),
        ("/execution/triggers/events", b'{"epochs": {}, "events": [{"id": ""}]}', "events.0.id"),
        ("/execution/triggers/events", b"{", "JSON"),
        ("/execution/triggers/events", b"", "JSON"),
        ("/execution/triggers/x/failure", b'{"epoch": 1, "type": "a", "message": "b"}', "trigger_id"),
    ],
)
def test_an_invalid_body_is_reported_with_the_field(api: Api, path: str, content: bytes, names: str) -> None:
    response = api.ask("POST", path, token=registered(api)["token"], content=content, headers=JSON)
    assert names in problem(response, 422, "invalid")["detail"]


@pytest.mark.parametrize("query", ["after=-1", "limit=0", "limit=10000000", "format=xml", "to=x", f"after={2**63}"])
def test_an_invalid_range_of_the_log_is_refused(api: Api, query: str) -> None:
    problem(api.ask("GET", f"/execution/events?{query}", token=registered(api)["token"]), 422, "invalid")


def test_unknown_paths_and_methods_are_refused(api: Api) -> None:
    problem(api.ask("GET", "/execution/nothing"), 404, "not-found")
    problem(api.ask("DELETE", "/execution/jobs"), 405, "not-allowed")


def test_a_large_body_is_refused_with_and_without_content_length(api: Api) -> None:
    token = registered(api)["token"]
    batch = EventBatch(epochs={1: 1}, events=[event("a", payload=json.dumps("x" * 100_000))]).model_dump_json().encode()
    for content in (batch, iter([batch[:50_000], batch[50_000:]])):
        response = api.ask("POST", "/execution/triggers/events", token=token, content=content, headers=JSON)
        assert "100000 bytes" in problem(response, 413, "too-large")["detail"]
