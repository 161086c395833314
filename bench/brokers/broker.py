"""What each broker of the benchmark provides: its server, its messages, a reader without Headrace, and how far a reader is."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any, ClassVar, Final

from bench.api_process import ROOT

VALUE_BYTES: Final = 295
BATCH: Final = 500
"""Messages that a bare client reads and acknowledges at once, at most."""

FILL_BATCH: Final = 1_000
"""Messages that a sender sends at once before a reader starts."""

BROKERS: Final = ("kafka", "redis", "nats", "rabbitmq", "rabbitmq_streams", "postgresql", "sqs", "pubsub", "kinesis", "service_bus")
"""The modules of `bench.brokers.servers`. Each has a class `Server`."""
SOAKED: Final = (*BROKERS, "mqtt", "pulsar")
"""The brokers of the soak: the server of MQTT, and the client of Pulsar, report too late how far a reader is."""

Send = Callable[[Sequence[int]], None]
"""Sends the messages with these numbers, and waits until the server has them, or has sent them without delay."""

Advanced = Callable[[], list[int]]
"""Returns how many messages of each lane are advanced."""


class Broker(ABC):
    """One running server, and its clients. A source is a topic, queue or table of it: each run has a source of its own.

    Message `n` is in lane `n % lanes`. Where `ordered` is set, `advanced` counts the messages of a lane in the order in which they were
    sent, so that the time of each is known. Otherwise it only counts.
    """

    server: ClassVar[str]
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables of the script of the server."""
    source: ClassVar[str]
    """The kind of the source."""
    count: ClassVar[str]
    """How it is known how far a reader is."""
    lanes: ClassVar[int] = 1
    ordered: ClassVar[bool] = True
    messages: ClassVar[int] = 300_000
    """Of a run that measures the throughput, if the command names no number."""
    rate: ClassVar[int] = 1_000
    """Messages per second of a run that measures the latency."""
    max_batch: ClassVar[int] = BATCH
    """Messages of one request of a sender."""
    settle_seconds: ClassVar[float] = 0.0
    """For how long a reader may still acknowledge after the last message counts as advanced."""

    def __init__(self, address: str) -> None:
        self.address = address

    @property
    @abstractmethod
    def connection(self) -> str:
        """The connection of Headrace."""

    @abstractmethod
    def upstream(self, name: str) -> Any:
        """Return the upstream of a source, with the connection `bench`."""

    @abstractmethod
    def create(self, name: str) -> None:
        """Create a source."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Delete a source, which no reader has any more."""

    def fill(self, name: str, messages: int) -> None:
        """Send the messages with the numbers 0 to `messages`, before a reader starts."""
        with self.sender(name) as send:
            for numbers in chunks(messages, FILL_BATCH):
                send(numbers)

    @abstractmethod
    def sender(self, name: str) -> AbstractContextManager[Send]:
        """Return what sends single messages without delay."""

    @abstractmethod
    def observer(self, name: str) -> AbstractContextManager[Advanced]:
        """Return what counts. It is used in one thread."""

    @staticmethod
    @abstractmethod
    def read(address: str, name: str) -> None:
        """Read the source and acknowledge in batches, until the process is killed. This is the bare client."""

    def is_settled(self, name: str) -> bool:
        """Return whether nothing is left, after the reader of a full source has ended."""
        del name
        return True


@contextmanager
def running(name: str) -> Iterator[Broker]:
    """Run the server of a broker with an empty folder for its data."""
    broker = broker_class(name)
    script = ROOT / "scripts" / "brokers" / f"{broker.server}.sh"
    with tempfile.TemporaryDirectory(prefix=f"headrace-bench-{name}-") as folder:
        environment = os.environ | broker.environment | {"HEADRACE_BROKER_DATA": folder}
        subprocess.run([script, "setup"], check=True, env=environment)
        address = subprocess.run([script, "start"], check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()
        try:
            yield broker(address)
        finally:
            subprocess.run([script, "wipe"], check=True, env=environment)


def broker_class(name: str) -> type[Broker]:
    """Return the class of a broker. Its client library is loaded only then."""
    result: type[Broker] = import_module(f"bench.brokers.servers.{name}").Server
    return result


def pace(broker: Broker, name: str, numbers: range, rate: int) -> list[float]:
    """Send messages at a rate, and return the time at which each was due. Messages that are due already are sent at once."""
    with broker.sender(name) as send:
        begun, sent = time.perf_counter(), 0
        while sent < len(numbers):
            due = min(len(numbers), int((time.perf_counter() - begun) * rate) + 1, sent + broker.max_batch)
            if due > sent:
                send(numbers[sent:due])
                sent = due
            else:
                time.sleep(max(0.0, begun + sent / rate - time.perf_counter()))
    return [begun + number / rate for number in range(len(numbers))]


def value(number: int) -> bytes:
    """Return the JSON of a message."""
    text = f'{{"id":"{number}","hundredth":{number % 100},"one_in_100":{str(number % 100 == 0).lower()},"pad":"'.encode()
    return text + b"x" * (VALUE_BYTES - len(text) - 2) + b'"}'


def chunks(messages: int, size: int) -> Iterator[range]:
    """Yield the numbers of the messages in parts."""
    for start in range(0, messages, size):
        yield range(start, min(start + size, messages))
