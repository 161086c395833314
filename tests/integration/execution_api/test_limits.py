"""Limits that protect the API server: rates, headers and bodies."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.api.middleware.rate_limit import Bucket, RateLimit, RatePolicy
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX
from support.processes.execution_api import Api, serving
from support.processes.store import declaration, registration

JSON = {"Content-Type": "application/json"}
POLICY = RatePolicy(token=Bucket(size=100, refill=10), address=Bucket(size=20, refill=1), call=5, refused=50, forged=10, max_callers=3)


class Limited:
    """A rate limit around an app that answers with the status that the path names; its clock is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        routes = [Route("/{status:int}", self._answer, methods=["GET", "POST"]), Route("/healthz", self._answer)]
        self.limit = RateLimit(
            Starlette(routes=routes), accepted=lambda given: given.startswith("good"), policy=POLICY, clock=lambda: self.now
        )

    async def ask(self, status: int | str = 200, token: str | None = None, address: str = "1.2.3.4") -> httpx.Response:
        transport = httpx.ASGITransport(self.limit, client=(address, 1))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
            return await http.get(f"/{status}", headers=headers)

    async def until_refused(self, status: int | str = 200, token: str | None = None, address: str = "1.2.3.4", most: int = 1000) -> int:
        """Return how many calls in a row are served, `most` where all are."""
        for served in range(most):
            if (await self.ask(status, token, address)).status_code == 429:
                return served
        return most

    @staticmethod
    async def _answer(request: Request) -> Response:
        return Response(status_code=request.path_params.get("status", 200))


@pytest.fixture
def limited() -> Limited:
    return Limited()


async def test_a_caller_above_its_rate_receives_429_with_retry_after(limited: Limited) -> None:
    assert await limited.until_refused() == 21
    response = await limited.ask()
    assert (response.headers["retry-after"], response.headers["content-type"]) == ("1", PROBLEM_JSON)
    assert response.json()["type"] == PROBLEM_PREFIX + "too-often"
    limited.now += 1
    assert (await limited.ask()).status_code == 200


async def test_addresses_and_tokens_have_separate_rate_limits(limited: Limited) -> None:
    await limited.ask(token="good")
    await limited.until_refused()
    assert (await limited.ask(address="1.2.3.5")).status_code == 200
    assert (await limited.ask(token="good")).status_code == 200


async def test_failed_requests_reach_the_rate_limit_sooner(limited: Limited) -> None:
    assert (await limited.until_refused(200, token="good 1"), await limited.until_refused(409, token="good 2")) == (21, 3)


async def test_invalid_tokens_count_against_the_rate_of_their_address(limited: Limited) -> None:
    answers = [(await limited.ask(401, token=f"guess {number}")).status_code for number in range(5)]
    assert answers == [401, 401, 401, 429, 429]
    limited.now += 5
    assert [(await limited.ask(200, token=f"bad {number}")).status_code for number in range(2)] == [429, 429]


async def test_an_ipv6_network_has_one_rate_limit(limited: Limited) -> None:
    await limited.until_refused(address="2001:db8::1")
    assert (await limited.ask(address="2001:db8::ffff:2")).status_code == 429
    assert (await limited.ask(address="2001:db8:0:1::1")).status_code == 200


async def test_the_health_check_has_no_rate_limit(limited: Limited) -> None:
    assert await limited.until_refused("healthz", most=100) == 100


async def test_the_number_of_remembered_callers_is_bounded(limited: Limited) -> None:
    for number in range(10):
        await limited.ask(token=f"good {number}")
        await limited.ask(address=f"1.1.1.{number}")
    assert (len(limited.limit.tokens), len(limited.limit.addresses)) == (3, 3)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(Path(tmp_path_factory.mktemp("api"))) as running:
        yield running


def test_the_api_server_limits_the_rate_of_failed_requests(tmp_path: Path) -> None:
    with serving(tmp_path, rates=POLICY) as api:
        token = api.ask("POST", "/execution/jobs", json=registration().model_dump()).json()["token"]
        statuses = [api.ask("GET", "/execution/nothing", token=token).status_code for _ in range(5)]
        assert statuses == [404, 404, 404, 429, 429] or statuses == [404, 404, 429, 429, 429]
        assert api.ask("GET", "/healthz", token=None).status_code == 200


