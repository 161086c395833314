from __future__ import annotations

import pytest

from headrace.core.values.shards import Shard
from headrace.sources.kafka.group.shard_partitions import in_shard
from headrace.sources.kafka.partitions import TopicPartitionKey, partitions_of

COUNTS = {"orders": 3, "orders.eu": 2, "orders.us": None, "refunds": 5}


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["orders"], {"orders": 3}),
        (["orders", "missing"], {"orders": 3}),
        (["^orders"], {"orders": 3, "orders.eu": 2}),
        (["^orders\\.", "refunds"], {"orders.eu": 2, "refunds": 5}),
        (["^none"], {}),
    ],
)
def test_the_partitions_of_topics_are_found_by_name_and_pattern(topics: list[str], expected: dict[str, int]) -> None:
    keys = [TopicPartitionKey(topic, number) for topic, count in expected.items() for number in range(count)]
    assert partitions_of(COUNTS, topics) == keys


@pytest.mark.parametrize("total", [1, 2, 3, 4, 256])
def test_each_partition_is_in_one_shard(total: int) -> None:
    keys = partitions_of(COUNTS, ["^.*"])
    shards = [in_shard(keys, Shard(number, total)) for number in range(total)]
    assert sorted(key for shard in shards for key in shard) == keys
    assert all(key.number % total == number for number, shard in enumerate(shards) for key in shard)


def test_an_added_partition_moves_no_other() -> None:
    shard = Shard(1, 4)
    before = in_shard(partitions_of({"orders": 5}, ["orders"]), shard)
    after = in_shard(partitions_of({"orders": 6}, ["orders"]), shard)
    assert after == [*before, TopicPartitionKey("orders", 5)]
