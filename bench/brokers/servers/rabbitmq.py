"""RabbitMQ: a quorum queue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import aiormq
from bench.brokers.broker import BATCH, Advanced, Broker, Send, value
from pamqp.commands import Basic

from headrace import RabbitMQ

ACK_MESSAGES: Final = 100
"""Messages of one acknowledgement of the bare client, at most. The prefetch covers several of them."""
ACK_SECONDS: Final = 0.005
"""For how long the bare client waits for more messages before it acknowledges fewer."""
REQUEUE_SECONDS: Final = 1.0
"""After the end of a reader, until the messages that it held are ready again."""


class Server(Broker):
    """A node. At once, it reports only how many messages are ready, not how many a reader holds."""

    server = "rabbitmq"
    source = f"a quorum queue of one node, with a prefetch of {BATCH}"
    count = f"messages that are not ready: the reader holds up to {BATCH} of them; when it has ended, none may be ready again"
    ordered: ClassVar[bool] = False
    messages: ClassVar[int] = 100_000
    settle_seconds: ClassVar[float] = 2.0

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._sent: dict[str, int] = {}

    @property
    def connection(self) -> str:
        return url_of(self.address)

    def upstream(self, name: str) -> RabbitMQ:
        return RabbitMQ(name, connection="bench", prefetch=BATCH)

    def create(self, name: str) -> None:
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": 1_000}
        with channel_to(self.address) as (runner, channel):
            runner.run(channel.queue_declare(name, durable=True, arguments=arguments))

    def drop(self, name: str) -> None:
        with channel_to(self.address) as (runner, channel):
            runner.run(channel.queue_delete(name))

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        async def send(channel: Any, numbers: Sequence[int]) -> None:
            await publish(channel, ((number, name) for number in numbers))
            self._sent[name] = self._sent.get(name, 0) + len(numbers)

        with channel_to(self.address) as (runner, channel):
            yield lambda numbers: runner.run(send(channel, numbers))

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        with channel_to(self.address) as (runner, channel):
            yield lambda: [self._sent.get(name, 0) - _ready(runner, channel, name)]

    def is_settled(self, name: str) -> bool:
        time.sleep(REQUEUE_SECONDS)
        with channel_to(self.address) as (runner, channel):
            return _ready(runner, channel, name) == 0

    @staticmethod
    def read(address: str, name: str) -> None:
        asyncio.run(_read(address, name))


async def _read(address: str, name: str) -> None:
    connection = await aiormq.connect(url_of(address))
    channel = await connection.channel()
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    await channel.basic_qos(prefetch_count=BATCH)
    await channel.basic_consume(name, arrived.put)
    while True:
        last, messages = await arrived.get(), 1
        while messages < ACK_MESSAGES:
            if arrived.empty():
                await asyncio.sleep(ACK_SECONDS)
                if arrived.empty():
                    break
            last, messages = arrived.get_nowait(), messages + 1
        await channel.basic_ack(last.delivery.delivery_tag, multiple=True)


async def publish(channel: Any, messages: Iterable[tuple[int, str]]) -> None:
    """Send the messages with these numbers to these queues, and wait until the server has them on disk."""
    durable = Basic.Properties(delivery_mode=2)
    confirmations = (channel.basic_publish(value(number), routing_key=queue, properties=durable, wait=False) for number, queue in messages)
    await asyncio.gather(*confirmations)


def _ready(runner: asyncio.Runner, channel: Any, name: str) -> int:
    return int(runner.run(channel.queue_declare(name, passive=True)).message_count or 0)


@contextmanager
def channel_to(address: str) -> Iterator[tuple[asyncio.Runner, Any]]:
    """Connect as `connection_to` does, and open a channel."""
    with connection_to(address) as (runner, connection):
        yield runner, runner.run(connection.channel())


@contextmanager
def connection_to(address: str) -> Iterator[tuple[asyncio.Runner, Any]]:
    """Connect in a loop of its own, which runs during each call only. So there are no heartbeats."""
    with asyncio.Runner() as runner:
        connection = runner.run(_connect(f"{url_of(address)}?heartbeat=0"))
        try:
            yield runner, connection
        finally:
            runner.run(connection.close())


async def _connect(url: str) -> Any:
    return await aiormq.connect(url)


def url_of(address: str) -> str:
    return f"amqp://guest:guest@{address}/"
