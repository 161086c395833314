"""Peek at topics of Pulsar: read after the acknowledged message of each partition, with a reader that acknowledges nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from headrace.errors import StreamError
from headrace.sources.declared_decoder import decoder_of
from headrace.sources.peeks import peek as port
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.client import PulsarClient
from headrace.sources.pulsar.message import message_id_of, raw_event
from headrace.sources.pulsar.server_errors import AWAY, described
from headrace.sources.pulsar.settings import settings_of
from headrace.sources.pulsar.subscriptions import Description
from headrace.sources.pulsar.topics import partition_names
from headrace.sources.pulsar.upstream import Pulsar
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.secrets import aget_connection

NOT_SUBSCRIBED: Final = "Subscription {name!r} of {lane} does not exist yet. These are the first messages of the topic."


async def peek(upstream: Pulsar, request: port.PeekRequest) -> port.Peek:
    """Return the messages after the acknowledged one of each partition, or the first ones if the subscription does not exist.

    Of a batch that is acknowledged in part, all messages are returned, because the admin API has only the last whole entry.
    """
    description = upstream.description()
    settings = settings_of(await aget_connection(description.connection))
    admin, client = AdminApi(settings), PulsarClient(settings)
    try:
        await admin.open()
        await client.open()
        async with asyncio.timeout(port.PEEK_SECONDS):
            return await _read(client, admin, description, request)
    except TimeoutError as error:
        raise StreamError(f"The topics cannot be read: no answer within {port.PEEK_SECONDS:g} s.", hint=AWAY) from error
    finally:
        await client.aclose()
        await admin.aclose()


async def _read(client: PulsarClient, admin: AdminApi, description: Description, request: port.PeekRequest) -> port.Peek:
    lanes = [name for topic in description.topics for name in partition_names(topic, await admin.partitions(topic))]
    lists: list[list[RawEvent]] = []
    notes: list[str] = []
    for lane in port.matching_lanes(lanes, request):
        acknowledged = await admin.acknowledged(lane, description.subscription)
        if acknowledged is None:
            notes.append(NOT_SUBSCRIBED.format(name=description.subscription, lane=lane))
        lists.append(await _messages(client, description, lane, acknowledged, request.limit))
    return port.Peek(port.in_turn(lists, request.limit), notes)


async def _messages(
    client: PulsarClient, description: Description, lane: str, acknowledged: tuple[int, int] | None, limit: int
) -> list[RawEvent]:
    decode = decoder_of(description.decode)
    reader = await client.create_reader(lane, acknowledged)
    messages: list[RawEvent] = []
    size = 0
    try:
        while len(messages) < limit and size < port.MAX_PEEK_BYTES and await reader.has_message_available():
            message = await reader.read_next()
            messages.append(raw_event(message, lane, message_id_of(message.message_id()), decode, description.decode))
            size += len(messages[-1].data)
    except Exception as error:
        raise described(f"Topic {lane} cannot be read", error) from error
    return messages
