"""Detect a stalled consumer: it gets neither messages nor errors although there are messages, or no assignment.

The offset that was read is compared with the end offset up to which a consumer may read. The brokers report it exactly: with
`read_committed`, it is before the first open transaction, and the client passes markers and compacted messages. So a partition that stays
behind its end has messages that do not arrive.

A group assigns nothing while a member does not come back. The client waits for that longer than for any other answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from headrace.errors import HeadraceError, StreamError
from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.partitions import Partition, Partitions, TopicPartitionKey, partitions_of

SILENT_SECONDS: Final = 60.0
JOIN_SECONDS: Final = 60.0
REQUEST_INTERVAL_SECONDS: Final = 5.0


class _Progress(NamedTuple):
    """How far a partition was read when it was first known to be behind its end, and when that was."""

    offset: int
    since: float


class StallDetector:
    """Watches one consumer. All times are those of `time.monotonic`."""

    def __init__(self, client: KafkaClient, partitions: Partitions, topics: Sequence[str], *, waits_for_group: bool, now: float) -> None:
        self._client = client
        self._partitions = partitions
        self._topics = topics
        self._waits_for_group = waits_for_group
        self._joins_since: float | None = now
        self._request_at = 0.0
        self._progress: dict[TopicPartitionKey, _Progress] = {}

    def pause(self) -> None:
        """Record that the reader takes no messages now."""
        self._progress.clear()

    def join(self, now: float) -> None:
        """Record that the group is joined again."""
        self._joins_since = now
        self._progress.clear()

    def joined(self) -> None:
        """Record that the group has assigned partitions, or none."""
        self._joins_since = None

    def check(self, now: float) -> HeadraceError | None:
        """Return the error of a consumer that is silent, or None."""
        assigned = self._partitions.assigned
        if not assigned:
            return self._check_join(now) if self._waits_for_group else None
        ends: Mapping[TopicPartitionKey, int] = {}
        if now >= self._request_at:
            self._request_at = now + REQUEST_INTERVAL_SECONDS
            ends = self._client.arrived_ends([one.key for one in assigned], readable=True)
        silent = next((one for one in assigned if self._is_silent(one, ends.get(one.key), now)), None)
        if silent is None:
            return None
        return StreamError(
            f"Nothing has arrived of lane {silent.lane} for {SILENT_SECONDS:g} s, neither messages nor errors, although it has messages "
            f"from {silent.next_offset} to {ends[silent.key] - 1}.",
            hint="The stream opens again. If this repeats, look at the broker that leads the partition.",
        )

    def _is_silent(self, partition: Partition, end: int | None, now: float) -> bool:
        if end is None:  # there is no new answer
            return False
        if end <= partition.next_offset or partition.unread_from is not None:
            self._progress.pop(partition.key, None)
            return False
        progress = self._progress.setdefault(partition.key, _Progress(partition.next_offset, now))
        if progress.offset != partition.next_offset:
            self._progress[partition.key] = _Progress(partition.next_offset, now)
            return False
        return now - progress.since > SILENT_SECONDS

    def _check_join(self, now: float) -> HeadraceError | None:
        if self._joins_since is None or now - self._joins_since <= JOIN_SECONDS:
            return None
        self._joins_since = now
        if not partitions_of(self._client.partition_counts(), self._topics):
            return None
        return StreamError(
            f"The group has assigned nothing for {JOIN_SECONDS:g} s.",
            hint="A member of the group does not come back, or its coordinator is silent. The stream opens again.",
        )
