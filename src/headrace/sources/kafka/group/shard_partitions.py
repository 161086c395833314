"""The partitions of one shard: partition p of a topic is in shard p mod the number of shards.

All shards are static members of one group, and each commits to it. The group serves for two things: the broker fences a replaced member,
and all offsets have one place. Which partitions the group assigns to a member does not matter, because each shard assigns its own. The
broker does not compare commits with its assignment. So a partition has one reader whatever members come and go, and the number of shards
may change: the next reader of a partition finds its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.core.values.shards import Shard
from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.group.assignment import Assignment
from headrace.sources.kafka.partitions import Partitions, TopicPartitionKey, partitions_of


class ShardPartitions:
    """Follows the partitions of one shard. `waits` is true while the first shard has not decided where the group begins."""

    def __init__(self, client: KafkaClient, assignment: Assignment, partitions: Partitions, topics: Sequence[str], shard: Shard) -> None:
        self._client = client
        self._assignment = assignment
        self._partitions = partitions
        self._topics = topics
        self._shard = shard
        self._is_member = False
        self.waits = False

    def join(self) -> dict[TopicPartitionKey, int]:
        """Begin all partitions of the shard, as a member of the group. Return the offset at which each is read.

        Raises:
            StreamError: The brokers do not answer.
        """
        self._is_member = True
        return self._assignment.begin(self._find())

    def leave(self) -> None:
        """Fence all partitions: the membership has ended, or a rebalance interrupts it."""
        self._is_member = False
        for partition in self._partitions.assigned:
            partition.is_assigned = False

    def has_changed(self) -> bool:
        """Return whether partitions were added to the shard or removed from it, so that it must join again.

        The client joins again by itself once it knows the partition. It does not if the shard has waited for the first one.

        Raises:
            StreamError: The brokers do not answer.
        """
        return self._is_member and set(self._find()) != {partition.key for partition in self._partitions.assigned}

    def _find(self) -> list[TopicPartitionKey]:
        """Return the partitions of the shard, also the present ones of a topic that cannot be read now."""
        counts = self._client.partition_counts()
        all_keys = partitions_of(counts, self._topics)
        self.waits = not self._assignment.begin_group(all_keys)
        if self.waits:
            return []
        away = [one.key for one in self._partitions.assigned if one.key.topic in counts and counts[one.key.topic] is None]
        return [*in_shard(all_keys, self._shard), *away]


def in_shard(keys: Iterable[TopicPartitionKey], shard: Shard) -> list[TopicPartitionKey]:
    """Return the partitions of a shard: partition p of a topic is in shard p mod the number of shards."""
    return [key for key in keys if key.number % shard.total == shard.number]
