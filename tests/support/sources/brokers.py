"""The brokers of Headrace's own upstreams, for the contract suite."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from zlib import crc32

import httpx
import msgspec

from headrace.sources.directory.upstream import Directory
from headrace.sources.http.upstream import Http
from headrace.sources.kafka.upstream import Kafka
from headrace.sources.memory.upstream import Memory
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.writer import QueueWriter
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.kafka import KafkaServer
from support.processes.receiver import Receiver

ENDPOINTS = 100
"""Endpoints of the shared receiver: more than the contract suite has tests."""
LANES = next(
    number
    for number in range(25, 10_000)
    if len({crc32(name.encode()) % number for name in (*"abcde", *(f"lane{one:02}" for one in range(20)))}) == 25
)
"""A number of lanes in which each lane that the contract suite names is apart."""


@cache
def shared_receiver() -> Receiver:
    """Return the receiver that the tests of this process share."""
    folder = TemporaryDirectory()
    endpoint = f"Http(f'orders{{i}}', verify='none', lanes={LANES}, key='@.headers.x-lane', headers=['X-Lane'], folder='in')"
    receiver = Receiver(Path(folder.name), f"*({endpoint} for i in range({ENDPOINTS}))", {})
    receiver.start()
    atexit.register(folder.cleanup)
    atexit.register(receiver.stop, signal.SIGKILL)
    return receiver


class FolderBroker(Broker):
    """A folder; a lane is a file, which is moved in by rename, and appended to when more comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "feed"
        self._folder.mkdir()

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        data = b"".join(message + b"\n" for message in messages)
        path = self._folder / f"{lane}.jsonl"
        if path.exists():
            with path.open("ab") as file:
                file.write(data)
        else:
            part = path.with_suffix(".part")
            part.write_bytes(data)
            part.rename(path)

    def upstream(self) -> Upstream:
        return Directory(self._folder)


class QueueBroker(Broker):
    """A queue in a file, with one sender that stays open."""

    counted: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._path = folder / "orders.queue"
        self._writer = QueueWriter(self._path).__enter__()

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._writer.send_many(map(msgspec.Raw, messages), lane=lane)

    def upstream(self) -> Upstream:
        return Queue(self._path)

    def close(self) -> None:
        self._writer.__exit__(None, None, None)


class HttpBroker(Broker):
    """An endpoint of its own of a shared receiver. The sender names the key of a request in a header; each key has a lane of its own."""

    _numbers: ClassVar[Iterator[int]] = iter(range(ENDPOINTS))

    counted: ClassVar[bool] = True

    def __init__(self) -> None:
        self._receiver = shared_receiver()
        self._name = f"orders{next(self._numbers)}"
        self._client = httpx.Client(trust_env=False, verify=False, timeout=60)

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        headers = {"Content-Type": "application/x-ndjson", "X-Lane": lane}
        response = self._client.post(f"{self._receiver.url}/hooks/{self._name}", content=b"\n".join(messages), headers=headers)
        assert response.status_code == 202, response.text

    def upstream(self) -> Upstream:
        return Http(self._name, verify="none", lanes=LANES, folder=self._receiver.folder / "in")

    def close(self) -> None:
        self._client.close()


class MemoryBroker(Broker):
    """A queue in memory with a name of its own."""

    durable: ClassVar[bool] = False

    counted: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self._memory = Memory(str(folder))

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._memory.send_many(map(msgspec.Raw, messages), lane=lane)

    def upstream(self) -> Upstream:
        return self._memory

    def close(self) -> None:
        self._memory.clear()


class KafkaBroker(Broker):
    """A topic of its own. A lane is a partition; a new one is added for each lane that a test names.

    With `shards`, the upstream is the last shard, and each of its partitions comes with those of the other shards.
    """

    counted: ClassVar[bool] = True

    def __init__(self, server: KafkaServer, shards: int = 1, **settings: str) -> None:
        self._server = server
        self._shards = shards
        self._topic = server.create_topic(partitions=shards)
        self._partitions: dict[str, int] = {}
        self._connection = f"kafka_{secrets.token_hex(4)}"
        options = "&".join(f"{name}={value}" for name, value in settings.items())
        os.environ[connection_variable(self._connection)] = f"kafka://{server.address}?topic.metadata.refresh.interval.ms=200&{options}"

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        if lane not in self._partitions:
            total = self._shards * (len(self._partitions) + 1)
            self._partitions[lane] = total - 1
            if total > self._shards:
                self._server.add_partitions(self._topic, total)
        self._server.send(self._topic, messages, self._partitions[lane])

    def upstream(self) -> Upstream:
        return Kafka(self._topic, connection=self._connection, group=self._topic, shards=self._shards).split()[-1]

    def close(self) -> None:
        del os.environ[connection_variable(self._connection)]
        self._server.delete_topic(self._topic)
