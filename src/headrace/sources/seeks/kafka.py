"""Preview a seek of topics of Kafka: look up offsets as a peek does, without joining the group."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from headrace.core.connection import Connection
from headrace.core.values.shards import WHOLE
from headrace.sources.kafka.client import KafkaClient, OffsetRange
from headrace.sources.kafka.group.assignment import Assignment
from headrace.sources.kafka.group.shard_partitions import in_shard
from headrace.sources.kafka.partitions import Partitions, TopicPartitionKey, partitions_of
from headrace.sources.kafka.upstream import Kafka
from headrace.sources.peeks.kafka import reading_client
from headrace.sources.seeks.seek import LanePreview, check_position, lane_points
from headrace.sources.seeks.target import LanePoint, SeekTarget
from headrace.triggers.base import stream_name
from headrace.triggers.secrets import aget_connection


async def preview(upstream: Kafka, target: SeekTarget) -> Sequence[LanePreview]:
    """Return the partitions that the target names.

    If the group has no offsets yet, the other partitions are among them too, at the start of the upstream: once the group has an offset,
    a partition without one is read from its first message.

    Raises:
        UpstreamError: A lane is unknown, or it has no message at an offset.
    """
    connection = await aget_connection(upstream.description().connection)
    return await asyncio.to_thread(_preview, upstream, connection, target)


def _preview(upstream: Kafka, connection: Connection, target: SeekTarget) -> Sequence[LanePreview]:
    topics = upstream.description()
    client, _ = reading_client(topics, connection)
    try:
        client.check_topics(topics.topics)
        keys = partitions_of(client.partition_counts(), topics.topics)
        keys = keys if topics.shard == WHOLE else in_shard(keys, topics.shard)
        partitions = Partitions()
        now = Assignment(client, partitions, topics.start).begin(keys)
        lanes = {partition.key: partition.lane for partition in partitions}
        named = lane_points(list(lanes.values()), target)
        points = {key: named[lane] for key, lane in lanes.items() if lane in named}
        ranges = client.ranges(keys)
        positions = _positions(client, points, ranges)
        is_new = all(committed.offset < 0 for committed in client.committed(keys).values())
    finally:
        client.close()
    streams = {key: stream_name(part.stream_key()) for part in upstream.split() for key in in_shard(keys, part.description().shard)}
    moved = [key for key in keys if key in positions or is_new]
    previews = [
        LanePreview(streams[key], lanes[key], ranges[key].low, ranges[key].high, now[key], positions.get(key, now[key])) for key in moved
    ]
    for one in previews:
        if one.lane in named:
            check_position(one)
    return previews


def _positions(
    client: KafkaClient, points: Mapping[TopicPartitionKey, LanePoint], ranges: Mapping[TopicPartitionKey, OffsetRange]
) -> dict[TopicPartitionKey, int]:
    at: dict[tuple[datetime, TopicPartitionKey], int] = {}
    for time in {point for point in points.values() if isinstance(point, datetime)}:
        named = [key for key, point in points.items() if point == time]
        at |= {(time, key): offset for key, offset in client.offsets_at(named, time).items()}
    positions: dict[TopicPartitionKey, int] = {}
    for key, point in points.items():
        if isinstance(point, datetime):
            offset = at[point, key]
            positions[key] = offset if offset >= 0 else ranges[key].high
        elif isinstance(point, int):
            positions[key] = point
        else:
            positions[key] = ranges[key].low if point == "earliest" else ranges[key].high
    return positions
