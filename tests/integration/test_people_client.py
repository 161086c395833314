"""The command line's client against a real api: every call answers, and a missing api is told as one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.people import PeopleClient
from headrace.errors import ApiUnavailable
from machine_kit import Api, serving
from store_kit import event, holder, letter


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as running:
        yield running


def test_every_list_is_answered(api: Api) -> None:
    holder(api.store, "first").append(event("a", subject="N1"), event("b"), dead_letters=[letter("x")])
    with PeopleClient(api.url) as client:
        assert client.healthy()
        status = client.status()
        assert (status["head"], status["dead_letters"]) == (2, 1)
        assert [found["id"] for found in client.events(subject="N1", limit=10)["events"]] == ["a"]
        assert [found["name"] for found in client.triggers()["triggers"]] == ["first"]
        assert client.streams()["streams"] == []
        assert client.runs()["runs"] == []
        assert [found["id"] for found in client.dead_letters()["dead_letters"]] == ["x"]


def test_a_missing_api_is_unavailable() -> None:
    with PeopleClient("http://127.0.0.1:1") as client, pytest.raises(ApiUnavailable):
        client.healthy()
