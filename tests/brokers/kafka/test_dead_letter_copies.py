"""Copies of dead letters through real processes: kills, a broker that is away, refusals, and redrives before the copy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.processes.deployment import Deployment, until
from support.processes.kafka import KafkaServer
from support.sources.dead_letters import Copied, copies_in
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka-copies"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Kafka, Project

project = Project("shop")
orders = Kafka({topic!r}, connection={connection!r}, group={topic!r}, shards={shards}, dead_letter_topic={dead!r})
project.watch("orders", orders, id="$.n")
"""
BAD = b'{"no": "n"}'


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path / "first") as deployment:
        yield deployment


def start(deployment: Deployment, topic: KafkaTopic, dead: str, shards: int = 1) -> Any:
    deployment.share_connection(topic.connection)
    text = PROJECT.format(topic=topic.name, connection=topic.connection, dead=dead, shards=shards)
    return deployment.triggerer(deployment.project(text))


def bad(start: int, stop: int) -> list[bytes]:
    return [b'{"bad":%d}' % number for number in range(start, stop)]


def values(copies: Sequence[Copied]) -> set[bytes | None]:
    return {copy.value for copy in copies}


def open_letters(deployment: Deployment) -> int:
    return int(deployment.rows("SELECT count(*) FROM dead_letters WHERE state = 'open'")[0][0])


def counts(deployment: Deployment) -> tuple[int, int]:
    rows = deployment.rows("SELECT sum(copied), sum(rejected) FROM dead_letter_copies")
    return int(rows[0][0] or 0), int(rows[0][1] or 0)


def wait_for_more_copies(deployment: Deployment, than: int) -> None:
    until(lambda: counts(deployment)[0] > than, f"more than {than} copies are recorded")


def upstream(deployment: Deployment) -> dict[str, Any]:
    (one,) = json.loads(deployment.cli("upstreams", "list", "--json").stdout)["upstreams"]
    return dict(one)


def test_each_dead_letter_is_copied_once_although_triggerers_are_killed(deployment: Deployment, topic: KafkaTopic) -> None:
    dead = topic.server.create_topic()
    for first in range(0, 3_000, 1_000):
        topic.send([*numbers(first, first + 1_000), *bad(first, first + 1_000)])
        triggerer = start(deployment, topic, dead)
        wait_for_more_copies(deployment, first)
        triggerer.kill()
    start(deployment, topic, dead)
    until(lambda: counts(deployment)[0] == 3_000, "all copies are recorded")
    copies = copies_in(topic.server, dead)
    assert values(copies) == set(bad(0, 3_000))
    assert len({(copy.headers["headrace-id"], copy.number) for copy in copies}) == 3_000, "a repeated copy has the same id and number"
    assert open_letters(deployment) == 3_000
    until(lambda: upstream(deployment)["dead_letter_target"] == f"topic {dead}", "the present reader has reported")
    status = upstream(deployment)
    assert (status["uncopied"], status["problems"]) == (0, [])


def test_the_upstream_is_read_while_the_dead_letter_topic_does_not_exist(deployment: Deployment, topic: KafkaTopic) -> None:
    dead = f"{topic.name}-dead"
    topic.send([*numbers(0, 100), *bad(0, 10)])
    start(deployment, topic, dead)
    until(lambda: topic.committed() == 110, "all messages are committed")
    until(lambda: upstream(deployment)["problems"], "the upstream has a problem")
    status = upstream(deployment)
    assert status["uncopied"] == 10
    assert "does not exist" in status["problems"][0]
    topic.server.create_topic(dead)
    until(lambda: counts(deployment) == (10, 0), "all copies are recorded")
    until(lambda: not upstream(deployment)["problems"], "the problem has gone")
    assert values(copies_in(topic.server, dead)) == set(bad(0, 10))


def test_a_copy_that_the_topic_never_takes_is_marked_and_the_next_are_copied(deployment: Deployment, topic: KafkaTopic) -> None:
    dead = topic.server.create_topic(settings={"max.message.bytes": "3000"})
    large = b'{"bad":"%s"}' % (b"x" * 10_000)
    topic.send([*bad(0, 5), large, *bad(5, 10)])
    start(deployment, topic, dead)
    until(lambda: counts(deployment) == (10, 1), "all copies are recorded")
    assert values(copies_in(topic.server, dead)) == set(bad(0, 10))
    (id,) = deployment.rows("SELECT id FROM dead_letters WHERE not_copied IS NOT NULL")[0]
    assert "Message size too large" in deployment.cli("dead-letters", "show", id).stdout
    metric = 'headrace_stream_dead_letter_copies_rejected_total{stream="kafka:'
    until(lambda: metric in deployment.metrics(), "the present reader has reported")


def test_a_broker_that_is_killed_gets_all_copies_later(deployment: Deployment, make_topic: MakeTopic, own_server: KafkaServer) -> None:
    topic = make_topic(server=own_server)
    dead = own_server.create_topic()
    topic.send(bad(0, 2_000))
    start(deployment, topic, dead)
    wait_for_more_copies(deployment, 0)
    own_server.kill()
    own_server.start()
    topic.send(bad(2_000, 2_100))
    until(lambda: counts(deployment)[0] == 2_100, "all copies are recorded")
    assert values(copies_in(own_server, dead)) == set(bad(0, 2_100))


def test_a_dead_letter_that_is_redriven_before_its_copy_is_copied_if_it_fails_again(deployment: Deployment, topic: KafkaTopic) -> None:
    dead = f"{topic.name}-dead"
    topic.send([BAD, *bad(0, 1)])
    start(deployment, topic, dead)
    until(lambda: open_letters(deployment) == 2, "both dead letters are stored")
    until(lambda: upstream(deployment)["problems"], "the upstream has a problem")
    ids = [row[0] for row in deployment.rows("SELECT id FROM dead_letters ORDER BY number")]
    deployment.cli("dead-letters", "discard", ids[1])
    deployment.cli("dead-letters", "redrive", ids[0])
    until(lambda: deployment.rows("SELECT attempts FROM dead_letters WHERE id = ? AND state = 'open'", ids[0]) == [(2,)], "it fails again")
    topic.server.create_topic(dead)
    until(lambda: counts(deployment) == (1, 0), "the copy is recorded")
    (copy,) = copies_in(topic.server, dead)
    assert (copy.value, copy.headers["headrace-attempts"]) == (BAD, b"2")


def test_each_shard_copies_its_own_dead_letters(deployment: Deployment, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    dead = topic.server.create_topic()
    for partition in range(4):
        topic.send(bad(partition * 10, partition * 10 + 10), partition)
    start(deployment, topic, dead, shards=2)
    until(lambda: counts(deployment) == (40, 0), "all copies are recorded")
    copies = copies_in(topic.server, dead)
    assert (len(copies), values(copies)) == (40, set(bad(0, 40)))
    assert {(copy.headers["headrace-stream"] or b"").rpartition(b"#")[2] for copy in copies} == {b"0-of-2", b"1-of-2"}
