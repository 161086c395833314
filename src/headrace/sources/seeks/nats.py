"""Preview a seek of a stream of NATS JetStream: look up sequences as a peek does, without a consumer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from headrace.errors import UpstreamError
from headrace.sources.nats.client import NatsClient
from headrace.sources.nats.consumers import Description, StreamInfo, first_sequence, look_at_stream, sequence_at
from headrace.sources.nats.subjects import lane_name
from headrace.sources.nats.upstream import Nats
from headrace.sources.seeks.seek import LanePreview, check_position, lane_points
from headrace.sources.seeks.target import LanePoint, SeekTarget
from headrace.triggers.base import stream_name
from headrace.triggers.secrets import aget_connection


async def preview(upstream: Nats, target: SeekTarget) -> Sequence[LanePreview]:
    """Return the lanes that the target names. A sequence is that of the stream, also for a lane of some of its subjects.

    Raises:
        UpstreamError: A lane is unknown, the stream has no message at a sequence, or it is a work queue.
    """
    arguments = upstream.arguments()
    client = NatsClient()
    try:
        await client.open(await aget_connection(arguments.connection))
        return await _preview(client, arguments.consumers, stream_name(upstream.stream_key()), target)
    finally:
        await client.aclose()


async def _preview(client: NatsClient, consumers: Description, stream: str, target: SeekTarget) -> Sequence[LanePreview]:
    info = await look_at_stream(client, consumers.stream)
    if info.is_work_queue:
        raise UpstreamError(
            f"The stream {consumers.stream!r} cannot seek: a work queue deletes the messages that are answered.",
            hint="To skip messages, purge the stream. To get messages again, send them again.",
        )
    lanes = {lane_name(subject, info.created): subject for subject in consumers.subjects}
    previews: list[LanePreview] = []
    first, end = max(1, info.first), info.last + 1
    for lane, point in lane_points(list(lanes), target).items():
        now = await first_sequence(client, consumers, info, lanes[lane])
        position = await _position(client, consumers.stream, info, point)
        previews.append(LanePreview(stream, lane, first, end, min(max(now, first), end), position))
        check_position(previews[-1])
    return previews


async def _position(client: NatsClient, name: str, info: StreamInfo, point: LanePoint) -> int:
    if isinstance(point, datetime):
        return max(1, await sequence_at(client, name, info, point))
    if isinstance(point, int):
        return point
    return max(1, info.first) if point == "earliest" else info.last + 1
