"""What a client of an older version said, word by word, is still understood, and what it is answered has the shape that it knew.

A call that was retired is refused with words that say so.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.api.middleware.version import SPOKEN
from headrace.wire.base import API_VERSION, FIRST_API_VERSION, VERSION_HEADER
from headrace.wire.control.triggers import LoadTriggers
from headrace.wire.problem import PROBLEM_PREFIX
from support.processes.execution_api import KEY, serving
from support.processes.store import declaration, registration

RECORDED = Path(__file__).parent / "recorded"
FIRST = {VERSION_HEADER: FIRST_API_VERSION}
RETIRED = re.compile("/execution/scopes/.+/cursor")
"""Paths of the calls that are refused now."""
MAPS = {"backlogs", "triggers", "kwargs", "epochs"}
"""Objects whose keys are data."""


def shape(value: Any, name: str = "") -> Any:
    """Return names and types of an answer, without what is only data."""
    if isinstance(value, dict):
        return "a map" if name in MAPS else {key: shape(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each, name) for each in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def essence(answer: dict[str, Any]) -> Any:
    """Return what of a recorded answer must not change for ever: for a problem its type, for anything else its whole shape."""
    body = answer["body"]
    return body["type"] if answer["status"] >= 400 else shape(body)


@pytest.mark.parametrize("version", [version for version in SPOKEN if version != API_VERSION])
def test_an_older_client_lives_its_whole_life(version: str, tmp_path: Path) -> None:
    calls = json.loads((RECORDED / f"{version}.json").read_text())
    tokens = {"key": KEY}
    with serving(tmp_path) as api:
        for number, call in enumerate(calls):
            content = None if call["body"] is None else json.dumps(call["body"]).encode()
            headers = call["headers"] | {"authorization": f"Bearer {tokens[call['token']]}"}
            response = api.http.request(call["method"], call["path"], content=content, headers=headers)
            where = f"{number}: {call['method']} {call['path']}: {response.text[:500]}"
            expected = call["answer"]
            if RETIRED.fullmatch(call["path"]):
                assert response.status_code == 410, where
                assert response.json()["type"] == PROBLEM_PREFIX + "retired", where
                continue
            assert response.status_code == expected["status"], where
            assert response.headers[VERSION_HEADER] == version, where
            assert response.headers.get("content-type") == expected["type"], where
            if call["path"] == "/execution/jobs":
                tokens[call["body"]["kind"]] = response.json()["token"]
            if expected["body"] is not None:
                assert essence({"status": response.status_code, "body": response.json()}) == essence(expected), where
        assert api.store.log.head().head == 3


def test_what_the_first_version_called_a_kind_is_kept_as_the_type(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        job = registration().model_dump(include={"registration_id", "kind", "hostname", "pid", "project"})
        token = api.ask("POST", "/execution/jobs", json=job, headers=FIRST).json()["token"]
        api.store.projects.declare(1, "flights", declaration("one"))
        epoch = api.store.triggers.load(1, LoadTriggers(capacity=1)).leases[0].epoch
        failed = {"epoch": epoch, "kind": "ValueError", "message": "no"}
        assert api.ask("POST", "/execution/triggers/1/failure", token=token, json=failed).status_code == 422
        assert api.ask("POST", "/execution/triggers/1/failure", token=token, json=failed, headers=FIRST).status_code == 204
        assert api.ask("GET", "/api/v1/triggers/1").json()["failure"] == "ValueError: no"


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", {"cursor": 3, "batch": 1})])
def test_a_driver_that_commits_cursors_is_told_to_be_upgraded(method: str, body: dict[str, int] | None, tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        job = registration("pipeline").model_dump(include={"registration_id", "kind", "hostname", "pid", "project"})
        token = api.ask("POST", "/execution/jobs", json=job, headers=FIRST).json()["token"]
        path = "/execution/scopes/flights/cursor"
        answer = api.ask(method, path, token=token, json=body, headers=FIRST)
        assert (answer.status_code, answer.json()["type"]) == (410, PROBLEM_PREFIX + "retired")
        assert "cannot run the scope 'flights'" in answer.json()["detail"]
        assert "Upgrade Headrace" in answer.json()["hint"]
        assert api.ask(method, path, token=None, json=body, headers=FIRST).status_code == 401
        assert api.ask(method, path, token=token, json=body).status_code == 404


def test_every_older_version_is_recorded() -> None:
    recorded = {path.name.split(".")[0] for path in RECORDED.iterdir()}
    assert recorded == {version for version in SPOKEN if version != API_VERSION}
