"""The calls that bring events are answered the same whether they take the short way or FastAPI's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Match

from headrace.api.execution.fast_path import calls
from headrace.api.middleware.version import ASKED
from headrace.wire.base import API_VERSION, FIRST_API_VERSION
from headrace.wire.control.jobs import RegisterJob
from support.processes.execution_api import Api, serving
from support.processes.store import declaration, event, registration

EVENTS, ONE = "/execution/triggers/events", "/execution/triggers/1/event"
EVENT: dict[str, Any] = event("a", 1).model_dump(mode="json")
SENT = [
    (EVENTS, {"epochs": {"1": 1}, "events": [EVENT]}),
    (EVENTS, {"epochs": {"1": 9}, "events": [EVENT]}),
    (EVENTS, {"epochs": {"1": 1}, "events": [EVENT | {"payload": "no JSON"}]}),
    (EVENTS, {"epochs": {"1": 1}, "events": [EVENT | {"unknown": 1}]}),
    (EVENTS, {"events": []}),
    (EVENTS, [1, 2]),
    (EVENTS, "x" * 5_000),
    (ONE, {"epochs": {"1": 1}, "event": EVENT}),
    (ONE, {"epochs": {"1": 9}, "event": EVENT}),
    (ONE, {"epochs": {"1": 1}, "event": EVENT | {"firings": [2]}}),
    ("/execution/triggers/2/event", {"epochs": {"1": 1}, "event": EVENT}),
    ("/execution/triggers/99999999999999999999/event", {"epochs": {"1": 1}, "event": EVENT}),
]
BODIES = [json.dumps(body).encode() for _, body in SENT] + [b"", b"{", b"\xff\xfe", b"[" * 10_000]
PATHS = [path for path, _ in SENT] + [EVENTS] * 4


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, most_body=4_000 + 10_000) as running:
        yield running


def _job(api: Api, kind: str = "triggerer") -> str:
    asked = RegisterJob.model_validate(registration().model_dump() | {"kind": kind, "registration_id": kind})
    token: str = api.ask("POST", "/execution/jobs", json=asked.model_dump()).json()["token"]
    return token


@pytest.mark.timeout(120)
def test_both_ways_give_the_same_answers(api: Api) -> None:
    token, pipeline = _job(api), _job(api, "pipeline")
    api.ask("PUT", "/execution/projects/flights", token=token, json=declaration("first", "second").model_dump())
    api.ask("POST", "/execution/triggers/load", token=token, json={"capacity": 10})

    def answer(path: str, body: bytes, how: str, who: str | None) -> tuple[int, bytes, str]:
        sent = api.ask("POST", path, token=who, content=body, headers={"Content-Type": how})
        return sent.status_code, sent.content, sent.headers["content-type"]

    assert answer(EVENTS, BODIES[0], "application/json", token)[0] == 200  # from here on it is a repeat, either way
    given = set()
    for path, body in zip(PATHS, BODIES, strict=True):
        for who in (token, pipeline, "forged", None):
            short = answer(path, body, "application/json", who)
            assert short == answer(path, body, "application/json; charset=utf-8", who), (path, body[:80])
            given.add(short[0])
    assert given >= {200, 401, 403, 409, 422}
    assert api.store.log.head().head == 1


def test_only_what_clients_send_takes_the_short_way() -> None:
    def taken(**changed: Any) -> bool:
        headers = {"content-type": "application/json", "content-length": "2"} | changed.pop("headers", {})
        scope = {"type": "http", "method": "POST", "path": EVENTS, ASKED: API_VERSION, **changed}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        return any(call.matches(scope)[0] is Match.FULL for call in calls())

    assert taken()
    assert taken(path=ONE)
    assert not taken(path="/execution/triggers/1/backlog")
    assert not taken(path="/execution/triggers/-1/event")
    assert not taken(method="GET")
    assert not taken(**{ASKED: FIRST_API_VERSION})
    assert not taken(headers={"content-type": "text/plain"})
    assert not taken(headers={"content-length": "0"})
