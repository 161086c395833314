from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from headrace.errors import UpstreamError
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.subscriptions import Description, Subscriptions
from headrace.sources.start import Start


class Cluster:
    """The admin API of a cluster with the topic `t` of two partitions, and `u` without partitions."""

    def __init__(self, *subscribed: str) -> None:
        self.counts = {"t": 2, "u": 0}
        self.subscribed = set(subscribed)
        self.calls: list[tuple[Any, ...]] = []

    async def partitions(self, topic: str) -> int:
        return self.counts[topic]

    async def find_subscription(self, topic: str, name: str) -> dict[str, Any] | None:
        return {} if topic in self.subscribed else None

    async def create_subscription(self, topic: str, name: str, position: str) -> None:
        self.calls.append((topic, position))

    async def reset_subscription(self, topic: str, name: str, time_ms: int) -> None:
        self.calls.append((topic, time_ms))


def subscriptions(cluster: Cluster, start: Start = "earliest", *, was_read: bool = False) -> Subscriptions:
    return Subscriptions(cast(AdminApi, cluster), Description(["t", "u"], "s", "c", start, "json", 9), was_read=was_read)


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_subscription_that_is_missing_is_created_at_the_start(start: Start) -> None:
    cluster = Cluster()
    assert await subscriptions(cluster, start).find() == ["t-partition-0", "t-partition-1", "u"]
    assert sorted(cluster.calls) == [("t-partition-0", start), ("t-partition-1", start), ("u", start)]


async def test_a_start_at_a_time_moves_the_new_subscription() -> None:
    cluster = Cluster("t-partition-0", "t-partition-1")
    await subscriptions(cluster, datetime.fromtimestamp(5, UTC)).find()
    assert cluster.calls == [("u", "earliest"), ("u", 5_000)]


async def test_a_partition_that_is_new_beside_others_is_read_from_its_first_message() -> None:
    cluster = Cluster("t-partition-0", "u")
    one = subscriptions(cluster, "latest", was_read=True)
    await one.find()
    assert cluster.calls == [("t-partition-1", "earliest")]
    assert not one.problems


async def test_a_subscription_that_was_deleted_is_reported() -> None:
    cluster = Cluster("u")
    one = subscriptions(cluster, was_read=True)
    await one.find()
    assert "'s' of topic t is missing" in one.problems["t"]
    with pytest.raises(UpstreamError, match="Messages may be lost: subscription 's' of topic t is missing"):
        await subscriptions(cluster, "latest", was_read=True).find()


async def test_partitions_that_are_added_are_found() -> None:
    cluster = Cluster("t-partition-0", "t-partition-1", "u")
    one = subscriptions(cluster, "latest")
    known = set(await one.find())
    assert await one.add(known) == []
    cluster.counts["t"] = 3
    assert await one.add(known) == ["t-partition-2"]
    assert cluster.calls == [("t-partition-2", "earliest")]
