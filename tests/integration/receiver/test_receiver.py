"""`headrace receive` as a process, with real requests: what is accepted is in the queue, and what is not gets a reason."""

from __future__ import annotations

import asyncio
import hmac
import json
import signal
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from headrace.core.signatures.standard_webhooks import secret_of
from headrace.sources.http.upstream import Http
from headrace.testing.contract.reading import reading
from headrace.triggers.raw_event import Message
from support.processes.receiver import Receiver, receiving

SECRET = secret_of(bytes(range(32)))
OLD_SECRET = secret_of(bytes(range(32, 64)))
JSON = {"Content-Type": "application/json"}
UPSTREAMS = (
    "Http('open', verify='none', key='$.customer', lanes=2, headers=['X-Tenant'], folder='in'),"
    "Http('signed', verify='standard-webhooks', connection='hook', folder='in'),"
    "Http('github', verify='github', connection='hook', folder='in'),"
    "Http('stripe', verify='stripe', connection='hook', folder='in'),"
    "Http('slack', verify='slack', connection='hook', folder='in'),"
    "Http('bearer', verify='bearer', connection='hook', folder='in'),"
    "Http('basic', verify='basic', connection='hook', folder='in'),"
    "Http('secretless', verify='bearer', connection='absent', folder='in'),"
    "Http('small', verify='none', max_bytes=1024**2, folder='in')"
)
HOOK = json.dumps({"kind": "http", "login": "ada", "password": SECRET, "extra": {"passwords": [OLD_SECRET]}})


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiving(tmp_path_factory.mktemp("receiver"), UPSTREAMS, HEADRACE_CONNECTION_HOOK=HOOK) as running:
        yield running


def post(receiver: Receiver, name: str, body: bytes, headers: dict[str, str] = JSON) -> httpx.Response:
    return httpx.post(f"{receiver.url}/hooks/{name}", content=body, headers=headers, trust_env=False, timeout=30)


def upstream(receiver: Receiver, name: str) -> Http:
    return Http(name, verify="none", folder=receiver.folder / "in")


