"""Peek at a queue or subscription of Service Bus: the service shows messages without their locks."""

from __future__ import annotations

from typing import Final

from headrace.errors import UpstreamError
from headrace.sources.declared_decoder import decoder_of
from headrace.sources.peeks import peek as port
from headrace.sources.service_bus.client import open_client
from headrace.sources.service_bus.message import raw_event, sequence_number_of
from headrace.sources.service_bus.producer import receivers_of
from headrace.sources.service_bus.receiver import EntityReceiver
from headrace.sources.service_bus.upstream import ServiceBus
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.secrets import aget_connection

MAX_MESSAGES: Final = 100
"""Messages of one request."""


async def peek(upstream: ServiceBus, request: port.PeekRequest) -> port.Peek:
    """Return the first messages, also the ones that a reader has locked. The service does not count a peek as a delivery."""
    description = upstream.description()
    if description.sessions is not None:
        raise UpstreamError(
            f"The upstream {upstream.stream_key()} cannot be peeked: the service shows the messages of a session to its reader only.",
            hint="See them with Service Bus Explorer.",
        )
    port.matching_lanes([description.name], request)
    client = await open_client(await aget_connection(description.connection))
    receiver = EntityReceiver(receivers_of(client, description, prefetch_count=0), f"{description.name!r} cannot be peeked")
    decode, messages, size, number = decoder_of(description.decode), list[RawEvent](), 0, 1
    try:
        while len(messages) < request.limit and size < port.MAX_PEEK_BYTES:
            seen = await receiver.peek(number, min(MAX_MESSAGES, request.limit - len(messages)))
            if not seen:
                break
            for message in seen:
                messages.append(raw_event(message, description.name, decode))
                size += len(messages[-1].data)
            number = sequence_number_of(seen[-1]) + 1
    finally:
        await receiver.aclose()
        await client.close()
    return port.Peek(messages)
