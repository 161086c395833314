"""Peek at streams of RabbitMQ: consume after the stored offset. A consumer of a stream takes nothing from other ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.errors import HeadraceError
from headrace.sources.declared_decoder import decoder_of
from headrace.sources.peeks import peek as port
from headrace.sources.rabbitmq.client import RabbitConnection
from headrace.sources.rabbitmq.message import offset_of, stream_event
from headrace.sources.rabbitmq.settings import address_of
from headrace.sources.rabbitmq.streams.lane import Lane
from headrace.sources.rabbitmq.streams.opening import Description
from headrace.sources.rabbitmq.streams.progress import Names, Progress, rejection
from headrace.sources.rabbitmq.streams.reader import OFFSET, check_stream, last_offset
from headrace.sources.rabbitmq.streams.start import NO_OFFSET, offset_argument
from headrace.sources.rabbitmq.streams.upstream import RabbitMQStreams
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.secrets import aget_connection


class _Start(NamedTuple):
    """Where the next reader of a stream begins: after the offset, or at the start of the upstream."""

    stream: str
    offset: int | None


async def peek(upstream: RabbitMQStreams, request: port.PeekRequest) -> port.Peek:
    """Return the messages after the stored offset of each stream, or from the start of the upstream on."""
    description = upstream.description()
    connection = await RabbitConnection.open(address_of(await aget_connection(description.connection)), _ignore)
    try:
        starts = await _starts(connection, description)
        lists: list[list[RawEvent]] = []
        notes: list[str] = []
        for lane in port.matching_lanes(starts, request):
            messages = await _messages(connection, description, starts[lane], request.limit)
            lists.append([stream_event(message, lane, decoder_of(description.decode)) for message in messages])
            offset = starts[lane].offset
            if offset is not None and messages and (first := offset_of(messages[0]) or 0) > offset + 1:
                notes.append(f"{lane}: offsets {offset + 1} to {first - 1} have no message, or the server has removed them.")
        return port.Peek(port.in_turn(lists, request.limit), notes)
    finally:
        await connection.close()


async def _starts(connection: RabbitConnection, description: Description) -> Mapping[str, _Start]:
    """Return where each stream is read next, by lane. An unread stream has no birthmark: its first reader chooses it."""
    starts: dict[str, _Start] = {}
    for stream in description.streams:
        await check_stream(connection, stream)
        progress = Progress(connection, Names(description.group, stream))
        note = await progress.look_up()
        if note is None or note.birthmark is None:
            starts[stream] = _Start(stream, None)
        elif await progress.is_born(note.birthmark):
            starts[Lane(stream, note.birthmark, None).name] = _Start(stream, note.offset)
        else:
            starts[stream] = _Start(stream, NO_OFFSET)
    return starts


async def _messages(connection: RabbitConnection, description: Description, start: _Start, limit: int) -> list[Any]:
    """Return up to `limit` messages. Raises `HeadraceError`."""
    last = await last_offset(connection, start.stream)
    is_latest = start.offset is None and description.start == "latest"
    if last is None or is_latest or (start.offset is not None and start.offset >= last):
        return []
    messages: list[Any] = []
    size = 0
    ended = asyncio.Event()

    async def receive(message: Any) -> None:
        nonlocal size
        if len(messages) < limit and size < port.MAX_PEEK_BYTES:
            messages.append(message)
            size += len(message.body)
        if len(messages) == limit or size >= port.MAX_PEEK_BYTES or (offset_of(message) or 0) >= last:
            ended.set()

    argument = offset_argument(start.offset, description.start)
    try:
        async with connection.temporary_channel() as channel:
            await channel.basic_qos(prefetch_count=limit, timeout=port.PEEK_SECONDS)
            await channel.basic_consume(start.stream, receive, arguments={OFFSET: argument}, timeout=port.PEEK_SECONDS)
            try:
                async with asyncio.timeout(port.PEEK_SECONDS / 2):
                    await ended.wait()
            except TimeoutError:
                pass  # a start after the last message
    except Exception as error:
        raise _rejection(start.stream, error) from None
    return messages


def _rejection(stream: str, error: Exception) -> HeadraceError:
    return rejection(f"Stream {stream!r} cannot be read", error)


def _ignore(error: BaseException) -> None:
    """Ignore the end of the connection: a failed request reports it."""
