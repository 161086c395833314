"""Kafka: a topic with four partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from bench.brokers.broker import BATCH, Advanced, Broker, Send, value
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Kafka

QUIET: Final = {"log_level": 0}


class Server(Broker):
    """A broker with its controller. The group of a reader has the name of the topic."""

    server = "kafka"
    source = "a topic with 4 partitions, read by a consumer group"
    count = "committed offsets"
    lanes: ClassVar[int] = 4

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._settings = {"bootstrap.servers": address, **QUIET}
        self._admin = AdminClient(self._settings)

    @property
    def connection(self) -> str:
        return f"kafka://{self.address}"

    def upstream(self, name: str) -> Kafka:
        return Kafka(name, connection="bench", group=name)

    def create(self, name: str) -> None:
        for future in self._admin.create_topics([NewTopic(name, self.lanes, 1)]).values():
            future.result(30)

    def drop(self, name: str) -> None:
        for future in self._admin.delete_topics([name]).values():
            future.result(30)

    def fill(self, name: str, messages: int) -> None:
        # One request in flight: on a new topic, a broker may refuse the first request and take the second.
        producer = Producer(
            {
                **self._settings,
                "enable.idempotence": True,
                "max.in.flight": 1,
                "linger.ms": 50,
                "queue.buffering.max.messages": 200_000,
            }
        )
        for number in range(messages):
            while True:
                try:
                    producer.produce(name, value(number), partition=number % self.lanes)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush(60)

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        producer = Producer({**self._settings, "linger.ms": 0})

        def send(numbers: Sequence[int]) -> None:
            for number in numbers:
                producer.produce(name, value(number), partition=number % self.lanes)
            producer.poll(0)

        yield send
        producer.flush(60)

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        consumer = Consumer({**self._settings, "group.id": name})  # reads offsets of the group without joining it
        partitions = [TopicPartition(name, number) for number in range(self.lanes)]
        yield lambda: _committed(consumer, partitions)
        consumer.close()

    @staticmethod
    def read(address: str, name: str) -> None:
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest", **QUIET}
        )
        consumer.subscribe([name])
        while True:
            first = consumer.poll(1.0)
            if first is None:
                continue
            offsets = {}
            for message in (first, *consumer.consume(BATCH, 0)):
                if message.error() is None:
                    offsets[message.partition()] = message.offset() + 1
            if offsets:
                consumer.commit(offsets=[TopicPartition(name, number, offset) for number, offset in offsets.items()], asynchronous=False)


def _committed(consumer: Any, partitions: Sequence[Any]) -> list[int]:
    try:
        rows = consumer.committed(list(partitions), timeout=30)
    except KafkaException as error:
        if "coordinator" not in str(error).lower():
            raise
        return [0] * len(partitions)  # the first group of a new server: the broker creates the topic of the offsets
    return [max(0, row.offset) for row in rows]
