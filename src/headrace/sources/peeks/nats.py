"""Peek at a stream of NATS JetStream: request messages by sequence after the acknowledged one, without a consumer."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from headrace.sources.declared_decoder import Decoding
from headrace.sources.nats.client import NatsClient
from headrace.sources.nats.consumers import StreamInfo, look_at_consumer, look_at_stream
from headrace.sources.nats.lanes import Origin
from headrace.sources.nats.message import raw_event
from headrace.sources.nats.producer import NatsArguments
from headrace.sources.nats.start import Start
from headrace.sources.nats.subjects import ALL_SUBJECTS, FLOOR_SUFFIX, consumer_name, lane_name
from headrace.sources.nats.upstream import Nats
from headrace.sources.peeks import peek as port
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.secrets import aget_connection

NO_MESSAGE: Final = 10037
"""The code of JetStream for: no message lists."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
        sequence = await _first(client, arguments, stream, subject)
        messages: list[RawEvent] = []
        size = 0
        while len(messages) < request.limit and size < port.MAX_PEEK_BYTES:
            message = await _message(client, arguments.consumers.stream, subject, sequence)
            if message is None:
                break
            sequence = int(message["seq"]) + 1
            messages.append(await _raw_event(client, message, lane, arguments.decode))
            size += len(messages[-1].data)
        lists.append(messages)
    return port.Peek(port.in_turn(lists, request.limit))


async def _first(client: NatsClient, arguments: NatsArguments, stream: StreamInfo, subject: str) -> int:
    """Return the sequence from which a reader would read: after the acknowledged one, or at the start of its consumer."""
    name = consumer_name(arguments.consumers.durable, subject)
    for consumer in (name, name + FLOOR_SUFFIX):
        info = await look_at_consumer(client, arguments.consumers.stream, consumer)
        if info is None:
            continue
        floor = int(info["ack_floor"]["stream_seq"])
        config = info["config"]
        if floor > 0:
            return floor + 1
        if "opt_start_time" in config:
            return await _sequence_at(client, arguments, stream, datetime.fromisoformat(config["opt_start_time"]))
        return int(config.get("opt_start_seq", 1))
    return await _start(client, arguments, stream, arguments.consumers.start)


async def _start(client: NatsClient, arguments: NatsArguments, stream: StreamInfo, start: Start) -> int:
    if isinstance(start, datetime):
        return await _sequence_at(client, arguments, stream, start)
    if start == "latest":
        return stream.last + 1
    return 1 if start == "earliest" else start


async def _sequence_at(client: NatsClient, arguments: NatsArguments, stream: StreamInfo, time: datetime) -> int:
    """Return the sequence of the first message at or after a time, by bisection."""
    low, high = stream.first, stream.last + 1
    while low < high:
        middle = (low + high) // 2
        message = await _message(client, arguments.consumers.stream, ALL_SUBJECTS, middle)
        if message is None:
            high = middle
        elif _nanoseconds(message["time"]) < int((time - _EPOCH).total_seconds() * 1_000_000) * 1_000:
            low = int(message["seq"]) + 1
        else:
            high = middle
    return low


async def _message(client: NatsClient, stream: str, subject: str, sequence: int) -> Mapping[str, Any] | None:
    """Return the first message of a subject filter from a sequence on, or None if there is none."""
    body = {"seq": max(1, sequence), "next_by_subj": subject}
    answer = await client.api(f"Stream {stream!r} cannot be read", f"STREAM.MSG.GET.{stream}", body, none_for=NO_MESSAGE)
    return None if answer is None else answer["message"]


async def _raw_event(client: NatsClient, message: Mapping[str, Any], lane: str, decode: Decoding) -> RawEvent:
    origin = Origin(1, int(message["seq"]), 0, _nanoseconds(message["time"]), 0)
    return raw_event(
        b64decode(message.get("data") or ""),
        await client.headers(b64decode(message.get("hdrs") or "")),
        subject=message["subject"],
        lane=lane,
        origin=origin,
        decode=decode,
    )


def _nanoseconds(text: str) -> int:
    """Return a time of the server, which may have nine digits of a second, in nanoseconds since 1970."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    seconds = int((datetime.fromisoformat(whole).replace(tzinfo=UTC) - _EPOCH).total_seconds())
    return seconds * 1_000_000_000 + int(rest[:9].ljust(9, "0") or 0)
