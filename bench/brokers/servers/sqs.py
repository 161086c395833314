"""SQS: a standard queue of ElasticMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import aiobotocore.config
import aiobotocore.session
import botocore.config
import botocore.session
from bench.brokers.broker import Advanced, Broker, Send, chunks, value

from headrace import SQS

BATCH: Final = 10
"""Messages of one request, which the protocol limits."""
POLLS: Final = 8
"""Requests of the bare client at once, as many as those of Headrace."""
SENDERS: Final = 8
CREDENTIALS: Final = {"region_name": "elasticmq", "aws_access_key_id": "x", "aws_secret_access_key": "y"}


class Server(Broker):
    """ElasticMQ, which keeps the queue in memory and writes it to a file."""

    server = "elasticmq"
    source = "a standard queue of ElasticMQ"
    count = "messages that are neither visible nor held by a reader"
    ordered: ClassVar[bool] = False
    messages: ClassVar[int] = 10_000
    rate: ClassVar[int] = 500
    max_batch: ClassVar[int] = BATCH

    def __init__(self, address: str) -> None:
        super().__init__(address)
        config = botocore.config.Config(retries={"total_max_attempts": 5}, max_pool_connections=SENDERS)
        session = botocore.session.get_session()
        self._client: Any = session.create_client("sqs", endpoint_url=f"http://{address}", config=config, **CREDENTIALS)
        self._sent: dict[str, int] = {}

    @property
    def connection(self) -> str:
        return f"sqs://x:y@{self.address}?region=elasticmq&scheme=http"

    def upstream(self, name: str) -> SQS:
        return SQS(name, connection="bench", wait=1)

    def create(self, name: str) -> None:
        self._client.create_queue(QueueName=name)

    def drop(self, name: str) -> None:
        self._client.delete_queue(QueueUrl=_url(self.address, name))

    def fill(self, name: str, messages: int) -> None:
        with ThreadPoolExecutor(SENDERS) as senders:
            for _ in senders.map(lambda numbers: self._send(name, numbers), chunks(messages, BATCH)):
                pass
        self._sent[name] = messages

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        def send(numbers: Sequence[int]) -> None:
            self._send(name, numbers)
            self._sent[name] = self._sent.get(name, 0) + len(numbers)

        yield send

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        yield lambda: [self._sent.get(name, 0) - self._left(name)]

    def _send(self, name: str, numbers: Sequence[int]) -> None:
        entries = [{"Id": str(number), "MessageBody": value(number).decode()} for number in numbers]
        answer = self._client.send_message_batch(QueueUrl=_url(self.address, name), Entries=entries)
        if answer.get("Failed"):
            raise SystemExit(f"Messages are not stored: {answer['Failed'][0]}")

    def _left(self, name: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self._client.get_queue_attributes(QueueUrl=_url(self.address, name), AttributeNames=names)
        return sum(int(answer["Attributes"][each]) for each in names)

    @staticmethod
    def read(address: str, name: str) -> None:
        asyncio.run(_read(address, name))


async def _read(address: str, name: str) -> None:
    session = aiobotocore.session.get_session()
    config = aiobotocore.config.AioConfig(max_pool_connections=2 * POLLS)
    async with session.create_client("sqs", endpoint_url=f"http://{address}", config=config, **CREDENTIALS) as client:
        await asyncio.gather(*(_poll(client, _url(address, name)) for _ in range(POLLS)))


async def _poll(client: Any, url: str) -> None:
    """Receive, and delete while the next messages are received."""
    deletion: asyncio.Task[Any] | None = None
    while True:
        answer = await client.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=1)
        messages = answer.get("Messages", ())
        if messages:
            entries = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)]
            if deletion is not None:
                await deletion
            deletion = asyncio.create_task(client.delete_message_batch(QueueUrl=url, Entries=entries))


def _url(address: str, name: str) -> str:
    return f"http://{address}/000000000000/{name}"
