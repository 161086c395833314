"""Pause the partitions of a consumer whose stream takes no messages, so that it can poll, and stays a member of its group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.partitions import Partitions

PAUSE_AFTER_SECONDS: Final = 1.0


class Pause:
    """The pause of all partitions of one stream. It begins when the stream has had no room for PAUSE_AFTER_SECONDS."""

    def __init__(self, partitions: Partitions) -> None:
        self.is_active = False
        self._partitions = partitions
        self._full_since: float | None = None

    def begin_if_due(self, client: KafkaClient, now: float, *, immediately: bool) -> None:
        """Record that the stream has no room at `now`, a time of `time.monotonic`, and pause the partitions if that has lasted."""
        self._full_since = now if self._full_since is None else self._full_since
        if not self.is_active and (immediately or now - self._full_since > PAUSE_AFTER_SECONDS):
            self.is_active = True
            self.apply(client.consumer, self._assigned(client))

    def end(self, client: KafkaClient) -> None:
        """Record that the stream has room, and resume the partitions."""
        self._full_since = None
        if self.is_active:
            self.is_active = False
            self.apply(client.consumer, self._assigned(client))

    def apply(self, consumer: Any, targets: Sequence[Any]) -> None:
        """Pause or resume partitions. The client keeps a pause over assignments, and the stream may have got room meanwhile."""
        (consumer.pause if self.is_active else consumer.resume)(targets)

    def _assigned(self, client: KafkaClient) -> list[Any]:
        return [client.library.TopicPartition(*partition.key) for partition in self._partitions.assigned]
