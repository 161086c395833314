"""When a consumer counts as silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.group.stall_detector import JOIN_SECONDS, REQUEST_INTERVAL_SECONDS, SILENT_SECONDS, StallDetector
from headrace.sources.kafka.partitions import NO_OFFSET, Partition, Partitions, TopicPartitionKey

KEY = TopicPartitionKey("orders", 0)


class Client:
    """The end offsets and topics of a cluster. Its answers are the newest."""

    def __init__(self) -> None:
        self.end: int | None = 10
        self.topics: dict[str, int | None] = {"orders": 1}

    def arrived_ends(self, keys: Sequence[TopicPartitionKey], *, readable: bool) -> dict[TopicPartitionKey, int]:
        assert readable
        return {} if self.end is None else dict.fromkeys(keys, self.end)

    def partition_counts(self) -> dict[str, int | None]:
        return self.topics


def make(client: Client, *partitions: Partition, waits_for_group: bool = True) -> StallDetector:
    known = Partitions()
    for partition in partitions:
        known.add(partition)
    detector = StallDetector(cast(KafkaClient, client), known, ["orders"], waits_for_group=waits_for_group, now=0.0)
    if partitions:
        detector.joined()
    return detector


def find(detector: StallDetector, start: float, end: float) -> str | None:
    """Check from one time to another, and return the error."""
    now = start
    while now <= end:
        error = detector.check(now)
        if error is not None:
            return str(error)
        now += REQUEST_INTERVAL_SECONDS
    return None


def test_a_partition_that_stays_behind_its_end_is_silent() -> None:
    partition = Partition(KEY, None, 0, NO_OFFSET)
    assert "has messages from 0 to 9" in str(find(make(Client(), partition), 0, SILENT_SECONDS + 2 * REQUEST_INTERVAL_SECONDS))


def test_a_partition_is_not_silent_while_messages_arrive_or_its_end_is_read_or_unknown() -> None:
    client, partition = Client(), Partition(KEY, None, 0, NO_OFFSET)
    detector = make(client, partition)
    assert find(detector, 0, SILENT_SECONDS) is None
    assert partition.deliver(0, 0)
    assert find(detector, SILENT_SECONDS, 2 * SILENT_SECONDS) is None
    partition.reached_end(10)
    assert find(detector, 2 * SILENT_SECONDS, 5 * SILENT_SECONDS) is None
    client.end = None
    assert find(detector, 5 * SILENT_SECONDS, 8 * SILENT_SECONDS) is None


def test_a_message_that_arrives_after_a_time_without_known_ends_is_not_late_at_once() -> None:
    client, partition = Client(), Partition(KEY, None, 0, NO_OFFSET)
    detector = make(client, partition)
    partition.reached_end(10)
    assert find(detector, 0, 10) is None
    client.end = None
    assert find(detector, 10, 10 + 2 * SILENT_SECONDS) is None
    client.end = 11
    assert find(detector, 15 + 2 * SILENT_SECONDS, 10 + 3 * SILENT_SECONDS) is None
    assert "has messages from 10 to 10" in str(find(detector, 10 + 3 * SILENT_SECONDS, 20 + 3 * SILENT_SECONDS))


def test_a_reader_that_takes_nothing_is_not_silent() -> None:
    detector = make(Client(), Partition(KEY, None, 0, NO_OFFSET))
    for step in range(40):
        detector.pause()
        assert detector.check(step * REQUEST_INTERVAL_SECONDS) is None


def test_a_group_that_assigns_nothing_is_silent_unless_there_is_nothing_to_assign() -> None:
    client = Client()
    assert "assigned nothing" in str(find(make(client), 0, JOIN_SECONDS + 2 * REQUEST_INTERVAL_SECONDS))
    assert find(make(client, waits_for_group=False), 0, 3 * JOIN_SECONDS) is None
    client.topics = {}
    assert find(make(client), 0, 3 * JOIN_SECONDS) is None
