"""Preview a seek of streams of Redis: look up ids without a lease, and count entries with read-only scripts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace.errors import UpstreamError
from headrace.sources.redis.client import RedisClient, StreamFacts, StreamKey
from headrace.sources.redis.entry_ids import id_of, position_of
from headrace.sources.redis.groups import next_position, plan_group
from headrace.sources.redis.reader import Description
from headrace.sources.redis.upstream import RedisStreams
from headrace.sources.seeks.seek import LanePreview, check_position, lane_points
from headrace.sources.seeks.target import LanePoint, SeekTarget
from headrace.triggers.base import stream_name
from headrace.triggers.secrets import aget_connection

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def preview(upstream: RedisStreams, target: SeekTarget) -> Sequence[LanePreview]:
    """Return the stream keys that the target names. A position is made of the id of an entry.

    Raises:
        UpstreamError: A lane is unknown or was not read yet, or it has no entry at a position.
    """
    description = upstream.description()
    connection = await aget_connection(description.connection)
    client = await RedisClient.open(connection, secrets.token_hex(8), 1)  # it takes no lease
    try:
        await client.check_version()
        return await _preview(client, description, stream_name(upstream.stream_key()), target)
    finally:
        await client.close()


async def _preview(client: RedisClient, description: Description, stream: str, target: SeekTarget) -> Sequence[LanePreview]:
    keys: dict[str, tuple[str, StreamFacts, str]] = {}
    for name in description.keys:
        key = StreamKey(name, description.group)
        facts = await client.facts(key)
        mark = plan_group(key, facts, description.start, "", was_read=False).mark
        keys[f"{name}@{mark}" if mark else name] = name, facts, mark
    previews: list[LanePreview] = []
    for lane, point in lane_points(list(keys), target).items():
        name, facts, mark = keys[lane]
        if not mark or facts.stream is None:
            raise UpstreamError(
                f"Stream {name!r} cannot seek: group {description.group!r} has not read it yet, or it was created again.",
                hint="Start a triggerer of the project once.",
            )
        first, end = _range(facts)
        here = LanePreview(stream, lane, first, end, min(max(next_position(facts.state), first), end), 0)
        moved = here._replace(position=await _position(client, here, name, point))
        check_position(moved)
        low, high = sorted((moved.now, moved.position))
        counted = await client.count(name, id_of(low), id_of(high - 1)) if low < high else 0
        previews.append(moved._replace(messages=int(facts.stream["length"]) if counted is None else counted))
    return previews


def _range(facts: StreamFacts) -> tuple[int, int]:
    """Return the position of the first entry, and the one after the last."""
    info = facts.stream or {}
    end = position_of(info["last-generated-id"].decode()) + 1
    return (position_of(info["recorded-first-entry-id"].decode()) if int(info["length"]) else end), end


async def _position(client: RedisClient, lane: LanePreview, name: str, point: LanePoint) -> int:
    if isinstance(point, datetime):
        milliseconds = -((_EPOCH - point) // timedelta(milliseconds=1))  # rounded up: an id has no smaller part of the time
        first = await client.first_from(name, f"{milliseconds}-0")
        return lane.end if first is None else position_of(first)
    if isinstance(point, int):
        return point
    return lane.first if point == "earliest" else lane.end
