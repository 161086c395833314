"""Peek at streams of Redis: read-only scripts read pending entries of the group, and the entries after its last delivered id."""

from __future__ import annotations

import secrets

from headrace.sources.peeks import peek as port
from headrace.sources.redis.client import RedisClient, StreamFacts, StreamKey
from headrace.sources.redis.entry_ids import NO_ID, position_of
from headrace.sources.redis.groups import LATEST_ID, GroupPlan, consumer_name, plan_group
from headrace.sources.redis.lane import Lane
from headrace.sources.redis.message import StreamEntry, raw_event
from headrace.sources.redis.reader import Description
from headrace.sources.redis.upstream import RedisStreams
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.secrets import aget_connection


async def peek(upstream: RedisStreams, request: port.PeekRequest) -> port.Peek:
    """Return the entries that are not acknowledged, and the entries that the group has not delivered."""
    description = upstream.description()
    connection = await aget_connection(description.connection)
    client = await RedisClient.open(connection, secrets.token_hex(8), 1)  # it takes no lease
    try:
        await client.check_version()
        return await _read(client, description, request)
    finally:
        await client.close()


async def _read(client: RedisClient, description: Description, request: port.PeekRequest) -> port.Peek:
    notes: list[str] = []
    plans: dict[str, tuple[StreamKey, StreamFacts, GroupPlan]] = {}
    for name in description.keys:
        key = StreamKey(name, description.group)
        facts = await client.facts(key)
        plan = plan_group(key, facts, description.start, "", was_read=False)
        plans[f"{name}@{plan.mark}" if plan.mark else name] = key, facts, plan
    lists: list[list[RawEvent]] = []
    for lane_name in port.matching_lanes(plans, request):
        key, facts, plan = plans[lane_name]
        if facts.stream is None:
            notes.append(f"{key.stream}: the stream does not exist.")
            continue
        if plan.problem is not None:
            notes.append(f"{lane_name}: {plan.problem}")
        begin = _begin(facts, plan)
        answer = await client.peek(key, consumer_name(plan.mark) if plan.how is None else "", begin, request.limit)
        if answer.missing:
            notes.append(f"{lane_name}: {answer.missing:,} entries were removed before they were acknowledged.")
        lane = Lane(key.stream, plan.mark, None, begin)
        lane.name = lane_name
        lists.append(
            [
                raw_event(description.format, StreamEntry(lane, id, position_of(id.decode())), fields, delivery)
                for (id, fields), delivery in zip(answer.entries, answer.deliveries, strict=True)
            ]
        )
    return port.Peek(port.in_turn(lists, request.limit), notes)


def _begin(facts: StreamFacts, plan: GroupPlan) -> str:
    """Return the id after which new entries are read."""
    if plan.how is None and facts.group is not None:
        return _text(facts.group["last-delivered-id"])
    if plan.id == LATEST_ID and facts.stream is not None:
        return _text(facts.stream["last-generated-id"])
    return plan.id or NO_ID


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
