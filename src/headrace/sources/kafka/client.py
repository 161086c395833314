"""The client library, imported when a stream opens, and the calls of it that block for a bounded time."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from headrace.core.connection import Connection
from headrace.sources.connections.client_library import import_library
from headrace.sources.kafka.broker_errors import TRANSIENT, ConnectionErrors, cause, client_logger, described_exception, topic_error
from headrace.sources.kafka.partitions import NO_EPOCH, TopicPartitionKey
from headrace.sources.kafka.settings import ASSIGNOR, client_settings, uses_new_protocol

REQUEST_SECONDS: Final = 10.0
OPEN_SECONDS: Final = 30.0
ATTEMPT_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 10.0
PROBE_ATTEMPT_SECONDS: Final = 0.5
UNREACHABLE: Final = "The cluster cannot be reached"
BIRTHMARK_DIGITS: Final = 12
ASSIGNORS: Final = ("roundrobin,range", "range,roundrobin")

R = TypeVar("R")


class OffsetRange(NamedTuple):
    """The first offset of a partition, and the one after its last."""

    low: int
    high: int


class CommittedOffset(NamedTuple):
    """A committed offset, or a negative number if there is none, the epoch beside it, or NO_EPOCH, and the note."""

    offset: int
    epoch: int
    note: str | None


def load_library() -> Any:
    """Return the module `confluent_kafka`. Raises `UpstreamError` if it is not installed."""
    return import_library("Kafka cannot be read: its client library", "kafka", "confluent_kafka", "confluent_kafka.admin")


def probe(connection: Connection) -> str:
    """Request the metadata of the cluster, and return its numbers of brokers and topics.

    Raises:
        UpstreamError: The client library is missing, or the cluster refuses the settings or credentials.
        StreamError: The cluster does not answer within PROBE_SECONDS.
    """
    library = load_library()
    errors = ConnectionErrors()
    settings = client_settings(connection) | {"logger": client_logger(), "error_cb": errors.add}
    until = time.monotonic() + PROBE_SECONDS
    try:
        client = library.admin.AdminClient(settings)
    except library.KafkaException as error:
        raise described_exception("The connection cannot be used", error) from None
    while True:
        try:
            metadata = client.list_topics(timeout=PROBE_ATTEMPT_SECONDS)
        except library.KafkaException as error:
            client.poll(0)
            if errors.rejected is not None or time.monotonic() >= until:
                raise errors.described(UNREACHABLE, cause(error)) from None
            continue
        topics = sum(not name.startswith("__") for name in metadata.topics)
        return f"Kafka cluster {metadata.cluster_id}: {_count(len(metadata.brokers), 'broker')}, {_count(topics, 'topic')}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class KafkaClient:
    """A consumer and the requests about its topics. Blocking: all calls from one thread.

    `on_error` gets each `KafkaError` of the connection, from within other calls. `on_commit` gets the error and the partitions of each
    asynchronous commit, from within polls. `is_stopped` ends retries.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        connect_settings: Mapping[str, Any],
        *,
        on_error: Callable[[Any], None],
        on_commit: Callable[[Any, Sequence[Any]], None] | None = None,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.library = load_library()
        self._is_stopped = is_stopped
        self._on_error = on_error
        self._errors = ConnectionErrors()
        logger = client_logger()
        self._admin: Any = None
        self._reads_committed = settings.get("isolation.level") != "read_uncommitted"
        self._ends: dict[bool, Mapping[Any, Any]] = {}
        callbacks = {"error_cb": self._note_error} | ({} if on_commit is None else {"on_commit": on_commit})
        self._settings = dict(settings) | callbacks | {"logger": logger}
        try:
            self._admin = self.library.admin.AdminClient(dict(connect_settings) | {"logger": logger, "error_cb": self._note_error})
            self.consumer: Any = self._new_consumer()
        except self.library.KafkaException as error:
            raise described_exception("The connection cannot be used", error) from None

    def _new_consumer(self) -> Any:
        is_set = uses_new_protocol(self._settings) or ASSIGNOR in self._settings
        assignor = {} if is_set else {ASSIGNOR: self._assignor(str(self._settings["group.id"]))}
        return self.library.Consumer(self._settings | assignor)

    def _assignor(self, group: str) -> str:
        """Return the assignors to offer: first the one that the group does not use now.

        A static member that replaces another gets its old partitions without a rebalance, and is not the leader that would see new ones.
        The other assignor forces a rebalance. For a single member, both assign all partitions.
        """
        what = f"The group {group!r} cannot be read"
        return ASSIGNORS[0] if self._retried(what, lambda: self._present_assignor(group)) == "range" else ASSIGNORS[1]

    def _present_assignor(self, group: str) -> str | None:
        # The call that replaces this deprecated one asserts in librdkafka 2.16, and so aborts the process, if the connection to the
        # coordinator ends during it.
        for one in self._admin.list_groups(group, timeout=ATTEMPT_SECONDS * 3):
            if one.id == group:
                if one.error is not None:
                    raise self.library.KafkaException(one.error)
                return str(one.protocol)
        return None

    def check_topics(self, topics: Iterable[str]) -> None:
        """Check that each topic exists and may be read. A name that begins with `^` is a pattern, which may match no topic.

        Raises:
            UpstreamError: A topic does not exist, or the user may not read it.
            StreamError: The cluster does not answer.
        """
        known = self.partition_counts()
        for topic in topics:
            if not topic.startswith("^") and known.get(topic) is None and (error := self._topic_error(topic)) is not None:
                raise topic_error(topic, error)

    def partition_counts(self) -> dict[str, int | None]:
        """Return the number of partitions of each topic that this user may see, or None for a topic that cannot be read now.

        May be called from within a rebalance: there, the same request of the consumer would make its next callback abort the process.
        """
        metadata = self._retried("The topics cannot be listed", lambda: self._admin.list_topics(timeout=ATTEMPT_SECONDS))
        return {name: len(topic.partitions) if topic.error is None else None for name, topic in metadata.topics.items()}

    def _topic_error(self, topic: str) -> Any:
        """Return the `KafkaError` for which a topic cannot be read, or None."""
        metadata = self._retried(f"Topic {topic!r} cannot be read", lambda: self.consumer.list_topics(topic, timeout=ATTEMPT_SECONDS))
        return metadata.topics[topic].error

    def birthmarks(self, topics: Iterable[str], *, once: bool = False) -> dict[str, str | None]:
        """Return a part of the id of each topic, or None where the cluster has no ids. A topic that does not exist is left out.

        With `once`, the request is not repeated.
        """
        names, seconds = sorted(set(topics)), 0.0 if once else OPEN_SECONDS
        return self._retried("The ids of the topics cannot be read", lambda: self._birthmarks(names), seconds) if names else {}

    def _birthmarks(self, names: list[str]) -> dict[str, str | None]:
        futures = self._admin.describe_topics(self.library.TopicCollection(names), request_timeout=ATTEMPT_SECONDS * 3)
        birthmarks: dict[str, str | None] = {}
        for name, future in futures.items():
            try:
                id = _digits(future.result(REQUEST_SECONDS).topic_id)
            except self.library.KafkaException as error:
                if error.args[0].code() == self.library.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                if error.args[0].code() != self.library.KafkaError.UNSUPPORTED_VERSION:
                    raise
                id = None
            birthmarks[name] = id
        return birthmarks

    def committed(self, keys: Sequence[TopicPartitionKey]) -> dict[TopicPartitionKey, CommittedOffset]:
        """Return the committed offset of each partition."""
        partitions = [self.library.TopicPartition(key.topic, key.number) for key in keys]
        rows = self._retried(
            "The committed offsets cannot be read", lambda: self.consumer.committed(partitions, timeout=ATTEMPT_SECONDS * 3)
        )
        for row in rows:
            if row.error is not None:
                raise described_exception(
                    f"The committed offset of {row.topic}/{row.partition} cannot be read", self.library.KafkaException(row.error)
                )
        return {
            TopicPartitionKey(row.topic, row.partition): CommittedOffset(
                row.offset, NO_EPOCH if row.leader_epoch is None else row.leader_epoch, row.metadata
            )
            for row in rows
        }

    def ranges(self, keys: Sequence[TopicPartitionKey]) -> dict[TopicPartitionKey, OffsetRange]:
        """Return the first and the end offset of each partition, with one request to each broker for either."""
        admin = self.library.admin
        lows = self._retried("The first offsets cannot be read", lambda: self._offsets(keys, admin.OffsetSpec.earliest()))
        highs = self._retried("The end offsets cannot be read", lambda: self._offsets(keys, admin.OffsetSpec.latest()))
        return {key: OffsetRange(lows[key], highs[key]) for key in keys}

    def _offsets(self, keys: Sequence[TopicPartitionKey], spec: Any) -> dict[TopicPartitionKey, int]:
        requests = {self.library.TopicPartition(key.topic, key.number): spec for key in keys}
        futures = self._admin.list_offsets(requests, request_timeout=ATTEMPT_SECONDS * 3) if requests else {}
        return {TopicPartitionKey(row.topic, row.partition): future.result(REQUEST_SECONDS).offset for row, future in futures.items()}

    def offsets_at(self, keys: Sequence[TopicPartitionKey], time: datetime) -> dict[TopicPartitionKey, int]:
        """Return the offset of the first message at or after a time, by partition. It is negative where there is none."""
        milliseconds = int(time.timestamp() * 1000)
        partitions = [self.library.TopicPartition(key.topic, key.number, milliseconds) for key in keys]
        rows = self._retried(
            "The offsets of the start cannot be read", lambda: self.consumer.offsets_for_times(partitions, timeout=ATTEMPT_SECONDS * 3)
        )
        return {TopicPartitionKey(row.topic, row.partition): row.offset for row in rows}

    def known_end(self, key: TopicPartitionKey) -> int | None:
        """Return the end offset of a partition as of the client's last fetch, or None. Does not block."""
        offsets = self.consumer.get_watermark_offsets(self.library.TopicPartition(key.topic, key.number), cached=True)
        return None if offsets is None or offsets[1] < 0 else int(offsets[1])

    def arrived_ends(self, keys: Sequence[TopicPartitionKey], *, readable: bool = False) -> dict[TopicPartitionKey, int]:
        """Return the end offsets that have arrived since the last call, and request those of `keys` unless a request is in flight.

        With `readable`, the ends are those up to which this consumer may read now: before the first open transaction, unless its
        isolation level is another. Does not block. The client does not fetch paused partitions, so that `known_end` is out of date for
        them.
        """
        waiting = self._ends.get(readable, {})
        if not all(future.done() for future in waiting.values()):
            return {}
        arrived = {
            TopicPartitionKey(row.topic, row.partition): int(future.result().offset)
            for row, future in waiting.items()
            if future.exception() is None
        }
        levels = self.library.IsolationLevel
        level = levels.READ_COMMITTED if readable and self._reads_committed else levels.READ_UNCOMMITTED
        latest = self.library.admin.OffsetSpec.latest()
        requests = {self.library.TopicPartition(key.topic, key.number): latest for key in keys}
        self._ends[readable] = (
            self._admin.list_offsets(requests, isolation_level=level, request_timeout=REQUEST_SECONDS) if requests else {}
        )
        return arrived

    def replace_consumer(self) -> None:
        """Create another consumer, and close this one. The client cannot use a consumer after a fatal error.

        Raises:
            StreamError: The brokers do not answer.
        """
        consumer, self.consumer = self.consumer, self._new_consumer()
        consumer.close()

    def close(self) -> None:
        """Close the consumer. A static member stays in its group, so that the next reader replaces it at once."""
        consumer, self.consumer, self._admin = self.consumer, None, None  # the client frees its threads with the last reference
        consumer.close()

    def _note_error(self, error: Any) -> None:
        self._errors.add(error)
        self._on_error(error)

    def _retried(self, what: str, request: Callable[[], R], seconds: float | None = None) -> R:
        """Return the result of a request. It is repeated while the cluster does not answer, by default for OPEN_SECONDS."""
        until = time.monotonic() + (OPEN_SECONDS if seconds is None else seconds)
        while True:
            try:
                result = request()
            except self.library.KafkaException as error:
                kafka_error = cause(error)
                transient = kafka_error.retriable() or kafka_error.name() in TRANSIENT
                self._admin.poll(0)  # or the client does not report the errors of its connections
                if self._errors.rejected is not None or not transient or self._is_stopped() or time.monotonic() > until:
                    raise self._errors.described(what, kafka_error) from None
                time.sleep(0.1)
            else:
                self._errors.clear()
                return result


def _digits(topic_id: Any) -> str | None:
    """Return the first digits of the id of a topic, or None if it has none. The client prints ids in Base64."""
    text = str(topic_id).translate(str.maketrans("-_", "+/")).rstrip("=")
    digits = b64decode(text + "=" * (-len(text) % 4)).hex()
    return digits[:BIRTHMARK_DIGITS] if digits.strip("0") else None
