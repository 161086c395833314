"""Requests become events: receiver, API server and triggerer as processes, with secrets from the API, kills and repeated requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from headrace import Queue
from headrace.core.signatures.standard_webhooks import secret_of, signed_headers
from headrace.testing.contract.reading import reading
from support.processes.deployment import KEY, Deployment, until
from support.processes.receiver import Receiver

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

FIRST, SECOND = secret_of(b"1" * 32), secret_of(b"2" * 32)
UPSTREAMS = "Http('orders', verify='standard-webhooks', connection='hook'), Http('returned', verify='standard-webhooks', connection='hook')"


def set_secret(deployment: Deployment, secret: str) -> None:
    done = deployment.cli("connections", "set", "hook", "--value", json.dumps({"kind": "http", "password": secret}))
    assert done.returncode == 0, done.stderr


def post(receiver: Receiver, id: str, secret: str = FIRST) -> int:
    """Send an order, and return the status, or 0 if there is no response."""
    body = json.dumps({"order": id}).encode()
    headers = {"Content-Type": "application/json"} | signed_headers(secret, id, int(time.time()), body)
    try:
        return httpx.post(f"{receiver.url}/hooks/orders", content=body, headers=headers, trust_env=False).status_code
    except httpx.TransportError:
        return 0


def orders(deployment: Deployment, type: str = "headrace.http.request") -> Counter[str]:
    """Return how often each order is in the log."""
    rows = deployment.rows("SELECT payload FROM events WHERE type = ?", type)
    return Counter(json.loads(payload)["order"] for (payload,) in rows if "order" in payload)


def test_requests_are_events_once_over_kills_repetitions_and_outages_of_the_api(tmp_path: Path) -> None:
    with Deployment(tmp_path, webhook_allow_private=1) as deployment:
        environment = {"HEADRACE_API_URL": deployment.url, "HEADRACE_KEY": KEY}
        receiver = Receiver(tmp_path, UPSTREAMS, environment)
        receiver.start()
        try:
            assert post(receiver, "0") == 503  # without the secret
            set_secret(deployment, FIRST)
            receiver.wait_until_healthy()
            deployment.triggerer(tmp_path / "project.py")
            for id in ("1", "2", "1"):
                assert post(receiver, id) == 202
            assert post(receiver, "3", SECOND) == 401
            until(lambda: orders(deployment).keys() == {"1", "2"}, "the orders are stored")
            receiver.kill()
            assert post(receiver, "4") == 0
            receiver.start()
            receiver.wait_until_healthy()
            for id in ("4", "2"):
                assert post(receiver, id) == 202
            deployment.stop_api()
            for id in ("5", "4"):
                assert post(receiver, id) == 202
            deployment.start_api()
            until(lambda: orders(deployment).keys() == {"1", "2", "4", "5"}, "the orders of the outage are stored")
            set_secret(deployment, SECOND)
            until(lambda: post(receiver, "6", SECOND) == 202, "the changed secret is used", 150)
            assert post(receiver, "7", FIRST) == 401
            until(lambda: "6" in orders(deployment), "the order with the changed secret is stored")
            assert set(orders(deployment).values()) == {1}
            assert deployment.rows("SELECT count(*) FROM jobs WHERE kind = 'receiver' AND state = 'running'") == [(1,)]
            assert receiver.stop() == 0
            assert deployment.rows("SELECT count(*) FROM jobs WHERE kind = 'receiver' AND state = 'running'") == [(0,)]
        finally:
            receiver.stop()


def test_a_webhook_of_headrace_is_received_by_another_endpoint(tmp_path: Path) -> None:
    with Deployment(tmp_path, webhook_allow_private=1) as deployment:
        set_secret(deployment, FIRST)
        environment = {"HEADRACE_API_URL": deployment.url, "HEADRACE_KEY": KEY}

        receiver = Receiver(tmp_path, UPSTREAMS, environment)
        project = (tmp_path / "project.py").read_text().replace("one)", "one, type=f'order.{n}')")
        (tmp_path / "project.py").write_text(project)
        receiver.start()
        try:
            receiver.wait_until_healthy()
            added = deployment.cli("webhooks", "add", "back", f"{receiver.url}/hooks/returned", "--type", "order.0", "--secret", FIRST)
            assert added.returncode == 0, added.stderr
            deployment.triggerer(tmp_path / "project.py")
            assert post(receiver, "1") == 202
            until(lambda: deployment.rows("SELECT count(*) FROM events WHERE type = 'order.1'") == [(1,)], "the webhook comes back")
            ((payload,),) = deployment.rows("SELECT payload FROM events WHERE type = 'order.1'")
            event = json.loads(payload)
            assert (event["specversion"], event["type"], event["data"]) == ("1.0", "order.0", {"order": "1"})
        finally:
            receiver.stop()


async def read_elsewhere(path: Path, count: int) -> None:
    """Take messages from the queue of an endpoint, as another program that does not record them."""
    async with reading(Queue(path).producer()) as stream:
        await stream.advance(await stream.take(count))


def test_the_audit_compares_an_endpoint_with_its_queue(tmp_path: Path) -> None:
    with Deployment.with_short_leases(tmp_path) as deployment:
        set_secret(deployment, FIRST)
        receiver = Receiver(
            tmp_path,
            "Http('orders', verify='standard-webhooks', connection='hook')",
            {"HEADRACE_API_URL": deployment.url, "HEADRACE_KEY": KEY},
        )
        receiver.start()
        try:
            receiver.wait_until_healthy()
            triggerer = deployment.triggerer(tmp_path / "project.py")
            assert [post(receiver, id) for id in "123"] == [202] * 3
            until(lambda: len(orders(deployment)) == 3, "the orders are stored")
            until(lambda: deployment.balanced_stream()["read"] == 3, "the audit balances")
            triggerer.kill()
            assert [post(receiver, id) for id in "45"] == [202] * 2
            (queue,) = tmp_path.rglob("orders.queue")
            asyncio.run(read_elsewhere(queue, 2))
            deployment.triggerer(tmp_path / "project.py")
            assert post(receiver, "6") == 202
            until(lambda: "6" in orders(deployment), "the last order is stored")

            def problems() -> list[str]:
                return [problem["problem"] for problem in deployment.audited_stream()["problems"]]

            # The receipt of the last order is recorded after the order.
            until(lambda: problems() == ["nothing is recorded after 3 up to 5"], "the audit names the messages that were read elsewhere")
        finally:
            receiver.stop()
