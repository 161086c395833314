"""One upstream in several shards: readers in this process, and triggerers that are killed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import UpstreamError, UpstreamFenced
from headrace.testing.contract.reading import Reading, reading
from support.processes.deployment import Deployment, Process, until
from support.sources.kafka import KafkaTopic, MakeTopic
from support.sources.reading import numbers, until_in_thread

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("kafka"), pytest.mark.timeout(300)]


async def shards(stack: AsyncExitStack, topic: KafkaTopic, total: int, **arguments: Any) -> list[Reading]:
    """Open a reader for each shard of a topic."""
    upstreams = topic.upstream(shards=total, **arguments).split()
    return [await stack.enter_async_context(reading(one.producer())) for one in upstreams]


def partitions(items: list[tuple[Any, Any]]) -> set[int]:
    return {payload.partition.key.number for _, payload in items}


def all_committed(topic: KafkaTopic, ends: list[int]) -> bool:
    return [topic.committed(number) for number in range(len(ends))] == ends


async def test_each_shard_reads_its_partitions_and_commits_to_one_group(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=8)
    for number in range(8):
        topic.send(numbers(0, 10), number)
    async with AsyncExitStack() as stack:
        streams = await shards(stack, topic, 4)
        taken = await asyncio.gather(*(stream.take(20) for stream in streams))
        assert [partitions(items) for items in taken] == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]
        await asyncio.gather(*(stream.advance(items) for stream, items in zip(streams, taken, strict=True)))
        assert all_committed(topic, [10] * 8)


async def test_a_shard_without_partitions_gets_one_that_is_added(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    async with AsyncExitStack() as stack:
        streams = await shards(stack, topic, 4, start="latest")
        await until_in_thread(lambda: all_committed(topic, [0, 0]))
        topic.send(numbers(0, 5), 1)
        assert partitions(await streams[1].take(5)) == {1}
        topic.server.add_partitions(topic.name, 4)
        topic.send(numbers(5, 9), 3)
        items = await streams[3].take(4)
        assert [raw.data for raw, _ in items] == numbers(5, 9)
        await streams[3].advance(items)
        assert topic.committed(3) == 4


async def test_a_second_reader_of_a_shard_fences_the_first_and_no_other_shard(make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    topic.send(numbers(0, 10), 0)
    topic.send(numbers(10, 20), 1)
    async with AsyncExitStack() as stack:
        first, other = await shards(stack, topic, 2)
        items, others = await first.take(10), await other.take(10)
        await first.advance(items[:3])
        second = await stack.enter_async_context(reading(topic.upstream(shards=2).split()[0].producer()))
        again = await second.take(7)
        assert [raw.data for raw, _ in again] == numbers(3, 10)
        with pytest.raises(UpstreamFenced):
            await first.advance(items[3:])
        await second.advance(again)
        await other.advance(others)
        assert all_committed(topic, [10, 10])


async def test_a_group_of_the_new_protocol_is_refused(topic: KafkaTopic) -> None:
    topic.set_connection(topic.server.address, group_protocol="consumer")
    async with reading(topic.upstream(shards=2).split()[0].producer()) as stream:
        with pytest.raises(UpstreamError, match="needs a classic group"):
            await stream.take(1)


# Real processes

PARTITIONS = 8
PROJECT = """
from headrace import Kafka, Project

project = Project("shop")
project.watch("orders", Kafka({topic!r}, connection={connection!r}, group={topic!r}, shards={shards}))
"""


@pytest.fixture
def wide(make_topic: MakeTopic) -> KafkaTopic:
    """Return a topic with several partitions. Members that do not come back leave the group soon."""
    return make_topic(partitions=PARTITIONS, session_timeout_ms="6000")


@pytest.fixture
def deployment(tmp_path: Path, wide: KafkaTopic) -> Iterator[Deployment]:
    with Deployment.with_short_leases(tmp_path) as deployment:
        deployment.share_connection(wide.connection)
        yield deployment


def project(deployment: Deployment, topic: KafkaTopic, shards: int) -> Path:
    text = PROJECT.format(topic=topic.name, connection=topic.connection, shards=shards)
    return deployment.project(text, f"project_{shards}.py")


def send(topic: KafkaTopic, first: int, messages: int) -> None:
    """Send messages with successive numbers to each partition in turn."""
    for number in range(PARTITIONS):
        topic.send(numbers(first + number * messages, first + (number + 1) * messages), number)


def holders(deployment: Deployment) -> dict[int, list[str]]:
    """Return the streams that each job holds."""
    held: dict[int, list[str]] = {}
    for job, stream in deployment.rows("SELECT job_id, stream FROM triggers WHERE job_id IS NOT NULL ORDER BY stream"):
        held.setdefault(job, []).append(stream)
    return held


def holds(deployment: Deployment, jobs: int, total: int) -> bool:
    """Return whether this number of jobs hold all shards, each about as many as the others."""
    held = holders(deployment)
    names = sorted(stream.rpartition("#")[2] for streams in held.values() for stream in streams)
    return (
        len(held) == jobs and names == [f"{number}-of-{total}" for number in range(total)] and min(map(len, held.values())) == total // jobs
    )


def check_stored_once(deployment: Deployment, topic: KafkaTopic, messages: int) -> None:
    """Wait until the group has committed all messages, and compare the events with the messages."""
    each = messages // PARTITIONS
    until(partial(all_committed, topic, [each] * PARTITIONS), "all messages are committed")
    stored = Counter(json.loads(payload)["n"] for (payload,) in deployment.rows("SELECT payload FROM events"))
    assert stored == Counter(range(messages))
    audit = json.loads(deployment.cli("audit", "--json").stdout)
    assert audit["clean"], audit


@pytest.mark.slow
def test_a_killed_triggerer_leaves_its_shards_to_the_other(deployment: Deployment, wide: KafkaTopic) -> None:
    path = project(deployment, wide, 4)
    first, second = deployment.triggerer(path), deployment.triggerer(path)
    until(partial(holds, deployment, 2, 4), "each triggerer holds two shards")
    send(wide, 0, 1_000)
    deployment.wait_for_more_events(2_000)
    first.kill()
    send(wide, 8_000, 1_000)
    until(partial(holds, deployment, 1, 4), "the other triggerer holds all shards")
    check_stored_once(deployment, wide, 16_000)
    assert second.popen.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "running"])
def test_another_number_of_shards_goes_on_at_the_committed_offsets(deployment: Deployment, wide: KafkaTopic, kill: bool) -> None:
    """The number of shards goes up and back again, while messages are read and after the triggerer was killed."""
    triggerers: list[Process] = []
    for step, total in enumerate((1, 2, 4, 2, 1)):
        before = step * 8_000
        if kill and triggerers:
            triggerers.pop().kill()
        triggerers.append(deployment.triggerer(project(deployment, wide, total)))
        send(wide, before, 1_000)
        deployment.wait_for_more_events(before + 1_000)
        while not kill and len(triggerers) > 1:
            triggerers.pop(0).stop()
    check_stored_once(deployment, wide, 40_000)
