"""NATS JetStream: a stream with four subjects, each read with a durable consumer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from bench.brokers.broker import BATCH, Advanced, Broker, Send, value
from nats.aio.client import Client

from headrace import Nats
from headrace.sources.nats.subjects import consumer_name

REQUESTED: Final = 4 * BATCH
"""Messages of a subject that the bare client has requested, so that more arrive while it acknowledges."""


class Server(Broker):
    """A server that stores streams in files. The durable name of a reader is the name of the stream."""

    server = "nats"
    source = "a stream in a file with 4 subjects, each read by a durable consumer with cumulative acknowledgements"
    count = "acknowledgement floors"
    lanes: ClassVar[int] = 4
    messages: ClassVar[int] = 200_000

    @property
    def connection(self) -> str:
        return f"nats://{self.address}"

    def upstream(self, name: str) -> Nats:
        return Nats(_subjects(name), connection="bench", stream=name, durable=name)

    def create(self, name: str) -> None:
        with _connected(self.address) as (runner, client):
            config = {"name": name, "subjects": [f"{name}.>"], "storage": "file"}
            answer = runner.run(_api(client, f"STREAM.CREATE.{name}", config))
            if "error" in answer:
                raise SystemExit(f"Stream {name} cannot be created: {answer['error']}")

    def drop(self, name: str) -> None:
        with _connected(self.address) as (runner, client):
            runner.run(_api(client, f"STREAM.DELETE.{name}"))

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        subjects = _subjects(name)

        async def send(client: Any, numbers: Sequence[int]) -> None:
            answers = await asyncio.gather(
                *(client.request(subjects[number % self.lanes], value(number), timeout=30) for number in numbers)
            )
            if not all(b'"seq"' in answer.data for answer in answers):
                raise SystemExit(f"Messages are not stored: {answers[0].data!r}")

        with _connected(self.address) as (runner, client):
            yield lambda numbers: runner.run(send(client, numbers))

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        consumers = [consumer_name(name, subject) for subject in _subjects(name)]

        async def advanced(client: Any) -> list[int]:
            answers = await asyncio.gather(*(_api(client, f"CONSUMER.INFO.{name}.{consumer}") for consumer in consumers))
            floors = [int(answer["ack_floor"]["stream_seq"]) if "ack_floor" in answer else 0 for answer in answers]
            # The lanes take turns in the stream.
            return [(floor - lane - 1) // self.lanes + 1 for lane, floor in enumerate(floors)]

        with _connected(self.address) as (runner, client):
            yield lambda: runner.run(advanced(client))

    @staticmethod
    def read(address: str, name: str) -> None:
        asyncio.run(_read(address, name))


async def _read(address: str, name: str) -> None:
    client = await _connect(address)
    await asyncio.gather(*(_read_subject(client, name, subject) for subject in _subjects(name)))


async def _read_subject(client: Any, name: str, subject: str) -> None:
    consumer = consumer_name(name, subject)
    config = {"durable_name": consumer, "filter_subject": subject, "ack_policy": "all", "max_ack_pending": 100_000, "deliver_policy": "all"}
    await _api(client, f"CONSUMER.DURABLE.CREATE.{name}.{consumer}", {"stream_name": name, "config": config})
    inbox, arrived, requested = client.new_inbox(), [], 0
    is_new = asyncio.Event()

    async def receive(message: Any) -> None:
        arrived.append(message.reply)
        is_new.set()

    await client.subscribe(inbox, cb=receive, pending_msgs_limit=0, pending_bytes_limit=0)
    while True:
        while requested < REQUESTED:
            await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}", json.dumps({"batch": BATCH}).encode(), reply=inbox)
            requested += BATCH
        await is_new.wait()
        is_new.clear()
        last, requested = arrived[-1], requested - len(arrived)
        arrived.clear()
        await client.request(last, b"+ACK", timeout=30)


@contextmanager
def _connected(address: str) -> Iterator[tuple[asyncio.Runner, Any]]:
    """Connect in a loop of its own, which runs during each call only."""
    with asyncio.Runner() as runner:
        client = runner.run(_connect(address))
        try:
            yield runner, client
        finally:
            runner.run(client.close())


async def _connect(address: str) -> Any:
    client = Client()
    await client.connect([f"nats://{address}"], allow_reconnect=False, ping_interval=3600)
    return client


async def _api(client: Any, subject: str, body: Any = None) -> dict[str, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    answer: dict[str, Any] = json.loads((await client.request(f"$JS.API.{subject}", data, timeout=30)).data)
    return answer


def _subjects(name: str) -> list[str]:
    return [f"{name}.{lane}" for lane in range(Server.lanes)]
