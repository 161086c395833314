"""Redis Streams: four stream keys, read with a consumer group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import redis
from bench.brokers.broker import BATCH, Advanced, Broker, Send, value
from redis.exceptions import ResponseError

from headrace import RedisStreams


class Server(Broker):
    """A server that syncs each write. The group of a reader has the name of the source."""

    server = "redis"
    source = "4 stream keys, read by a consumer group, on a server that syncs each write"
    count = "entries that the group has read, less the pending ones"
    lanes: ClassVar[int] = 4
    messages: ClassVar[int] = 200_000

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._client = _client(address)

    @property
    def connection(self) -> str:
        return f"redis://{self.address}"

    def upstream(self, name: str) -> RedisStreams:
        return RedisStreams(_keys(name), connection="bench", group=name, payload="data")

    def create(self, name: str) -> None:
        for key in _keys(name):
            self._client.xgroup_create(key, name, "0", mkstream=True)

    def drop(self, name: str) -> None:
        self._client.delete(*_keys(name))

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        yield lambda numbers: self._send(name, numbers)

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        client = _client(self.address)
        yield lambda: _acknowledged(client, name)
        client.close()

    def _send(self, name: str, numbers: Sequence[int]) -> None:
        pipeline, keys = self._client.pipeline(transaction=False), _keys(name)
        for number in numbers:
            pipeline.xadd(keys[number % self.lanes], {"data": value(number)})
        pipeline.execute()

    @staticmethod
    def read(address: str, name: str) -> None:
        client = _client(address)
        keys: dict[Any, Any] = dict.fromkeys(_keys(name), ">")
        while True:
            answer: Any = client.xreadgroup(name, "bare", keys, count=BATCH, block=1_000)
            pipeline = client.pipeline(transaction=False)
            for key, entries in answer.items() if isinstance(answer, dict) else answer or ():
                pipeline.xack(key, name, *(entry[0] for entry in entries))
            pipeline.execute()


def _acknowledged(client: Any, name: str) -> list[int]:
    pipeline = client.pipeline()
    for key in _keys(name):
        pipeline.xinfo_groups(key)
    try:
        groups = [answer[0] for answer in pipeline.execute()]
    except ResponseError:
        return [0] * Server.lanes
    return [int(group["entries-read"] or 0) - int(group["pending"]) for group in groups]


def _keys(name: str) -> list[str]:
    return [f"{name}:{lane}" for lane in range(Server.lanes)]


def _client(address: str) -> Any:
    host, _, port = address.rpartition(":")
    return redis.Redis(host, int(port))
