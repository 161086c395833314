"""Peek at a stream of NATS JetStream: request messages by sequence after the acknowledged one, without a consumer."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from headrace.sources.declared_decoder import Decoding
from headrace.sources.nats.client import NatsClient
from headrace.sources.nats.consumers import first_sequence, look_at_stream, message_after, nanoseconds
from headrace.sources.nats.lanes import Origin
from headrace.sources.nats.message import raw_event
from headrace.sources.nats.producer import NatsArguments
from headrace.sources.nats.subjects import lane_name
from headrace.sources.nats.upstream import Nats
from headrace.sources.peeks import peek as port
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.secrets import aget_connection


async def peek(upstream: Nats, request: port.PeekRequest) -> port.Peek:
    """Return the messages after the acknowledged sequence of each lane, or from the start of the upstream on."""
    arguments = upstream.arguments()
    client = NatsClient()
    try:
        await client.open(await aget_connection(arguments.connection))
        return await _read(client, arguments, request)
    finally:
        await client.aclose()


async def _read(client: NatsClient, arguments: NatsArguments, request: port.PeekRequest) -> port.Peek:
    stream = await look_at_stream(client, arguments.consumers.stream)
    lanes = {lane_name(subject, stream.created): subject for subject in arguments.consumers.subjects}
    lists: list[list[RawEvent]] = []
    for lane in port.matching_lanes(lanes, request):
        subject = lanes[lane]
        sequence = await first_sequence(client, arguments.consumers, stream, subject)
        messages: list[RawEvent] = []
        size = 0
        while len(messages) < request.limit and size < port.MAX_PEEK_BYTES:
            message = await message_after(client, arguments.consumers.stream, subject, sequence)
            if message is None:
                break
            sequence = int(message["seq"]) + 1
            messages.append(await _raw_event(client, message, lane, arguments.decode))
            size += len(messages[-1].data)
        lists.append(messages)
    return port.Peek(port.in_turn(lists, request.limit))


async def _raw_event(client: NatsClient, message: Mapping[str, Any], lane: str, decode: Decoding) -> RawEvent:
    origin = Origin(1, int(message["seq"]), 0, nanoseconds(message["time"]), 0)
    return raw_event(
        b64decode(message.get("data") or ""),
        await client.headers(b64decode(message.get("hdrs") or "")),
        subject=message["subject"],
        lane=lane,
        origin=origin,
        decode=decode,
    )
