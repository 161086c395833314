"""The calls that store events have the same answers on the fast path and through FastAPI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Match

from headrace.api.execution.fast_path import IngestRoute
from headrace.wire.calls.execution import STORE_EVENTS
from headrace.wire.control.jobs import RegisterJob
from support.processes.execution_api import Api, serving
from support.processes.store import declaration, event, registration

EVENT: dict[str, Any] = asdict(event("a", 1))
SENT = [
    {"epochs": {"1": 1}, "events": [EVENT]},
    {"epochs": {"1": 9}, "events": [EVENT]},
    {"epochs": {"1": 1}, "events": [EVENT | {"payload": "no JSON"}]},
    {"epochs": {"1": 1}, "events": [EVENT | {"unknown": 1}]},
    {"events": []},
    [1, 2],
    "x" * 5_000,
]
BODIES = [json.dumps(body).encode() for body in SENT] + [b"", b"{", b"\xff\xfe", b"[" * 10_000]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, max_body_bytes=4_000 + 10_000) as running:
        yield running


def _job(api: Api, kind: str = "triggerer") -> str:
    asked = RegisterJob.model_validate(registration().model_dump() | {"kind": kind, "registration_id": kind})
    token: str = api.ask("POST", "/execution/jobs", json=asked.model_dump()).json()["token"]
    return token


@pytest.mark.timeout(120)
def test_the_fast_path_and_fastapi_give_the_same_answers(api: Api) -> None:
    token, pipeline = _job(api), _job(api, "pipeline")
    api.ask("PUT", "/execution/projects/flights", token=token, json=declaration("first", "second").model_dump())
    api.ask("POST", "/execution/triggers/load", token=token, json={"capacity": 10})

    def answer(body: bytes, how: str, who: str | None) -> tuple[int, bytes, str]:
        sent = api.ask("POST", STORE_EVENTS.path, token=who, content=body, headers={"Content-Type": how})
        return sent.status_code, sent.content, sent.headers["content-type"]

    assert answer(BODIES[0], "application/json", token)[0] == 200  # from here on it is a repeat, either way
    given = set()
    for body in BODIES:
        for who in (token, pipeline, "forged", None):
            short = answer(body, "application/json", who)
            assert short == answer(body, "application/json; charset=utf-8", who), body[:80]
            given.add(short[0])
    assert given >= {200, 401, 403, 422}
    assert api.store.log.head().head == 1


def test_only_requests_of_clients_take_the_fast_path() -> None:
    def taken(**changed: Any) -> bool:
        headers = {"content-type": "application/json", "content-length": "2"} | changed.pop("headers", {})
        scope = {"type": "http", "method": "POST", "path": STORE_EVENTS.path, **changed}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        return IngestRoute().matches(scope)[0] is Match.FULL

    assert taken()
    assert not taken(path="/execution/triggers/load")
    assert not taken(method="GET")
    assert not taken(headers={"content-type": "text/plain"})
    assert not taken(headers={"content-length": "0"})