async def messages(receiver: Receiver, name: str, count: int) -> list[Message]:
    """Return the next messages of an endpoint, and advance past them."""
    async with reading(upstream(receiver, name).producer()) as stream:
        items = await stream.take(count)
        await stream.advance(items)
    return [raw for raw, _ in items]


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """Return the problem of a response, which names a reason."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    content: dict[str, Any] = response.json()
    assert content["status"] == status
    assert content["type"].startswith("https://headrace.dev/problems/")
    assert content["detail"]
    return content


async def test_a_request_is_a_message_with_its_key_headers_and_id(receiver: Receiver) -> None:
    body = b' {"customer": "Ada", "amount": 2.50} '
    sent = JSON | {
        "X-Tenant": "t1",
        "X-Other": "o",
        "Authorization": "Bearer no",
        "Cookie": "c=1",
        "webhook-id": "w1",
        "traceparent": "00-1-2-00",
    }
    before = time.time()
    response = post(receiver, "open", body, sent)
    assert (response.status_code, response.json()) == (202, {"accepted": 1})
    (raw,) = await messages(receiver, "open", 1)
    assert (raw.data, raw.key, raw.id) == (body, "Ada", "w1")
    assert raw.headers["x-tenant"] == "t1"
    assert raw.headers["traceparent"] == "00-1-2-00"
    assert raw.headers.keys().isdisjoint({"x-other", "authorization", "cookie"})
    assert raw.timestamp is not None
    assert before - 1 <= raw.timestamp.timestamp() <= time.time() + 1


async def test_cloud_events_in_all_modes_are_messages_in_the_json_format(receiver: Receiver) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/shop/a", "type": "paid", "subject": "Ada"}
    structured = json.dumps(event | {"data": {"n": 1}}).encode()
    assert post(receiver, "open", structured, {"Content-Type": "application/cloudevents+json; charset=utf-8"}).status_code == 202
    batch = b"[" + structured + b', {"specversion":"1.0","id":"2","source":"/shop/a","type":"paid","partitionkey":"Bo","data":2.50}]'
    assert post(receiver, "open", batch, {"Content-Type": "application/cloudevents-batch+json"}).json() == {"accepted": 2}
    binary = {f"ce-{name}": value for name, value in event.items()} | {"ce-id": "3", "ce-subject": "J%C3%BCrgen"} | JSON
    assert post(receiver, "open", b'{"n": 3}', binary).status_code == 202
    found = sorted(await messages(receiver, "open", 4), key=lambda raw: (raw.id or "", raw.position))
    assert [raw.id for raw in found] == ["%2Fshop%2Fa/1", "%2Fshop%2Fa/1", "%2Fshop%2Fa/2", "%2Fshop%2Fa/3"]
    assert [raw.key for raw in found] == ["Ada", "Ada", "Bo", "Jürgen"]
    assert found[0].data == structured
    assert b'"data":2.50' in found[2].data
    assert found[3].value["data"] == {"n": 3}
    assert found[3].value["subject"] == "Jürgen"


async def test_lines_of_json_are_one_message_each(receiver: Receiver) -> None:
    body = b'{"customer":"Ada","n":1}\n\n{"customer":"Ada","n":2}\n'
    assert post(receiver, "open", body, {"Content-Type": "application/x-ndjson", "idempotency-key": "k"}).json() == {"accepted": 2}
    assert [(raw.data[-2:-1], raw.id) for raw in await messages(receiver, "open", 2)] == [(b"1", "k/1"), (b"2", "k/2")]
    assert "Line 2" in problem(post(receiver, "open", b"1\n{", {"Content-Type": "application/x-ndjson"}), 400)["detail"]


def signed(name: str, secret: str, body: bytes) -> dict[str, str]:
    now = int(time.time())
    if name == "signed":
        at = datetime.now(UTC)
        signature = Webhook(secret).sign("msg_1", at, body.decode())
        return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
    if name == "bearer":
        return {"Authorization": f"Bearer {secret}", "idempotency-key": "k1"}
    if name == "basic":
        return {"Authorization": "Basic " + b64encode(f"ada:{secret}".encode()).decode()}
    text = {"github": b"", "stripe": b"%d." % now, "slack": b"v0:%d:" % now}[name] + body
    digits = hmac.digest(secret.encode(), text, "sha256").hex()
    return {
        "github": {"X-Hub-Signature-256": f"sha256={digits}", "X-GitHub-Delivery": "d1", "X-GitHub-Event": "push"},
        "stripe": {"Stripe-Signature": f"t={now},v1={digits}"},
        "slack": {"X-Slack-Request-Timestamp": str(now), "X-Slack-Signature": f"v0={digits}"},
    }[name]


@pytest.mark.parametrize(
    ("name", "body", "id"),
    [
        ("signed", b'{"n":1}', "msg_1"),
        ("github", b'{"n":1}', "d1"),
        ("stripe", b'{"id":"evt_1"}', "evt_1"),
        ("slack", b'{"event_id":"Ev1","type":"event_callback"}', "Ev1"),
        ("bearer", b'{"n":1}', "k1"),
        ("basic", b'{"n":1}', None),
    ],
)
async def test_only_requests_with_a_valid_secret_are_accepted(receiver: Receiver, name: str, body: bytes, id: str | None) -> None:
    receiver_is_ready(receiver, name)
    for secret in (SECRET, OLD_SECRET):
        assert post(receiver, name, body, JSON | signed(name, secret, body)).status_code == 202
    assert [(raw.data, raw.id) for raw in await messages(receiver, name, 2)] == [(body, id)] * 2
    wrong = post(receiver, name, body, JSON | signed(name, secret_of(bytes(32)), body))
    assert problem(wrong, 401)["hint"]
    assert ("www-authenticate" in wrong.headers) is (name in ("bearer", "basic"))
    problem(post(receiver, name, body), 401)
    if name not in ("bearer", "basic"):
        problem(post(receiver, name, body + b" ", JSON | signed(name, SECRET, body)), 401)


def receiver_is_ready(receiver: Receiver, name: str) -> None:
    """Wait until the receiver has the secrets of an endpoint."""
    until = time.monotonic() + 30
    while post(receiver, name, b"{}").status_code == 503:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_challenge_of_slack_is_answered_only_if_it_is_signed(receiver: Receiver) -> None:
    receiver_is_ready(receiver, "slack")
    body = b'{"type":"url_verification","challenge":"c123"}'
    response = post(receiver, "slack", body, JSON | signed("slack", SECRET, body))
    assert (response.status_code, response.text) == (200, "c123")
    problem(post(receiver, "slack", body), 401)


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("body", "headers", "status", "detail"),
    [
        (b"{", {}, 400, "not valid JSON|Not valid JSON"),
        (b"", {}, 400, "empty"),
        (b'{"a":"\xff"}', {}, 400, "JSON"),
        (b'"\\ud800"', {}, 400, "surrogate"),
        (DEEP, {}, 400, "nested deeper"),
        (b"a", {"Content-Type": "application/x-www-form-urlencoded"}, 400, "not a form"),
        (b"a=%ff", {"Content-Type": "application/x-www-form-urlencoded"}, 400, "not a form"),
        (b"payload=nothing", {"Content-Type": "application/x-www-form-urlencoded"}, 400, "cannot be used"),
        (b"a=1", {"Content-Type": "multipart/form-data; boundary=x"}, 415, "not supported"),
        (b"{}", {"Content-Type": "application/json; charset=utf-16"}, 415, "not supported"),
        (b"<a/>", {"Content-Type": "application/cloudevents+xml"}, 415, "not supported"),
        (b"{}", {"Content-Type": "application/cloudevents+json"}, 400, "absent"),
        (b"[1]", {"Content-Type": "application/cloudevents-batch+json"}, 400, "Event 1"),
        (b"{}", {"Content-Type": "application/cloudevents-batch+json"}, 400, "array"),
        (b'"' + b"x" * 1024 * 1024 + b'"', {}, 413, "too long"),
        (b" " * (4 * 1024 * 1024) + b"1", {}, 413, "larger than"),
    ],
)
def test_a_request_that_cannot_be_used_gets_the_reason(
    receiver: Receiver, body: bytes, headers: dict[str, str], status: int, detail: str
) -> None:
    content = problem(post(receiver, "open", body, JSON | headers), status)
    assert any(text in content["detail"] for text in detail.split("|")), content


def test_other_paths_and_methods_are_refused(receiver: Receiver) -> None:
    problem(post(receiver, "missing", b"{}"), 404)
    for method, path, allow in (("GET", "/hooks/open", "POST, OPTIONS"), ("POST", "/health", "GET, HEAD")):
        response = httpx.request(method, receiver.url + path, trust_env=False)
        problem(response, 405)
        assert response.headers["allow"] == allow
    handshake = httpx.request(
        "OPTIONS", f"{receiver.url}/hooks/open", headers={"WebHook-Request-Origin": "events.example"}, trust_env=False
    )
    assert handshake.headers["webhook-allowed-origin"] == "events.example"


def test_an_endpoint_without_its_secret_asks_for_another_attempt(receiver: Receiver) -> None:
    response = post(receiver, "secretless", b"{}", JSON | {"Authorization": "Bearer x"})
    problem(response, 503)
    assert int(response.headers["retry-after"]) > 0
    health = httpx.get(f"{receiver.url}/health", trust_env=False)
    assert "secretless" not in problem(health, 503)["detail"]
    assert '"endpoint":"secretless"' in receiver.log.read_text()


async def test_a_full_queue_refuses_requests_until_it_is_read(receiver: Receiver) -> None:
    body = b'"' + b"x" * 200_000 + b'"'
    count = 0
    until = time.monotonic() + 30
    while (response := post(receiver, "small", body)).status_code == 202:
        count += 1
        assert time.monotonic() < until
    assert problem(response, 429)["hint"]
    assert int(response.headers["retry-after"]) > 0
    assert count >= 4
    assert len(await messages(receiver, "small", count)) == count
    until = time.monotonic() + 30
    while post(receiver, "small", b"1").status_code == 429:
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


def raw_request(receiver: Receiver, data: bytes, *, timeout: float = 60.0) -> bytes:
    """Send bytes, and return what the receiver sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=timeout) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        try:
            while part := connection.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)


