"""A function of the user decodes the values of Kafka in real processes, and a function that blocks delays no other stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.deployment import Deployment, until
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Kafka, Project
from shop_decoding import order

project = Project("shop")
project.watch("orders", Kafka({topic!r}, connection={connection!r}, group={topic!r}, decode=order), id="@.key", match={match!r})
project.watch("plain", Kafka({other!r}, connection={other_connection!r}, group={other!r}), id="$.n")
"""

DECODING = """
import time
from pathlib import Path


def order(value, headers):
    if value == b"exit":
        raise SystemExit(3)
    if value == b"sleep":
        time.sleep(600)
    if value == b"Bob=some" and (Path(__file__).parent / "corrected").exists():
        value = b"Bob=30"
    name, _, cents = value.decode().partition("=")
    return {"name": name, "cents": int(cents), "shop": headers["shop"]}
"""


@pytest.fixture
def topics(make_topic: MakeTopic) -> tuple[KafkaTopic, KafkaTopic]:
    return make_topic(), make_topic()


@pytest.fixture
def deployment(tmp_path: Path, topics: tuple[KafkaTopic, KafkaTopic]) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        for topic in topics:
            deployment.share_connection(topic.connection)
        yield deployment


def project(deployment: Deployment, topics: tuple[KafkaTopic, KafkaTopic]) -> Path:
    (deployment.folder / "shop_decoding.py").write_text(DECODING)
    first, other = topics
    match = {"shop": ["Berlin"], "@": {"headers": {"shop": ["Berlin"]}}}
    return deployment.project(
        PROJECT.format(topic=first.name, connection=first.connection, other=other.name, other_connection=other.connection, match=match)
    )


def send(topic: KafkaTopic, key: str, value: bytes | None, shop: str = "Berlin") -> None:
    topic.send([value], key=key.encode(), headers=[("shop", shop.encode())])


def test_values_that_a_function_decodes_are_events_and_others_dead_letters(
    deployment: Deployment, topics: tuple[KafkaTopic, KafkaTopic]
) -> None:
    topic, _ = topics
    send(topic, "Ada", b"Ada=1200")
    send(topic, "Bob", b"Bob=some")
    send(topic, "Cid", b"exit")
    send(topic, "Dan", None)
    send(topic, "Eve", b"Eve=5", shop="Paris")
    send(topic, "Fay", b"Fay=7")
    deployment.triggerer(project(deployment, topics))
    until(lambda: topic.committed() == 6, "all messages are committed")
    payloads = [json.loads(payload) for (payload,) in deployment.rows("SELECT payload FROM events ORDER BY id")]
    assert payloads == [{"name": "Ada", "cents": 1200, "shop": "Berlin"}, {"name": "Fay", "cents": 7, "shop": "Berlin"}]
    letters = json.loads(deployment.cli("dead-letters", "list", "--json").stdout)["dead_letters"]
    reasons = sorted(letter["reason"] for letter in letters)
    assert ["invalid literal" in reasons[0] or "SystemExit" in reasons[0], len(reasons)] == [True, 2]
    shown = deployment.cli("dead-letters", "show", str(letters[-1]["id"])).stdout
    assert "shop_decoding:order failed" in shown


def test_a_redriven_value_is_decoded_by_the_function_of_now(deployment: Deployment, topics: tuple[KafkaTopic, KafkaTopic]) -> None:
    topic, _ = topics
    send(topic, "Bob", b"Bob=some")
    deployment.triggerer(project(deployment, topics))
    until(lambda: topic.committed() == 1, "the message is committed")
    (before,) = deployment.rows("SELECT id, reason, attempts FROM dead_letters WHERE state = 'open'")
    deployment.cli("dead-letters", "redrive", before[0])
    until(lambda: deployment.rows("SELECT attempts FROM dead_letters WHERE state = 'open'") == [(2,)], "it fails again")
    (deployment.folder / "corrected").touch()
    deployment.cli("dead-letters", "redrive", before[0])
    until(lambda: deployment.count_events() == 1, "the value is an event")
    assert json.loads(deployment.rows("SELECT payload FROM events")[0][0]) == {"name": "Bob", "cents": 30, "shop": "Berlin"}
    until(lambda: deployment.rows("SELECT count(*) FROM dead_letters") == [(0,)], "the dead letter is deleted")


def test_a_function_that_blocks_delays_no_other_stream(deployment: Deployment, topics: tuple[KafkaTopic, KafkaTopic]) -> None:
    topic, other = topics
    deployment.triggerer(project(deployment, topics))
    send(topic, "Ada", b"Ada=1200")
    deployment.wait_for_more_events(0)
    send(topic, "Bob", b"sleep")
    other.send(numbers(0, 2_000))
    until(lambda: other.committed() == 2_000, "the other stream is read to its end")
    assert topic.committed() < 2
    deployment.wait_for_status("block")
