"""Messages of Kafka as raw events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.triggers.raw_event import Message

if TYPE_CHECKING:
    from headrace.sources.kafka.partitions import Partition


class KafkaMessage(Message):
    """A message of a topic. It is its own broker payload. Other processes get it without its `partition`."""

    __slots__ = ("partition",)

    partition: Partition | None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: all but the partition, which belongs to the reader."""
        return super().__getstate__() | {"partition": None}
