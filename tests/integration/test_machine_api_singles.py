"""One event, and one raw event for a backlog, each in a call of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.wire.problem import PROBLEM_PREFIX
from support.processes.execution_api import Api, serving
from support.processes.store import DATABASES, declaration, event, registration


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        yield running


class Owner:
    """A triggerer that holds the triggers 1 and 2."""

    def __init__(self, api: Api) -> None:
        self._api = api
        job = api.ask("POST", "/execution/jobs", json=registration().model_dump()).json()
        self._token = job["token"]
        self.post("/execution/projects/flights", declaration("first", "second").model_dump(), method="PUT")
        loaded = self.post("/execution/triggers/load", {"capacity": 10}).json()
        self.epochs = {lease["trigger_id"]: lease["epoch"] for lease in loaded["leases"]}

    def post(self, path: str, body: dict[str, Any], method: str = "POST") -> httpx.Response:
        return self._api.ask(method, path, token=self._token, json=body)

    def event(self, trigger_id: int, *firings: int, epoch: int | None = None) -> httpx.Response:
        epochs = self.epochs if epoch is None else dict.fromkeys(self.epochs, epoch)
        body = {"epochs": epochs, "event": event("a", *firings).model_dump(mode="json")}
        return self.post(f"/execution/triggers/{trigger_id}/event", body)

    def spill(self, trigger_id: int, epoch: int = 1) -> httpx.Response:
        body = {"epoch": epoch, "stream": "folder", "lane": "0", "position": 7, "raw": "{}"}
        return self.post(f"/execution/triggers/{trigger_id}/backlog", body)


def refused(response: httpx.Response, status: int, slug: str) -> None:
    assert response.status_code == status, response.text
    assert response.json()["type"] == PROBLEM_PREFIX + slug


def test_an_event_is_stored_once(api: Api) -> None:
    owner = Owner(api)
    assert [owner.event(1, 1, 2).json() for _ in range(2)] == [{"status": "stored"}, {"status": "duplicate"}]
    assert api.store.log.head().head == 1


def test_the_trigger_of_the_path_is_one_that_fired(api: Api) -> None:
    refused(Owner(api).event(1, 2), 422, "invalid")
    assert api.store.log.head().head == 0


def test_an_event_under_an_old_epoch_is_fenced(api: Api) -> None:
    refused(Owner(api).event(1, 1, epoch=0), 409, "fenced")
    assert api.store.log.head().head == 0


def test_a_raw_event_is_kept_once(api: Api) -> None:
    owner = Owner(api)
    assert [owner.spill(2).json() for _ in range(2)] == [{"status": "stored"}, {"status": "duplicate"}]
    assert api.store.backlog.page(1, 2, after=0, limit=10).depth == 1
    refused(owner.spill(2, epoch=0), 409, "fenced")
    assert api.store.backlog.page(1, 2, after=0, limit=10).depth == 1
