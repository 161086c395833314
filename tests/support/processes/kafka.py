"""Real Kafka servers on loopback: Apache Kafka for tests with the mark `brokers`, and the small fake `kfake`.

`make setup-brokers` installs them below `.brokers`. A server ends with the process that started it, however that ends.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts" / "brokers"
INSTALLED = {"kafka": "kafka-4.3.1/jars", "kfake": "kfake/kfake"}
SECONDS = 60.0

Kind = Literal["kafka", "kfake"]


class KafkaServer:
    """One server. Its address stays the same over `kill` and `start`."""

    def __init__(self, kind: Kind) -> None:
        import confluent_kafka.admin

        self._library: Any = confluent_kafka
        self._kind = kind
        self._folder = Path(tempfile.mkdtemp(prefix=f"headrace-{kind}-"))
        self._environment = os.environ | {"HEADRACE_BROKER_DATA": str(self._folder)}
        self._guard = self._guarded()
        self.address = self.start()
        quiet = {"bootstrap.servers": self.address, "log_level": 0}
        self.admin = confluent_kafka.admin.AdminClient(quiet)
        self._producer = confluent_kafka.Producer(quiet | {"linger.ms": 0, "enable.idempotence": True, "message.max.bytes": 1_048_000})

    def start(self) -> str:
        """Start it, wait until it answers, and return its address."""
        return self._run("start").strip()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._run("kill")

    def close(self) -> None:
        """End it and remove its data."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(SECONDS)

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
                return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        for future in self.admin.delete_topics([name]).values():
            future.result(SECONDS)

    def send(self, topic: str, values: Sequence[bytes | None], partition: int = 0, **fields: Any) -> None:
        """Send messages, and wait until the server has stored them."""
        errors: list[Any] = []
        until = time.monotonic() + SECONDS

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
                except self._library.KafkaException as error:  # the client does not know a new partition yet
                    if error.args[0].name() != "_UNKNOWN_PARTITION" or time.monotonic() > until:
                        raise
                    self._producer.list_topics(topic, timeout=SECONDS)
        assert self._producer.flush(SECONDS) == 0
        assert not errors, errors[0]

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
        future = self.admin.list_consumer_group_offsets([request])[group]
        return int(future.result(SECONDS).topic_partitions[0].offset)

    def end(self, topic: str, partition: int = 0) -> int:
        """Return the end offset of a partition."""
        library = self._library
        request = {library.TopicPartition(topic, partition): library.admin.OffsetSpec.latest()}
        return int(next(iter(self.admin.list_offsets(request).values())).result(SECONDS).offset)

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete all messages before an offset, as the retention does."""
        library = self._library
        for future in self.admin.delete_records([library.TopicPartition(topic, partition, offset)]).values():
            future.result(SECONDS)

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions of a topic."""
        for future in self.admin.create_partitions([self._library.admin.NewPartitions(topic, total)]).values():
            future.result(SECONDS)

    def _run(self, command: str) -> str:
        script = [str(SCRIPTS / f"{self._kind}.sh"), command]
        completed = subprocess.run(script, env=self._environment, capture_output=True, text=True, timeout=120, check=False)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def _guarded(self) -> subprocess.Popen[bytes]:
        """Start what ends the server and removes its data when this process has ended: it waits for the end of a pipe."""
        script = ["/bin/sh", "-c", 'cat; "$0" kill; rm -rf "$1"', str(SCRIPTS / f"{self._kind}.sh"), str(self._folder)]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(script, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True, env=self._environment)


def require(kind: Kind) -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    folder = Path(os.environ.get("HEADRACE_BROKERS", ROOT / ".brokers"))
    missing = None
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        missing = "confluent-kafka is not installed: run `make setup-dev`."
    if not (folder / INSTALLED[kind]).exists():
        missing = f"{kind} is not installed: run `make setup-brokers`."
    elif kind == "kafka" and shutil.which(os.environ.get("JAVA", "java")) is None:
        missing = "Java is not installed."
    if missing is None:
        return
    if os.environ.get("HEADRACE_REQUIRE_BROKERS"):
        pytest.fail(missing)
    pytest.skip(missing)


@cache
def shared(kind: Kind) -> KafkaServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require(kind)
    server = KafkaServer(kind)
    atexit.register(server.close)
    return server


def connection_variable(name: str) -> str:
    """Return the environment variable of a connection."""
    return f"HEADRACE_CONNECTION_{name.upper()}"


if __name__ == "__main__":
    sys.stdout.write(f"{shared('kafka').address}\n")