NESTED = b"[" * 100_000 + b"]" * 100_000
HOSTILE = {
    "deep": b'{"triggers": [{"name": "a", "classpath": "a.B", "kwargs": {"a": ' + NESTED + b'}}], "pipelines": []}',
    "deep and open": b"[" * 1_000_000,
    "NUL outside": b'{"triggers": [], "pipelines": []}\0',
    "not UTF-8": b'{"triggers": [], "pipelines": [{"name": "\xff\xfe", "on": []}]}',
    "half a surrogate": b'{"triggers": [], "pipelines": [{"name": "\\ud800", "on": []}]}',
    "huge number": b'{"triggers": [], "pipelines": [], "more": ' + b"9" * 100_000 + b"}",
    "not a number": b'{"triggers": NaN, "pipelines": [Infinity]}',
    "null": b"null",
    "empty": b"",
    "UTF-16": '{"triggers": [], "pipelines": []}'.encode("utf-16"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused_with_a_problem(api: Api, name: str) -> None:
    token = api.ask("POST", "/execution/jobs", json=registration().model_dump()).json()["token"]
    response = api.ask("PUT", "/execution/projects/flights", token=token, content=HOSTILE[name], headers=JSON)
    assert (response.status_code, response.headers["content-type"]) == (422, PROBLEM_JSON), response.text


HUGE = 10**40


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/execution/triggers/load", {"capacity": HUGE}),
        ("/execution/triggers/workloads", {"trigger_ids": [HUGE]}),
        ("/execution/triggers/cleanup", {"trigger_ids": [HUGE]}),
        (f"/execution/triggers/{HUGE}/failure", {"epoch": HUGE, "type": "a", "message": "b\0"}),
        ("/execution/triggers/1/failure", {"epoch": HUGE, "type": "a", "message": "b"}),
        (f"/execution/triggers/{HUGE}/backlog/settle", {"epoch": 1, "settled": [{"number": 1, "answer": "fired"}]}),
        ("/execution/triggers/1/backlog/settle", {"epoch": 1, "settled": [{"number": HUGE, "answer": "fired"}]}),
        (
            "/execution/triggers/events",
            {"epochs": {str(HUGE): HUGE}, "events": [{"id": "a", "source": "b", "type": "c", "payload": "{}", "firings": [HUGE]}]},
        ),
        (
            "/execution/triggers/events",
            {"epochs": {}, "receipts": [{"stream": "s", "lane": "l", "after": None, "last": HUGE, "read": 1, "owed": [HUGE]}]},
        ),
    ],
)
def test_a_number_beyond_64_bits_causes_no_server_error(api: Api, path: str, body: object) -> None:
    token = api.ask("POST", "/execution/jobs", json=registration().model_dump()).json()["token"]
    response = api.ask("POST", path, token=token, json=body)
    assert response.status_code < 500, response.text
    assert response.is_success or response.headers["content-type"] == PROBLEM_JSON


def test_headers_above_the_size_limit_are_refused(api: Api) -> None:
    response = api.ask("GET", "/execution/events/head", headers={"X-Long": "x" * 40_000})
    assert (response.status_code, response.headers["content-type"]) == (431, PROBLEM_JSON)


def pour(client: socket.socket) -> None:
    for _ in range(4_096):
        client.sendall(b"x" * 16_384)


def test_a_connection_with_endless_headers_is_closed(api: Api) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            pour(client)
    assert api.ask("GET", "/healthz").status_code == 200


def test_the_limit_of_headers_does_not_apply_to_bodies(api: Api) -> None:
    token = api.ask("POST", "/execution/jobs", json=registration().model_dump()).json()["token"]
    body = declaration("first", text="x" * 200_000).model_dump()
    for _ in range(2):
        assert api.ask("PUT", "/execution/projects/flights", token=token, json=body).status_code == 200
