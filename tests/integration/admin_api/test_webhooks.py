"""Webhooks with a real API server and a real receiver: delivery, failure, pause, removal and access."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

import pytest
from standardwebhooks import Webhook

from headrace.api.background import webhook_sender
from headrace.core.identity import event_key
from headrace.store.ordering import log_feed
from headrace.store.ordering.log_feed import Progress
from headrace.store.ordering.payloads import PayloadBudget
from headrace.store.webhooks import Hook
from headrace.wire.cloud_event import cloud_event
from support.processes.execution_api import Api, serving
from support.processes.store import DATABASES, Holder, event, holder

SECRET = "whsec_c2VjcmV0cyBvZiB0ZXN0cyBhcmUgbG9uZyBlbm91Z2g="
OTHER_SECRET = "whsec_YW5vdGhlciBzZWNyZXQgdGhhdCBpcyBsb25nIGVub3VnaA=="


@dataclass
class Receiver:
    """Takes what it is told, but for ids that it is to refuse, with the headers that it answers these with."""

    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    told: list[tuple[dict[str, Any], dict[str, str], bytes]] = field(default_factory=list)
    changed: Condition = field(default_factory=Condition)
    url: str = ""

    def take(self, headers: dict[str, str], body: bytes) -> dict[str, str] | None:
        with self.changed:
            told = json.loads(body)
            self.told.append((told, headers, body))
            self.changed.notify_all()
            return self.refused.get(told["id"])

    def ids(self, count: int) -> list[str]:
        """Return the ids told, in order, once there are `count`."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.told) >= count, 20), [told["id"] for told, *_ in self.told]
            return [told["id"] for told, *_ in self.told]


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            refusal = receiver.take(headers, body)
            self.send_response(204 if refusal is None else 503)
            for name, value in (refusal or {}).items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def add(api: Api, receiver: Receiver, **other: Any) -> None:
    given = {"url": receiver.url, "secret": SECRET} | other
    assert api.ask("PUT", "/api/v1/webhooks/mine", json=given).status_code == 204


def attempts(api: Api, count: int) -> list[dict[str, Any]]:
    """Return the attempts that are on show, the oldest first, once there are `count`."""
    for _ in range(2_000):
        found: list[dict[str, Any]] = api.ask("GET", "/api/v1/webhooks/mine/deliveries").json()["deliveries"]
        if len(found) >= count:
            break
    assert len(found) >= count
    return found[::-1]


@pytest.fixture(params=DATABASES)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Api, Receiver, Holder]]:
    with serving(tmp_path, kind=request.param, webhook_allow_private=True) as api, receiving() as receiver:
        yield api, receiver, holder(api.store, "legs")


def test_events_are_delivered_as_signed_cloudevents_in_causal_order(scene: tuple[Api, Receiver, Holder]) -> None:
    api, receiver, owner = scene
    owner.append(event("before"))
    add(api, receiver, types=["leg*"])
    owner.append(event("c", follows="b"), event("other", type="gate"), event("b", follows="a"))
    owner.append(event("a", subject="N1", payload='{"n": 1}'))
    assert receiver.ids(3) == ["a", "b", "c"]
    told, headers, body = receiver.told[0]
    assert told | {"time": "", "recordedtime": ""} == {
        "specversion": "1.0",
        "id": "a",
        "source": "tests",
        "type": "leg",
        "subject": "N1",
        "time": "",
        "recordedtime": "",
        "sequence": "5",
        "datacontenttype": "application/json",
        "data": {"n": 1},
    }
    assert receiver.told[1][0]["causationid"] == "a"
    assert receiver.told[0][0].keys().isdisjoint({"causationid", "traceparent", "headracemark"})
    assert headers["content-type"].startswith("application/cloudevents+json")
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)  # the turned clock: the library would refuse it by its age
    assert Webhook(SECRET).sign(headers["webhook-id"], at, body.decode()) == headers["webhook-signature"]
    assert headers["webhook-id"] == event_key("tests", "a").hex()
    assert [one["outcome"] for one in attempts(api, 3)] == ["delivered"] * 3


def test_only_events_whose_payload_matches_are_delivered(scene: tuple[Api, Receiver, Holder]) -> None:
    api, receiver, owner = scene
    add(api, receiver, types=["leg"], match={"status": ["paid"]})
    owner.append(
        event("unpaid", payload='{"status": "new"}'),
        event("paid", follows="unpaid", payload='{"status": "paid"}'),
        event("other", type="gate", payload='{"status": "paid"}'),
        event("list", payload='[{"status": "paid"}]'),
        event("follower", follows="list", payload='{"status": "paid"}'),
    )
    assert sorted(receiver.ids(2)) == ["follower", "paid"]
    attempts(api, 2)
    owner.append(event("orphan", follows="late", payload='{"status": "paid"}'), event("late", payload="null"))
    assert receiver.ids(3)[-1] == "orphan", "its leader counts as accepted"
    attempts(api, 3)
    (shown,) = api.ask("GET", "/api/v1/webhooks").json()["webhooks"]
    assert (shown["match"], shown["types"]) == ({"status": ["paid"]}, ["leg"])
    assert (shown["delivered"], shown["waiting"], shown["lag"]) == (3, 0, 0)


