"""Dead letters of values without a schema are redriven after the schema was registered, also while the registry is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes.apicurio import Apicurio
from support.processes.deployment import Deployment, until
from support.sources.kafka import KafkaTopic

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Kafka, Project

project = Project("shop")
upstream = Kafka({topic!r}, connection={connection!r}, group={topic!r}, decode="confluent", schema_registry="registry")
project.watch("orders", upstream)
"""


@pytest.fixture
def deployment(tmp_path: Path, topic: KafkaTopic, registry: Apicurio) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(topic.connection)
        deployment.share_connection("registry")
        yield deployment


def register(registry: Apicurio, name: str, number: int) -> int:
    fields = [{"name": "n", "type": "int"}, {"name": f"other_{number}", "type": "int", "default": number}]
    return registry.register(f"{name}-{number}", {"type": "record", "name": f"Order{number}", "fields": fields})


def open_letters(deployment: Deployment) -> list[tuple[str, int]]:
    return [
        (str(reason), int(attempts))
        for reason, attempts in deployment.rows("SELECT reason, attempts FROM dead_letters WHERE state = 'open'")
    ]


def test_a_value_is_an_event_once_its_schema_is_registered(deployment: Deployment, topic: KafkaTopic, registry: Apicurio) -> None:
    next_id = register(registry, topic.name, 0) + 1
    topic.send([b"\x00" + next_id.to_bytes(4, "big") + b"\x08\x02"])
    deployment.triggerer(deployment.project(PROJECT.format(topic=topic.name, connection=topic.connection)))
    until(lambda: topic.committed() == 1, "the message is committed")
    unknown = f"Schema {next_id} is unknown to the schema registry."
    assert open_letters(deployment) == [(unknown, 1)]
    deployment.cli("dead-letters", "redrive", "--all")
    until(lambda: open_letters(deployment) == [(unknown, 2)], "the schema is still unknown")
    registry.kill()
    deployment.cli("dead-letters", "redrive", "--all")
    log = deployment.folder / "triggerer-1.log"
    until(lambda: log.read_text().count("message not decoded yet") >= 2, "the registry does not answer")
    assert (open_letters(deployment), deployment.count_events()) == ([], 0)
    registry.start()
    assert any(register(registry, topic.name, number) == next_id for number in range(1, next_id + 1)), "it counts from 1 again"
    until(lambda: deployment.count_events() == 1 or open_letters(deployment), "the value is decoded")
    deployment.cli("dead-letters", "redrive", "--all")
    until(lambda: deployment.count_events() == 1, "the value is an event")
    ((payload, lane, position),) = deployment.rows("SELECT payload, lane, position FROM events")
    assert (json.loads(payload)["n"], position) == (4, 0)
    assert str(lane).startswith(topic.name)
    until(lambda: deployment.rows("SELECT count(*) FROM dead_letters") == [(0,)], "the dead letter is deleted")
