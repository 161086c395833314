"""Pulsar: a topic with four partitions, each read by an exclusive consumer with cumulative acknowledgements."""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import pulsar as library
from bench.brokers.broker import BATCH, Advanced, Broker, Send, value

from headrace import Pulsar

SECONDS: Final = 60.0
BATCH_MS: Final = 10


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


WEB_PORT: Final = _free_port()


class Server(Broker):
    """A broker with its bookie in one process. The subscription of a reader has the name of the source."""

    server = "pulsar"
    environment: ClassVar[Mapping[str, str]] = {"PULSAR_WEB_PORT": str(WEB_PORT)}
    source = "a topic with 4 partitions, each read by an exclusive consumer with cumulative acknowledgements"
    count = "messages sent, less the backlog of the subscription"
    lanes: ClassVar[int] = 4
    messages: ClassVar[int] = 100_000

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._client = _client(address)
        self._sent: dict[str, Counter[int]] = {}

    @property
    def connection(self) -> str:
        return f"pulsar://{self.address}?admin_url=http://127.0.0.1:{WEB_PORT}"

    def upstream(self, name: str) -> Pulsar:
        return Pulsar(name, subscription=name, connection="bench")

    def create(self, name: str) -> None:
        _request("PUT", f"{name}/partitions", self.lanes)
        for partition in _partitions(name):
            _request("PUT", f"{partition}/subscription/{name}", "earliest")

    def drop(self, name: str) -> None:
        _request("DELETE", f"{name}/partitions?force=true")

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        """Send each message as an entry of its own, because the backlog counts entries."""
        producers = [self._client.create_producer(_topic(one), batching_enabled=False, max_pending_messages=0) for one in _partitions(name)]

        def send(numbers: Sequence[int]) -> None:
            left, failures = threading.Semaphore(0), []

            def sent(result: Any, _: Any) -> None:
                if result.name != "Ok":
                    failures.append(result)
                left.release()

            for number in numbers:
                producers[number % self.lanes].send_async(value(number), sent)
            if not all(left.acquire(timeout=SECONDS) for _ in numbers) or failures:
                raise SystemExit(f"Messages are not stored: {failures[:1]}")
            self._sent.setdefault(name, Counter()).update(number % self.lanes for number in numbers)

        yield send
        for producer in producers:
            producer.close()

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        def advanced() -> list[int]:
            sent = Counter(self._sent.get(name, Counter()))
            stats = [_request("GET", f"{partition}/stats") for partition in _partitions(name)]
            return [sent[lane] - int(one["subscriptions"][name]["msgBacklog"]) for lane, one in enumerate(stats)]

        yield advanced

    @staticmethod
    def read(address: str, name: str) -> None:
        client = _client(address)
        readers = [threading.Thread(target=_read, args=(client, partition, name)) for partition in _partitions(name)]
        for reader in readers:
            reader.start()


def _read(client: Any, partition: str, name: str) -> None:
    policy = library.ConsumerBatchReceivePolicy(BATCH, -1, BATCH_MS)
    consumer = client.subscribe(_topic(partition), name, batch_receive_policy=policy, batch_index_ack_enabled=True)
    while True:
        messages = consumer.batch_receive()
        if messages:
            consumer.acknowledge_cumulative(messages[-1])


def _client(address: str) -> Any:
    return library.Client(f"pulsar://{address}", logger=library.FileLogger(library.LoggerLevel.Error, os.devnull))


def _partitions(name: str) -> list[str]:
    return [f"{name}-partition-{lane}" for lane in range(Server.lanes)]


def _topic(name: str) -> str:
    return f"persistent://public/default/{name}"


def _request(method: str, path: str, body: Any = None) -> Any:
    url = f"http://127.0.0.1:{WEB_PORT}/admin/v2/persistent/public/default/{path}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        text = answer.read()
    return json.loads(text) if text else None