def test_a_webhook_receives_no_event_that_its_new_pattern_does_not_match(scene: tuple[Api, Receiver, Holder]) -> None:
    api, receiver, owner = scene
    receiver.refused["old"] = {"Retry-After": "60"}
    add(api, receiver)
    owner.append(event("old", payload='{"status": "new"}'), event("next", follows="old", payload='{"status": "paid"}'))
    assert receiver.ids(1) == ["old"]
    attempts(api, 1)
    add(api, receiver, match={"status": ["paid"]})
    api.clock.turn(61)
    owner.append(event("last", payload='{"status": "paid"}'))
    assert sorted(receiver.ids(3)[1:]) == ["last", "next"]
    add(api, receiver)
    assert api.ask("GET", "/api/v1/webhooks").json()["webhooks"][0]["match"] is None
    owner.append(event("any", payload='{"status": "new"}'))
    assert receiver.ids(4)[-1] == "any"


@pytest.mark.parametrize("max_bytes", [1, 50])
def test_a_pattern_tests_a_bounded_part_of_the_log_per_page(
    scene: tuple[Api, Receiver, Holder], monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    api, receiver, owner = scene
    monkeypatch.setattr(log_feed, "PayloadBudget", lambda: PayloadBudget(max_bytes))
    add(api, receiver, types=["leg"], match={"n": [{"numeric": ["<=", 3]}]})
    owner.append(*(event(f"{n}", payload=json.dumps({"n": n % 10})) for n in range(30)))
    assert sorted(receiver.ids(12), key=int) == [f"{n}" for n in range(30) if n % 10 <= 3]


def test_a_failed_event_blocks_only_its_followers_until_it_is_redriven(scene: tuple[Api, Receiver, Holder]) -> None:
    api, receiver, owner = scene
    receiver.refused["bad"] = {"Retry-After": "120"}
    add(api, receiver, max_attempts=2)
    owner.append(event("a"), event("bad", follows="a"), event("held", follows="bad"), event("good", follows="a"))
    assert sorted(receiver.ids(3)) == ["a", "bad", "good"]
    attempts(api, 3)
    api.clock.turn(119)
    owner.append(event("next"))
    assert receiver.ids(4)[-1] == "next"
    api.clock.turn(2)
    assert receiver.ids(5)[-1] == "bad"
    assert [one["outcome"] for one in attempts(api, 5)].count("dead") == 1
    (shown,) = api.ask("GET", "/api/v1/webhooks").json()["webhooks"]
    assert (shown["delivered"], shown["failed"], shown["dead"], shown["waiting"], shown["lag"]) == (3, 1, 1, 2, 0)
    assert SECRET not in json.dumps(shown)
    receiver.refused.clear()
    assert api.ask("POST", "/api/v1/webhooks/mine/redrive").json() == {"count": 1}
    assert receiver.ids(7)[-2:] == ["bad", "held"]


def test_an_event_that_cannot_be_encoded_blocks_no_others(scene: tuple[Api, Receiver, Holder], monkeypatch: pytest.MonkeyPatch) -> None:
    api, receiver, owner = scene
    whole = cloud_event

    def odd(row: Any, mark: str | None) -> bytes:
        if row.id == "odd":
            raise OverflowError("no such year")
        return whole(row, mark)

    monkeypatch.setattr(webhook_sender, "cloud_event", odd)
    add(api, receiver, max_attempts=1)
    owner.append(*(event(f"{n}") for n in range(20)), event("odd"), *(event(f"{n}") for n in range(20, 40)))
    assert sorted(receiver.ids(40), key=int) == [f"{n}" for n in range(40)]
    told = attempts(api, 41)
    assert [(one["outcome"], one["error"]) for one in told if one["outcome"] != "delivered"] == [
        ("dead", "it cannot be sent: OverflowError: no such year")
    ]


def test_a_resumed_webhook_continues_and_a_removed_webhook_is_deleted(scene: tuple[Api, Receiver, Holder]) -> None:
    api, receiver, owner = scene
    add(api, receiver)
    owner.append(event("a"))
    assert receiver.ids(1) == ["a"]
    assert api.ask("POST", "/api/v1/webhooks/mine/state", json={"state": "paused"}).status_code == 204
    assert api.ask("GET", "/api/v1/webhooks").json()["webhooks"][0]["state"] == "paused"
    owner.append(event("b", follows="a"))
    assert api.ask("POST", "/api/v1/webhooks/mine/state", json={"state": "active"}).status_code == 204
    assert receiver.ids(2) == ["a", "b"]
    assert api.ask("DELETE", "/api/v1/webhooks/mine").status_code == 204
    assert api.ask("GET", "/api/v1/webhooks").json() == {"webhooks": []}
    assert api.ask("DELETE", "/api/v1/webhooks/mine").status_code == 404


@pytest.mark.parametrize("moment", ["feed", "note"])
def test_removing_a_webhook_during_its_delivery_does_not_delay_other_webhooks(
    scene: tuple[Api, Receiver, Holder], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, receiver, owner = scene
    begun, go_on = Event(), Event()
    work = getattr(api.store.webhooks, moment)

    def wait(hook: Hook, *other: Any) -> Any:
        if hook.name == "mine" and owned and not begun.is_set():
            begun.set()
            assert go_on.wait(20)
        return work(hook, *other)

    owned: list[bool] = []
    monkeypatch.setattr(api.store.webhooks, moment, wait)
    add(api, receiver)
    owned.append(True)
    owner.append(event("a"))
    assert begun.wait(20)
    assert api.ask("DELETE", "/api/v1/webhooks/mine").status_code == 204
    assert api.ask("PUT", "/api/v1/webhooks/other", json={"url": receiver.url, "secret": SECRET}).status_code == 204
    go_on.set()
    owner.append(event("b"))
    told = len(receiver.told)
    while "b" not in receiver.ids(told):
        told += 1
    assert api.store.background.alerts() == []


def test_events_for_a_new_webhook_are_not_sent_to_the_previous_url(
    scene: tuple[Api, Receiver, Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, removed, owner = scene
    begun, go_on, listed = Event(), Event(), Event()
    exists, active, feed = api.store.webhooks.exists, api.store.webhooks.active, api.store.webhooks.feed
    ended: list[bool] = []

    def note_end(hook: Hook) -> bool:
        there = exists(hook)
        with removed.changed:
            ended.append(not there)
            removed.changed.notify_all()
        return there

    def begin(hook: Hook) -> Progress:
        if removed.told and not begun.is_set():
            begun.set()
            assert go_on.wait(20)
        return feed(hook)

    def read() -> list[Hook]:
        if begun.is_set():
            assert listed.wait(20)
        return active()

    monkeypatch.setattr(api.store.webhooks, "exists", note_end)
    monkeypatch.setattr(api.store.webhooks, "feed", begin)
    monkeypatch.setattr(api.store.webhooks, "active", read)
    add(api, removed)
    owner.append(event("a"))
    assert begun.wait(20), "from here on the dispatcher knows the first webhook only, and a round of it is under way"
    with receiving() as receiver:
        assert api.ask("DELETE", "/api/v1/webhooks/mine").status_code == 204
        add(api, receiver, secret=OTHER_SECRET)
        owner.append(event("b"))
        go_on.set()
        with removed.changed:
            assert removed.changed.wait_for(lambda: any(ended) or len(removed.told) > 1, 20)
        listed.set()
        assert receiver.ids(1) == ["b"]
    assert removed.ids(1) == ["a"]
    assert [one["seq"] for one in attempts(api, 1)] == [2]


def test_two_api_servers_on_one_database_deliver_each_event_once(tmp_path: Path) -> None:
    with (
        serving(tmp_path, kind="postgresql", webhook_allow_private=True) as first,
        serving(tmp_path, kind="postgresql", webhook_allow_private=True) as second,
        receiving() as receiver,
    ):
        owner = holder(first.store, "legs")
        add(second, receiver)
        for chain in range(10):
            owner.append(*(event(f"{chain}-{n}", follows=f"{chain}-{n - 1}" if n else None) for n in reversed(range(5))))
        ids = receiver.ids(50)
        assert len(attempts(first, 50)) == 50
        assert sorted(ids) == sorted(f"{chain}-{n}" for chain in range(10) for n in range(5))
        for chain in range(10):
            mine = [id for id in ids if id.startswith(f"{chain}-")]
            assert mine == sorted(mine)


def test_no_request_is_sent_to_a_private_address(tmp_path: Path) -> None:
    with serving(tmp_path) as api, receiving() as receiver:
        owner = holder(api.store, "legs")
        add(api, receiver)
        owner.append(event("a"))
        (attempt,) = attempts(api, 1)
        assert attempt["status"] is None
        assert "not public" in attempt["error"]
        add(api, receiver, url=receiver.url.replace("127.0.0.1", "localhost"))
        api.clock.turn(10)
        assert "not public" in attempts(api, 2)[-1]["error"]
        assert receiver.told == []


def test_adding_a_webhook_needs_the_key_and_stores_an_encrypted_secret(tmp_path: Path) -> None:
    with serving(tmp_path) as api, receiving() as receiver:
        given = {"url": receiver.url, "secret": SECRET}
        assert api.ask("PUT", "/api/v1/webhooks/mine", token=None, json=given).status_code == 401
        assert api.ask("PUT", "/api/v1/webhooks/mine", json=given | {"secret": "short"}).status_code == 422
        add(api, receiver)
        with api.store.reading() as connection:
            kept = connection.exec_driver_sql("SELECT secret FROM webhooks").scalar_one()
        assert SECRET not in kept
        assert kept.startswith("gAAAA")
