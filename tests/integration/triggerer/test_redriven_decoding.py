"""Redriven dead letters are decoded again in real processes, for watches and triggers in Python, by the code that the stream runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes.deployment import Deployment, until

pytestmark = pytest.mark.timeout(240)

SHOP = """
import asyncio
import json
import time
from pathlib import Path

from headrace.errors import MalformedEvent, StreamError
from headrace.sources.decoding import Decoded, decode_again, decoded_message
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream

FOLDER = Path(__file__).parent
VALUES = [b"Ada=1200", b"\\xffBob", b"Cid=5"]


def decode(value, headers):
    known = (FOLDER / "known").read_text().split()
    if "blocked" in known and value.startswith(b"Cid"):
        time.sleep(600)
    if "away" in known:
        raise StreamError("The schema registry does not answer.")
    name, _, cents = value.decode(errors="replace").partition("=")
    if name not in known:
        raise MalformedEvent(f"{name} is unknown to {known}.")
    return Decoded(json.dumps({"name": name, "cents": cents}).encode(), f"id of {name}")


class ShopProducer(SharedStreamProducer):
    async def open_stream(self):
        for number, value in enumerate(VALUES):
            message = decoded_message(decode, value, "one", number, key="k", headers=[("shop", b"Berlin")])
            yield message, number
        await asyncio.Event().wait()

    async def advance(self, batch):
        pass

    def get_position(self, broker_payload):
        return broker_payload

    async def decode_again(self, message):
        return decode_again(decode, message)


class Shop(Upstream):
    event_type = "shop.order"

    def stream_key(self):
        return "shop"

    def serialize(self):
        return "shop.Shop", {}

    def producer(self):
        return ShopProducer()


class Orders(BaseEventTrigger):
    def serialize(self):
        return "shop.Orders", {}

    def shared_stream_key(self):
        return "shop python"

    @classmethod
    def create_shared_stream_producer(cls, kwargs):
        return ShopProducer()

    async def handle(self, raw):
        return TriggerEvent(raw.value)
"""

PROJECT = """
from headrace import Project
from shop import Orders, Shop

project = Project("shop")
project.watch("orders", Shop(), match={"@": {"headers": {"shop": ["Berlin"]}}})
project.trigger("python", Orders())
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    (tmp_path / "shop.py").write_text(SHOP)
    know(tmp_path, "nobody")
    with Deployment(tmp_path, stuck_timeout=3) as deployment:
        deployment.triggerer(deployment.project(PROJECT))
        until(lambda: len(letters(deployment)) == 6, "each value is a dead letter of both triggers")
        yield deployment


def know(folder: Path, *names: str) -> None:
    """Set the names that the decoder knows, in one step."""
    (folder / "new").write_text(" ".join(names))
    (folder / "new").replace(folder / "known")


def letters(deployment: Deployment) -> list[tuple[Any, ...]]:
    query = "SELECT stream, position, reason, attempts FROM dead_letters WHERE state = 'open' ORDER BY stream, position"
    return deployment.rows(query)


def redrive(deployment: Deployment) -> None:
    deployment.cli("dead-letters", "redrive", "--all")


def events(deployment: Deployment) -> list[tuple[str, str]]:
    found = deployment.rows("SELECT id, payload FROM events ORDER BY id")
    return [(str(id), json.loads(payload)["name"]) for id, payload in found]


def test_values_that_decode_now_are_events_and_others_dead_letters_with_the_new_reason(deployment: Deployment, tmp_path: Path) -> None:
    before = {(row[0], row[1]): row[3] for row in letters(deployment)}
    know(tmp_path, "Ada", "Cid")
    redrive(deployment)
    until(lambda: len(events(deployment)) == 4 and len(letters(deployment)) == 2, "the known values are events")
    ids = [id for id, _ in events(deployment)]
    assert [id.rpartition("/")[2] for id in ids if id.startswith("shop")] == ["id of Ada", "id of Cid"]
    for stream, position, reason, attempts in letters(deployment):
        assert "is unknown to ['Ada', 'Cid']" in reason
        assert position == 1
        assert attempts > before[stream, position]
    know(tmp_path, "\N{REPLACEMENT CHARACTER}Bob")
    redrive(deployment)
    until(lambda: len(events(deployment)) == 6 and not letters(deployment), "the last value is an event")


def test_a_decoder_that_is_away_leaves_the_messages_in_the_backlog(deployment: Deployment, tmp_path: Path) -> None:
    know(tmp_path, "away")
    redrive(deployment)
    log = tmp_path / "triggerer-1.log"
    until(lambda: log.read_text().count("message not decoded yet") >= 4, "the decoding is tried again")
    assert (letters(deployment), events(deployment)) == ([], [])
    know(tmp_path, "Ada", "Cid", "\N{REPLACEMENT CHARACTER}Bob")
    until(lambda: len(events(deployment)) == 6 and not letters(deployment), "all values are events")


def test_a_decoder_that_blocks_makes_a_dead_letter_of_its_message_only(deployment: Deployment, tmp_path: Path) -> None:
    know(tmp_path, "Ada", "blocked", "\N{REPLACEMENT CHARACTER}Bob")
    redrive(deployment)
    until(lambda: len(events(deployment)) >= 2, "the first values are events", 120)
    until(lambda: any("blocked or ended" in row[2] for row in letters(deployment)), "the last one is a dead letter", 120)