def test_wrong_credentials_are_refused_before_the_body_is_sent(receiver: Receiver) -> None:
    receiver_is_ready(receiver, "bearer")
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=30) as connection:
        head = b"POST /hooks/bearer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head)
        assert connection.recv(65536).startswith(b"HTTP/1.1 401")


HOSTILE = {
    "no http": b"\x00\xff\x00" * 100 + b"\r\n\r\n",
    "NUL in a header": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\nContent-Length: 2\r\n\r\n{}",
    "huge header": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 100_000 + b"\r\n\r\n",
    "many headers": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\n" + b"X-A: a\r\n" * 10_000 + b"\r\n",
    "negative length": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
    "huge length": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n{}",
    "two lengths": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "broken chunk": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
    "too short a body": b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{}",
    "bytes in the path": b"POST /hooks/\xff\xfe HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "path with NUL": b"POST /hooks/open%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
    "upgrade": b"GET /hooks/open HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "half a request": b"POST /hooks/open HT",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_stop_nothing_and_store_nothing(receiver: Receiver, name: str) -> None:
    answer = raw_request(receiver, HOSTILE[name])
    assert b" 202 " not in answer
    assert b" 500 " not in answer
    assert post(receiver, "missing", b"{}").status_code == 404


@pytest.mark.slow
def test_concurrent_requests_are_all_stored(receiver: Receiver) -> None:
    async def send_all() -> list[int]:
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=60) as client:
            url = f"{receiver.url}/hooks/open"
            responses = await asyncio.gather(
                *(client.post(url, content=b'{"customer":%d}' % number, headers=JSON) for number in range(500))
            )
        return [response.status_code for response in responses]

    assert asyncio.run(send_all()) == [202] * 500
    assert sorted(raw.value["customer"] for raw in asyncio.run(messages(receiver, "open", 500))) == list(range(500))


