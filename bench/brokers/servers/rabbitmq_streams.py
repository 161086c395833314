"""RabbitMQ: four streams, read by offset."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import aiormq
from aiormq.exceptions import ChannelNotFoundEntity
from bench.brokers.broker import BATCH, Advanced, Broker, Send
from bench.brokers.servers.rabbitmq import channel_to, connection_to, publish, url_of
from pamqp.commands import Basic

from headrace import RabbitMQStreams
from headrace.sources.rabbitmq.streams.progress import NOTE_ARGUMENTS, Names, OffsetNote

OFFSET: Final = "x-stream-offset"
BIRTHMARK: Final = "0" * 12
"""Of the notes of the bare client, which does not check the stream."""


class Server(Broker):
    """A node. The group of a reader has the name of the source.

    All messages of a stream are in its first segment. So the offsets have no gaps.
    """

    server = "rabbitmq"
    source = "4 streams of one node, read by offset, with the offset of each in a queue"
    count = "offsets in the queues"
    lanes: ClassVar[int] = 4
    messages: ClassVar[int] = 100_000

    @property
    def connection(self) -> str:
        return url_of(self.address)

    def upstream(self, name: str) -> RabbitMQStreams:
        return RabbitMQStreams(_streams(name), connection="bench", group=name)

    def create(self, name: str) -> None:
        with channel_to(self.address) as (runner, channel):
            for stream in _streams(name):
                runner.run(channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"}))

    def drop(self, name: str) -> None:
        with channel_to(self.address) as (runner, channel):
            for stream in _streams(name):
                runner.run(channel.queue_delete(stream))
                runner.run(channel.queue_delete(Names(name, stream).notes))

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        streams = _streams(name)

        async def send(channel: Any, numbers: Sequence[int]) -> None:
            await publish(channel, ((number, streams[number % self.lanes]) for number in numbers))

        with channel_to(self.address) as (runner, channel):
            yield lambda numbers: runner.run(send(channel, numbers))

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        known = [0] * self.lanes

        async def look(connection: Any, lane: int, queue: str) -> None:
            """Take the note of a lane. It returns to its queue with the end of the channel, unless there is a newer one by then."""
            channel = await connection.channel()
            try:
                message = await channel.basic_get(queue)
            except ChannelNotFoundEntity:  # the reader has not begun
                return
            if not isinstance(message.delivery, Basic.GetEmpty):
                offset = OffsetNote.parse(bytes(message.body).decode()).offset
                known[lane] = max(known[lane], 0 if offset is None else offset + 1)
            await channel.close()

        with connection_to(self.address) as (runner, connection):

            def advanced() -> list[int]:
                for lane, stream in enumerate(_streams(name)):
                    runner.run(look(connection, lane, Names(name, stream).notes))
                return known.copy()

            yield advanced

    @staticmethod
    def read(address: str, name: str) -> None:
        asyncio.run(_read(address, name))


async def _read(address: str, name: str) -> None:
    connection = await aiormq.connect(url_of(address))
    await asyncio.gather(*(_read_stream(connection, name, stream) for stream in _streams(name)))


async def _read_stream(connection: Any, name: str, stream: str) -> None:
    """Read a stream, and store the last offset of what has arrived."""
    channel, notes = await connection.channel(), await connection.channel()
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    await notes.queue_declare(Names(name, stream).notes, durable=True, arguments=dict(NOTE_ARGUMENTS))
    await channel.basic_qos(prefetch_count=2 * BATCH)
    await channel.basic_consume(stream, arrived.put, arguments={OFFSET: "first"})
    number = 0
    while True:
        last, messages = await arrived.get(), 1
        while messages < BATCH and not arrived.empty():
            last, messages = arrived.get_nowait(), messages + 1
        await channel.basic_ack(last.delivery.delivery_tag, multiple=True)
        number += 1
        note = OffsetNote(number=number, birthmark=BIRTHMARK, offset=last.header.properties.headers[OFFSET])
        await notes.basic_publish(
            note.text(None).encode(), routing_key=Names(name, stream).notes, properties=Basic.Properties(delivery_mode=2)
        )


def _streams(name: str) -> list[str]:
    return [f"{name}_{lane}" for lane in range(Server.lanes)]
