"""A Kafka server for the benchmarks, with its producers and observers."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.api_process import ROOT
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PARTITIONS: Final = 4
VALUE_BYTES: Final = 295
KINDS: Final = 10_000
"""Messages have `k` from 0 to before this number in turn: a watch on one value of it matches one in KINDS."""
QUIET: Final = {"log_level": 0}


@contextmanager
def kafka() -> Iterator[str]:
    """Run a Kafka server with an empty folder for its data. Its address is the value."""
    script = ROOT / "scripts" / "brokers" / "kafka.sh"
    with tempfile.TemporaryDirectory(prefix="headrace-bench-kafka-") as folder:
        environment = os.environ | {"HEADRACE_BROKER_DATA": folder}
        subprocess.run([script, "setup"], check=True, env=environment)
        address = subprocess.run([script, "start"], check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()
        try:
            yield address
        finally:
            subprocess.run([script, "wipe"], check=True, env=environment)


class Cluster:
    """The clients of one benchmark."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._settings = {"bootstrap.servers": address, **QUIET}
        self._admin = AdminClient(self._settings)

    def create_topic(self, name: str) -> None:
        """Create a topic."""
        for future in self._admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result(30)

    def fill(self, topic: str, messages: int) -> None:
        """Send messages to all partitions in turn."""
        producer = Producer({**self._settings, "enable.idempotence": True, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
        for number in range(messages):
            while True:
                try:
                    producer.produce(topic, value(number), partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush(60)

    def pace(self, topic: str, rate: int, seconds: float) -> list[float]:
        """Send messages at a rate, and return the time at which each was due."""
        producer = Producer({**self._settings, "linger.ms": 0})
        begun, due = time.perf_counter(), []
        for number in range(int(rate * seconds)):
            due.append(begun + number / rate)
            while (pause := due[-1] - time.perf_counter()) > 0:
                producer.poll(0)
                time.sleep(min(pause, 0.001))
            producer.produce(topic, value(number), partition=number % PARTITIONS)
        producer.flush(60)
        return due

    def observer(self, group: str) -> Consumer:
        """Return a client that reads the committed offsets of a group, without joining it."""
        return Consumer({**self._settings, "group.id": group})

    def end(self, topic: str) -> int:
        """Return the number of messages in a topic."""
        requests = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        return sum(int(future.result(30).offset) for future in self._admin.list_offsets(requests).values())


def committed(observer: Any, topic: str) -> list[int]:
    """Return the committed offset of each partition."""
    try:
        rows = observer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=30)
    except KafkaException as error:
        if "coordinator" not in str(error).lower():
            raise
        return [0] * PARTITIONS  # the first group of a new server: the broker creates the topic of the offsets
    return [max(0, row.offset) for row in rows]


def value(number: int) -> bytes:
    """Return the JSON of a message."""
    text = f'{{"id":"{number}","k":{number % KINDS},"one_in_100":{str(number % 100 == 0).lower()},"pad":"'.encode()
    return text + b"x" * (VALUE_BYTES - len(text) - 2) + b'"}'
