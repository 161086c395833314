"""The admin API of a cluster, of which each broker redirects to the one that serves the topic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from headrace.errors import StreamError, UpstreamError
from headrace.sources.pulsar.admin import MAX_REDIRECTS, AdminApi
from headrace.sources.pulsar.settings import Settings

TOPIC = "persistent://shop/eu/orders"
PATH = "/admin/v2/persistent/shop/eu/orders"


class Cluster:
    """A server that answers a request of a path in turn, and records the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, list[web.Response]] = {}
        self.requests: list[tuple[str, str, str, str | None]] = []
        self.url = ""

    def answer(self, path: str, status: int = 200, body: Any = None, **headers: str) -> None:
        self.answers.setdefault(path, []).append(web.json_response(body, status=status, headers=headers))

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((request.method, request.path, await request.text(), request.headers.get("Authorization")))
        answers = self.answers.get(request.path)
        return answers.pop(0) if answers else web.json_response({"reason": "Not found"}, status=404)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster, app = Cluster(), web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    cluster.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield cluster
    await runner.cleanup()


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[AdminApi]:
    admin = AdminApi(Settings("pulsar://x:1", cluster.url, "secret", None, None))
    await admin.open()
    yield admin
    await admin.aclose()


async def test_a_redirected_request_keeps_its_method_body_and_token(cluster: Cluster, admin: AdminApi) -> None:
    cluster.answer(f"{PATH}/subscription/s", 307, None, Location=f"{cluster.url}/owner")
    cluster.answer("/owner", 204)
    await admin.create_subscription(TOPIC, "s", "latest")
    assert [request[:1] + request[2:] for request in cluster.requests] == [("PUT", '"latest"', "Bearer secret")] * 2


async def test_redirects_without_an_end_are_an_error(cluster: Cluster, admin: AdminApi) -> None:
    for _ in range(MAX_REDIRECTS):
        cluster.answer(f"{PATH}/stats", 307, None, Location=f"{PATH}/stats")
    with pytest.raises(StreamError, match="redirects more than"):
        await admin.find_stats(TOPIC)


async def test_a_token_is_not_sent_without_tls_after_a_redirect(admin: AdminApi) -> None:
    secure = AdminApi(Settings("pulsar+ssl://x:1", "https://x:2", "secret", None, {}))
    assert secure._redirected("It failed", "https://y:2/a") == "https://y:2/a"
    with pytest.raises(UpstreamError, match="redirects to an address without TLS"):
        secure._redirected("It failed", "http://y:2/a")
    assert admin._redirected("It failed", "http://y:2/a") == "http://y:2/a"


async def test_a_topic_without_partitions_is_looked_for_in_older_brokers(cluster: Cluster, admin: AdminApi) -> None:
    cluster.answer(f"{PATH}/partitions", 200, {"partitions": 0})
    cluster.answer(f"{PATH}/stats", 200, {"subscriptions": {}})
    assert await admin.partitions(TOPIC) == 0
    cluster.answer(f"{PATH}/partitions", 200, {"partitions": 0})
    with pytest.raises(UpstreamError, match="it does not exist") as missing:
        await admin.partitions(TOPIC)
    assert "Create the topic" in str(missing.value.hint)
    cluster.answer(f"{PATH}/partitions", 200, {"partitions": 3})
    assert await admin.partitions(TOPIC) == 3


async def test_a_subscription_is_one_of_the_statistics(cluster: Cluster, admin: AdminApi) -> None:
    assert await admin.find_subscription(TOPIC, "s") is None
    cluster.answer(f"{PATH}/stats", 200, {"subscriptions": {"s": {"consumers": []}}})
    assert await admin.find_subscription(TOPIC, "s") == {"consumers": []}


async def test_a_subscription_that_exists_is_not_created_again(cluster: Cluster, admin: AdminApi) -> None:
    cluster.answer(f"{PATH}/subscription/s", 409, {"reason": "exists"})
    await admin.create_subscription(TOPIC, "s", "earliest")
    cluster.answer(f"{PATH}/subscription/s", 403, {"reason": "no"})
    with pytest.raises(UpstreamError, match="cannot be created: the admin API answers 403: no"):
        await admin.create_subscription(TOPIC, "s", "earliest")


async def test_the_acknowledged_entry_is_that_of_the_cursor(cluster: Cluster, admin: AdminApi) -> None:
    cluster.answer(f"{PATH}/internalStats", 200, {"cursors": {"a+b": {"markDeletePosition": "7:-1"}}})
    assert await admin.acknowledged(TOPIC, "a b") == (7, -1)
    cluster.answer(f"{PATH}/internalStats", 200, {"cursors": {}})
    assert await admin.acknowledged(TOPIC, "a b") is None


async def test_an_answer_of_another_service_is_refused(cluster: Cluster, admin: AdminApi) -> None:
    cluster.answer(f"{PATH}/partitions", 200, ["not", "an", "object"])
    with pytest.raises(UpstreamError, match="not of the admin API of Pulsar"):
        await admin.partitions(TOPIC)
    with pytest.raises(StreamError, match="the connection is not open"):
        await AdminApi(Settings("pulsar://x:1", cluster.url, None, None, None)).version()
