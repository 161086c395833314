"""Real Kafka servers on loopback: Apache Kafka for tests with the mark `brokers`, and the small fake `kfake`."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from support.processes.broker_server import SECONDS, BrokerServer, java, require_server
from support.processes.shared_servers import shared_server

INSTALLED = {"kafka": "kafka-4.3.1/jars", "kfake": "kfake/kfake"}

ATTEMPT_SECONDS = 5.0
STARTING = frozenset({"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "_TIMED_OUT"})

Kind = Literal["kafka", "kfake"]


class KafkaServer(BrokerServer):
    """One server. `folder` and `settings` are those of its script."""

    def __init__(self, kind: Kind, *, folder: Path | None = None, **settings: str) -> None:
        import confluent_kafka.admin

        super().__init__(kind, folder=folder, **settings)
        self._library: Any = confluent_kafka
        quiet = {"bootstrap.servers": self.address, "log_level": 0}
        self.admin = confluent_kafka.admin.AdminClient(quiet)
        self._producer = self._new_producer()

    def create_topic(self, name: str | None = None, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """Create a topic and return its name, by default one of its own."""
        name = name or f"topic-{secrets.token_hex(6)}"
        topic = self._library.admin.NewTopic(name, partitions, 1, config=dict(settings or {}))
        until = time.monotonic() + SECONDS
        while True:
            try:
                for future in self.admin.create_topics([topic]).values():
                    future.result(SECONDS)
            except self._library.KafkaException as error:  # a topic of this name is being deleted
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS" or time.monotonic() > until:
                    raise
                time.sleep(0.1)
            else:
                break
        # The controller answers before the broker knows the topic. A deletion of many partitions just before makes that long.
        while self.admin.list_topics(name, timeout=SECONDS).topics[name].error is not None:
            assert time.monotonic() < until, f"topic {name} is not known to the broker"
            time.sleep(0.02)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        for future in self.admin.delete_topics([name]).values():
            future.result(SECONDS)

    def send(self, topic: str, values: Sequence[bytes | None], partition: int = 0, **fields: Any) -> None:
        """Send messages, and wait until the server has stored them."""
        self._wait_for_partition(topic, partition)
        errors: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            del message
            if error is not None:
                errors.append(error)

        for value in values:
            while True:
                try:
                    self._producer.produce(topic, value, partition=partition, on_delivery=delivered, **fields)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(SECONDS) == 0
        assert not errors, errors[0]

    def _wait_for_partition(self, topic: str, partition: int) -> None:
        """Wait until the server lists the partition. A producer that learns of it while it sends fails."""
        until = time.monotonic() + SECONDS
        while partition not in self._producer.list_topics(topic, timeout=SECONDS).topics[topic].partitions:
            assert time.monotonic() < until, f"the server does not list partition {partition} of {topic}"
            time.sleep(0.02)

    def transaction(self, topic: str, values: Sequence[bytes], partition: int = 0, *, abort: bool = False) -> None:
        """Send messages in one transaction."""
        producer = self._library.Producer(
            {"bootstrap.servers": self.address, "log_level": 0, "transactional.id": f"test-{secrets.token_hex(6)}"}
        )
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(SECONDS)
        (producer.abort_transaction if abort else producer.commit_transaction)(SECONDS)

    def consumer(self, group: str, **settings: Any) -> Any:
        """Return another member of a group, as any program may be."""
        return self._library.Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 0} | settings)

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """Return the committed offset of a group, or a negative number."""
        library = self._library
        request = library.ConsumerGroupTopicPartitions(group, [library.TopicPartition(topic, partition)])
        until = time.monotonic() + SECONDS
        while True:
            try:
                future = self.admin.list_consumer_group_offsets([request], request_timeout=ATTEMPT_SECONDS)[group]
                return int(future.result(SECONDS).topic_partitions[0].offset)
            except library.KafkaException as error:  # the server creates the topic of the offsets, or loads the group
                if error.args[0].name() not in STARTING or time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def end(self, topic: str, partition: int = 0) -> int:
        """Return the end offset of a partition."""
        library = self._library
        request = {library.TopicPartition(topic, partition): library.admin.OffsetSpec.latest()}
        return int(next(iter(self.admin.list_offsets(request).values())).result(SECONDS).offset)

    def log_size(self, topic: str) -> int:
        """Return the size in bytes of the log of a topic with one partition."""
        return self._segment(topic).stat().st_size

    def lose_end(self, topic: str, size: int) -> None:
        """Kill the server, cut the log of a topic to this size, and start it: another leader has not stored what followed."""
        self.kill()
        segment = self._segment(topic)
        os.truncate(segment, size)
        for suffix in (".index", ".timeindex"):
            segment.with_suffix(suffix).unlink(missing_ok=True)
        self.start()
        self._producer = self._new_producer()  # the server has lost what an idempotent producer believes to be stored

    def _segment(self, topic: str) -> Path:
        return next(self._folder.glob(f"**/{topic}-0/*.log"))

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete all messages before an offset, as the retention does."""
        library = self._library
        for future in self.admin.delete_records([library.TopicPartition(topic, partition, offset)]).values():
            future.result(SECONDS)

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions of a topic."""
        for future in self.admin.create_partitions([self._library.admin.NewPartitions(topic, total)]).values():
            future.result(SECONDS)
        self._producer = self._new_producer()

    def _new_producer(self) -> Any:
        settings = {"bootstrap.servers": self.address, "log_level": 0, "linger.ms": 0, "message.max.bytes": 1_048_000}
        # One request in flight: see `OWN` of the sender of dead letters.
        return self._library.Producer(settings | {"enable.idempotence": True, "max.in.flight": 1})


def require(kind: Kind) -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    require_server(kind, INSTALLED[kind], library="confluent_kafka", program=java() if kind == "kafka" else None)


@shared_server
def shared(kind: Kind) -> KafkaServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require(kind)
    return KafkaServer(kind)


if __name__ == "__main__":
    sys.stdout.write(f"{shared('kafka').address}\n")