@pytest.mark.slow
def test_a_stopped_receiver_finishes_the_request_in_progress(tmp_path: Path) -> None:
    with receiving(tmp_path, "Http('open', verify='none', folder='in')") as receiver:
        receiver.wait_until_healthy()
        with socket.create_connection(("127.0.0.1", receiver.port), timeout=30) as connection:
            connection.sendall(b"POST /hooks/open HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")
            assert receiver.process is not None
            receiver.process.send_signal(signal.SIGTERM)
            while True:  # until it no longer listens
                try:
                    socket.create_connection(("127.0.0.1", receiver.port), timeout=30).close()
                except OSError:
                    break
            connection.sendall(b"{}")
            assert connection.recv(1000).startswith(b"HTTP/1.1 202")
        assert receiver.stop() == 0
        assert "receiver stopped" in receiver.log.read_text()
        assert [raw.data for raw in asyncio.run(messages(receiver, "open", 1))] == [b"{}"]


def test_ctrl_c_ends_the_receiver(tmp_path: Path) -> None:
    with receiving(tmp_path, "Http('open', verify='none', folder='in')") as receiver:
        assert receiver.stop(signal.SIGINT) == 0


class Senders:
    """Threads that send messages one by one, and repeat what was not answered with the same id."""

    def __init__(self, url: str) -> None:
        self.accepted: set[str] = set()
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(4)]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def wait_until_accepted(self, count: int) -> None:
        until = time.monotonic() + 60
        while len(self.accepted) < count:
            assert time.monotonic() < until
            time.sleep(0.005)

    def _send(self, sender: int) -> None:
        number = 0
        with httpx.Client(trust_env=False, timeout=10) as client:
            while not self._stop.is_set():
                id = f"{sender}-{number}"
                try:
                    response = client.post(self._url, json={"id": id}, headers={"webhook-id": id})
                except httpx.TransportError:
                    time.sleep(0.01)
                    continue
                if response.status_code == 202:
                    self.accepted.add(id)
                    number += 1


@pytest.mark.slow
def test_a_killed_receiver_has_stored_everything_that_it_accepted(tmp_path: Path) -> None:
    with receiving(tmp_path, "Http('open', verify='none', folder='in')") as receiver:
        with Senders(f"{receiver.url}/hooks/open") as senders:
            for kill in range(1, 4):
                senders.wait_until_accepted(kill * 60)
                receiver.kill()
                receiver.start()
        accepted = senders.accepted

    async def stored() -> list[str | None]:
        ids: list[str | None] = []
        async with reading(upstream(receiver, "open").producer()) as stream:
            while not accepted <= set(ids):
                ids += [raw.id for raw, _ in await stream.take(1)]
        return ids

    ids = asyncio.run(stored())
    assert accepted <= set(ids)
    assert len(ids) - len(set(ids)) <= 3 * 4  # at most one repetition for each sender and kill
