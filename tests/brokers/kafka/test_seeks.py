"""`headrace upstreams seek` on real processes: messages are skipped or read again, also while triggerers are killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.errors import UpstreamError
from headrace.sources.seeks.seek import preview_seek
from headrace.sources.seeks.target import parse_target
from headrace.testing.contract.reading import reading
from support.processes.deployment import Deployment, until
from support.processes.seeks import SeekScene
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka-seeks"), pytest.mark.timeout(300)]

PROJECT = """
from headrace import Kafka, Project

project = Project("shop")
project.watch("orders", Kafka({topic!r}, connection={connection!r}, group={topic!r}, shards={shards}), id={id!r})
"""
HOUR = 3_600_000  # ms


class Scene(SeekScene):
    """A deployment whose project reads one topic."""

    def __init__(self, deployment: Deployment, topic: KafkaTopic, shards: int = 1, id: str | None = None) -> None:
        project = PROJECT.format(topic=topic.name, connection=topic.connection, shards=shards, id=id)
        super().__init__(deployment, project, topic.connection)
        self.topic = topic

    def committed(self, *offsets: int) -> None:
        until(lambda: [self.topic.committed(number) for number in range(len(offsets))] == list(offsets), f"{offsets} are committed")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path / "deployment") as deployment:
        yield deployment


def test_a_running_triggerer_skips_and_reads_again(deployment: Deployment, topic: KafkaTopic) -> None:
    scene = Scene(deployment, topic)
    topic.send(numbers(0, 100))
    deployment.triggerer(scene.project)
    scene.committed(100)
    (again,) = scene.seek("earliest")["seeks"]
    assert (again["state"], again["skipped"], again["read_again"]) == ("done", 0, 100)
    scene.committed(100)
    topic.send(numbers(100, 110))
    scene.committed(110)
    assert deployment.count_events() == 110, "a message that is read again is no other event"
    assert scene.ranges() == [("0", "read again", 0, 99)]
    assert deployment.balanced_stream()["read"] == 110


def test_skipped_messages_reach_no_trigger_until_a_seek_back(deployment: Deployment, topic: KafkaTopic) -> None:
    scene = Scene(deployment, topic)
    topic.send(numbers(0, 10))
    triggerer = deployment.triggerer(scene.project)
    scene.committed(10)
    triggerer.stop()
    topic.send(numbers(10, 100))
    preview = scene.seek("latest", "--dry-run")
    assert (preview["skipped"], preview["read_again"], scene.seeks()) == (90, 0, [])
    assert [(one["first"], one["end"], one["now"], one["position"]) for one in preview["lanes"]] == [(0, 100, 10, 100)]
    asked = deployment.cli("upstreams", "seek", "orders", "--to", "latest", "--project", str(scene.project))
    assert (asked.returncode, scene.seeks()) == (1, []), "without a terminal, nobody confirms"
    (planned,) = scene.seek("latest", "--yes")["seeks"]
    assert planned["state"] == "planned", "nobody reads the stream"
    topic.send(numbers(100, 120))
    deployment.triggerer(scene.project)
    scene.committed(120)
    assert deployment.count_events() == 30
    assert scene.ranges() == [("0", "skipped", 10, 99)]
    scene.seek("50")
    until(lambda: deployment.count_events() == 80, "the second half of the skipped messages")
    scene.committed(120)
    assert scene.ranges() == [("0", "read again", 50, 119), ("0", "skipped", 10, 99)]


async def test_a_preview_shows_positions_and_rejects_what_does_not_fit(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    for number in range(2):
        topic.send(numbers(0, 10), number)
    upstream, name = topic.upstream(start="latest", shards=2), topic.name

    async def positions(to: str) -> list[tuple[str, int, int]]:
        return [(one.stream.rpartition("#")[2], one.now, one.position) for one in await preview_seek(upstream, parse_target(to))]

    assert await positions("earliest") == [("0-of-2", 10, 0), ("1-of-2", 10, 0)]
    assert await positions(f"{name}/1=4") == [("0-of-2", 10, 10), ("1-of-2", 10, 4)], "a group without offsets gets all of them"
    assert await positions("2100-01-01T00:00:00Z") == [("0-of-2", 10, 10), ("1-of-2", 10, 10)]
    assert topic.committed() < 0, "a preview commits nothing"
    for to, text in (
        (f"{name}/7=1", "There is no lane"),
        (f"{name}/0=11", "from 0 to before 10"),
        ("5", "One position does not fit 2 lanes"),
    ):
        with pytest.raises(UpstreamError, match=text):
            await preview_seek(upstream, parse_target(to))
    async with reading(topic.producer()) as stream:
        await stream.advance(await stream.take(20))
    assert await positions(f"{name}/1=4") == [("1-of-2", 10, 4)]


@pytest.mark.parametrize(("step", "moved"), [("begin", 100), ("finish", 40)])
def test_a_triggerer_that_is_killed_in_a_seek_is_followed_by_one_that_completes_it(
    deployment: Deployment, topic: KafkaTopic, step: str, moved: int
) -> None:
    scene = Scene(deployment, topic)
    topic.send(numbers(0, 100))
    first = deployment.triggerer(scene.project)
    scene.committed(100)
    first.stop()
    scene.seek("40")
    scene.kill_in(step)
    scene.committed(moved)
    assert [one["state"] for one in scene.seeks()] == [{"begin": "planned", "finish": "moving"}[step]]
    topic.send(numbers(100, 103))
    deployment.triggerer(scene.project)
    scene.is_done()
    scene.committed(103)
    assert deployment.count_events() == 103
    assert scene.ranges() == [("0", "read again", 40, 99)]


def test_all_shards_move_in_one_plan_to_a_time(deployment: Deployment, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    scene = Scene(deployment, topic, shards=2)
    now = int(time.time() * 1_000)
    for number in range(4):
        topic.send(numbers(0, 10), number, timestamp=now - 3 * HOUR)
        topic.send(numbers(10, 10 + number), number, timestamp=now - HOUR)
    for _ in range(2):
        deployment.triggerer(scene.project)
    scene.committed(10, 11, 12, 13)
    found = scene.seek(datetime.fromtimestamp((now - 2 * HOUR) / 1_000, UTC).isoformat())["seeks"]
    assert sorted((one["stream"].rpartition("#")[2], one["state"], one["read_again"], len(one["lanes"])) for one in found) == [
        ("0-of-2", "done", 2, 2),
        ("1-of-2", "done", 4, 2),
    ]
    assert len({one["plan"] for one in found}) == 1
    scene.committed(10, 11, 12, 13)
    assert scene.ranges() == [("1", "read again", 10, 10), ("2", "read again", 10, 11), ("3", "read again", 10, 12)]


def test_named_lanes_move_with_the_new_protocol(deployment: Deployment, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3, group_protocol="consumer")
    scene = Scene(deployment, topic)
    for number in range(3):
        topic.send(numbers(number * 10, number * 10 + 10), number)
    name = topic.name
    assert "No trigger reads" in scene.seek(f"{name}/0=4", "--yes", code=1), "no triggerer has declared it"
    first = deployment.triggerer(scene.project)
    scene.committed(10, 10, 10)
    first.stop()
    scene.seek(f"{name}/0=4,{name}/2=earliest")
    deployment.triggerer(scene.project)
    scene.is_done()
    scene.committed(10, 10, 10)
    assert scene.ranges() == [("0", "read again", 4, 9), ("2", "read again", 0, 9)]
