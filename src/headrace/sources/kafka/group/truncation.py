"""Partitions whose end a broker has lost. Their next messages have the offsets of lost ones."""

from __future__ import annotations

import re
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.kafka.partitions import Partition, TopicPartitionKey

TRUNCATED: Final = re.compile(r"log truncation detected at offset (\d+).*end offset is (-?\d+)", re.DOTALL)
"""The client reports a truncation with the code of a missing offset. Only its text differs."""


def truncated(lane: str, key: TopicPartitionKey, ends: str, last: int, end: int | None = None) -> UpstreamError:
    """Return the error of a partition that was read up to offset `last`. Before offset `end`, if it is known, nothing is lost."""
    offset, start = (last, "before the loss") if end is None else (end, f"such as {{{key.topic!r}: {{{key.number}: {end}}}}}")
    return UpstreamError(
        f"Messages may be lost: partition {lane} {ends}, and was read up to {last}. The broker has lost its end. "
        "New messages have the offsets of lost ones.",
        hint=f"Give the upstream another group, with a start {start}: it is another stream then. If its events have ids of their own, "
        f"a seek of lane {key.topic}/{key.number} to offset {offset}{' or before' if end is None else ''} keeps the group.",
    )


def truncation(error: Any, partition: Partition) -> UpstreamError | None:
    """Return the error for a `KafkaError` that says that a broker has truncated the partition, or None for another one.

    The client compares the epoch of the leader that wrote the last message read with those of the partition, as KIP-320 describes.
    """
    reported = TRUNCATED.search(error.str())
    if reported is None:
        return None
    end = int(reported[2])
    last = int(reported[1]) - 1
    if end < 0:
        return truncated(partition.lane, partition.key, "was truncated", last)
    return truncated(partition.lane, partition.key, f"was truncated at offset {end}", last, end)
