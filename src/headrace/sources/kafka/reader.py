"""The thread that owns the consumer of one stream: it polls, delivers, commits, and follows rebalances.

The client is used from this thread only. It polls briefly and takes what has arrived, so that a commit never waits for a long poll.
While the stream takes no more messages, the thread does not poll. If that lasts, it pauses the partitions and goes on polling, so that the
reader stays a member of its group.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import structlog

from headrace.core.values.shards import WHOLE
from headrace.errors import HeadraceError, StreamError, UpstreamFenced
from headrace.sources.decoding import DECODERS
from headrace.sources.kafka.broker_errors import AWAY, described, described_exception, is_fenced, rejects_credentials
from headrace.sources.kafka.buffer import Buffer
from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.commits import CommitRequest, Commits
from headrace.sources.kafka.description import Description, Listener
from headrace.sources.kafka.group.assignment import Assignment, Membership, recreated
from headrace.sources.kafka.group.pause import Pause
from headrace.sources.kafka.group.shard_partitions import ShardPartitions
from headrace.sources.kafka.group.stall_detector import StallDetector
from headrace.sources.kafka.group.truncation import truncated, truncation
from headrace.sources.kafka.message import KafkaMessage, open_decoder, raw_event
from headrace.sources.kafka.partitions import Partition, Partitions, TopicPartitionKey
from headrace.sources.kafka.settings import uses_new_protocol
from headrace.sources.progress_note import newest_marks
from headrace.triggers.stream_log import LogMark

if TYPE_CHECKING:
    from headrace.sources.schema_registry.registry import SchemaRegistry

COMMIT_TICK_SECONDS: Final = 0.001
BUSY_TICK_SECONDS: Final = 0.004
IDLE_TICK_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 0.5
TOPIC_CHECK_SECONDS: Final = 10.0
FETCH_MESSAGES: Final = 500
ENDED: Final = "The reading of Kafka has ended."
WAITS: Final = "The first shard has not committed yet where the reading of the group begins."

log = structlog.get_logger(__name__)


class KafkaReader(threading.Thread):
    """Reads the topics until `stop`. `problems` names what cannot be read now."""

    def __init__(self, description: Description, listener: Listener) -> None:
        super().__init__(name="headrace kafka", daemon=True)
        self.partitions = Partitions()
        self.problems: dict[str, str] = {}
        self.failure: HeadraceError | None = None
        self._description = description
        self._listener = listener
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._reads = True
        self._commits = Commits(self.partitions, self._committed)
        self._buffer = Buffer()
        self._look_at = self._check_topics_at = 0.0
        self._pause = Pause(self.partitions)
        self._has_lost_session = self._is_fenced_by_itself = False
        self._decode = DECODERS["json"]
        self._registry: SchemaRegistry | None = None
        self._client: KafkaClient
        self._assignment: Assignment
        self._stalls: StallDetector
        self._shard: ShardPartitions | None = None

    # Called by the event loop

    def commit(self, request: CommitRequest) -> None:
        """Commit soon. `request.done` is called in any case."""
        self._commits.add(request)
        self._wake.set()
        if not self.is_alive():
            self._commits.reject_requests(self.failure or StreamError(ENDED))

    def took(self, messages: int, size: int) -> None:
        """Record that the stream has taken delivered messages of this total size."""
        self._buffer.take(messages, size)
        self._wake.set()

    @property
    def unread(self) -> int | None:
        """The number of messages that the stream has not taken, here and at the brokers, or None if no partition is assigned."""
        assigned = self.partitions.assigned
        return None if not assigned else self._buffer.messages + sum(partition.unread for partition in assigned)

    def renote(self, mark: LogMark) -> None:
        """Write the mark beside the committed offsets that have the mark of another event log."""
        self._commits.renote(mark)
        self._wake.set()

    def stop_reading(self) -> None:
        """Deliver no more messages. Commits are still possible."""
        self._reads = False
        self._wake.set()

    def stop(self) -> None:
        """Leave the cluster and end the thread."""
        self._stopped.set()
        self._wake.set()

    # The thread

    def run(self) -> None:
        """Read until `stop`, or until an error ends the stream."""
        try:
            self._open()
            while not self._stopped.is_set():
                self._turn()
        except Exception as error:
            self._fail(described_exception("Kafka cannot be read", error))
        finally:
            self._close()

    def _open(self) -> None:
        description = self._description
        self._decode, self._registry = open_decoder(description.decode, description.registry)
        self._client = KafkaClient(
            description.consumer,
            description.connect,
            on_error=self._on_client_error,
            on_commit=self._commits.answered,
            is_stopped=self._stopped.is_set,
        )
        shard, member = description.shard, Membership(description.seek, description.mark)
        self._assignment = Assignment(self._client, self.partitions, description.start, shard, member)
        if shard != WHOLE:
            self._shard = ShardPartitions(self._client, self._assignment, self.partitions, description.topics, shard)
        self._client.check_topics(description.topics)
        now, waits = time.monotonic(), not uses_new_protocol(description.consumer)
        self._stalls = StallDetector(self._client, self.partitions, description.topics, waits_for_group=waits, now=now)
        self._subscribe()
        self._check_topics_at = now + TOPIC_CHECK_SECONDS

    def _subscribe(self) -> None:
        topics = list(self._description.topics)
        self._client.consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def _turn(self) -> None:
        if self.failure is not None:
            self._commits.reject_requests(self.failure)
            self._wake.wait(IDLE_TICK_SECONDS)
            self._wake.clear()
            return
        if self._is_fenced_by_itself:
            self._replace_consumer()
        if self._commits.are_due:
            self._commits.commit_requests(self._client)
        self._commits.check(time.monotonic())
        if not (self._reads and self._buffer.has_room):
            self._wait_for_room()
            return
        self._pause.end(self._client)
        self._wake.clear()
        if self._commits.are_due:
            return
        consumer = self._client.consumer
        first = consumer.poll(self._tick())
        if first is not None:
            self._receive([first, *consumer.consume(FETCH_MESSAGES, 0)])
        self._keep_up()

    def _replace_consumer(self) -> None:
        """Join the group with another consumer. Its assignment continues each lane, as that of the same consumer would."""
        log.warning("consumer of Kafka replaced", group=self._description.consumer["group.id"])
        self._has_lost_session = self._is_fenced_by_itself = False
        self._client.replace_consumer()
        self._subscribe()

    def _tick(self) -> float:
        if self._commits.is_in_flight:
            return COMMIT_TICK_SECONDS  # its answer does not end a poll
        is_busy = any(not partition.is_drained for partition in self.partitions)
        return BUSY_TICK_SECONDS if is_busy else IDLE_TICK_SECONDS

    def _wait_for_room(self) -> None:
        self._stalls.pause()
        self._pause.begin_if_due(self._client, time.monotonic(), immediately=not self._reads)
        if self._pause.is_active or self._commits.is_in_flight:
            # A message that was fetched before may still arrive: it is delivered beyond the limit.
            first = self._client.consumer.poll(0)
            if first is not None:
                self._receive([first])
            self._keep_up()
        self._wake.wait(COMMIT_TICK_SECONDS if self._commits.is_in_flight else IDLE_TICK_SECONDS)
        self._wake.clear()

    def _keep_up(self) -> None:
        """Do what is due from time to time: look at the ends, check the topics, commit what needs no answer."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            arrived = self._client.arrived_ends([one.key for one in self.partitions.assigned]) if self._pause.is_active else {}
            for partition in self.partitions.assigned:
                partition.end = max(partition.end, arrived.get(partition.key, 0), self._client.known_end(partition.key) or 0)
            self._check_stalls(now)
        if now >= self._check_topics_at:
            self._check_topics_at = now + TOPIC_CHECK_SECONDS
            self._check_topics()
            self._check_shard()
        self._commits.commit_others(self._client)

    # Messages

    def _receive(self, messages: Sequence[Any]) -> None:
        key: TopicPartitionKey | None = None
        partition: Partition | None = None
        ready: list[KafkaMessage] = []
        size = 0
        for message in messages:
            if message.error() is not None:
                self._on_message_error(message)
                continue
            topic, number, offset = message.topic(), message.partition(), message.offset()
            if key is None or number != key.number or topic != key.topic:
                key = TopicPartitionKey(topic, number)
                partition = self.partitions.get(key)
            if partition is None or not partition.is_assigned:
                continue
            epoch = message.leader_epoch()
            if not partition.deliver(offset, epoch):
                if partition.is_truncated(offset, epoch):
                    self._fail(truncated(partition.lane, partition.key, "was truncated", offset))
                    return  # later messages have the offsets of lost ones
                continue
            event = raw_event(message, self._decode, partition, offset)
            size += len(event.data)
            ready.append(event)
        if ready and self._reads:
            self.problems.pop("brokers", None)
            self._buffer.add(len(ready), size)
            self._listener.deliver(ready)

    def _on_message_error(self, message: Any) -> None:
        error = message.error()
        name = error.name()
        topic, number = message.topic(), message.partition()
        partition = None if topic is None or number is None else self.partitions.get(TopicPartitionKey(topic, number))
        if name == "_PARTITION_EOF":
            if partition is not None and partition.is_assigned:
                partition.reached_end(message.offset())
                self._commits.check_soon()
        elif partition is not None and (cut := truncation(error, partition)) is not None:
            self._fail(cut)
        elif name == "_AUTO_OFFSET_RESET":
            if partition is not None:
                partition.unread_from = partition.delivered + 1
                self.problems[partition.lane] = f"The broker deleted message {partition.unread_from} before it was read."
                self._end_if_overtaken()
        elif name == "UNKNOWN_TOPIC_OR_PART":
            self._check_topics_at = 0.0
            self.problems[topic or "topics"] = f"The topic does not exist now: {error.str()}."
        elif is_fenced(error) or name == "GROUP_AUTHORIZATION_FAILED":
            self._fail(described("The group cannot be read", error))
        else:
            log.warning("message of Kafka not read", topic=topic, partition=number, error=error.str())
            self.problems[topic or "brokers"] = str(described("It cannot be read", error))

    def _on_client_error(self, error: Any) -> None:
        if is_fenced(error) or rejects_credentials(error):
            # The stream opens again with the connection as it is then: credentials may have been changed.
            self._fail(described("The group cannot be read", error))
            return
        if error.name() not in AWAY or "brokers" not in self.problems:  # once for an outage, not for each attempt to connect
            log.warning("error of Kafka's client", error=error.str())
        self.problems["brokers"] = str(described("It cannot be read", error))

    def _end_if_overtaken(self) -> None:
        """End the stream once all that was read of an overtaken lane is answered. It reports the gap when it opens again."""
        for partition in self.partitions.assigned:
            if partition.unread_from is not None and partition.is_drained:
                unread = f"lane {partition.lane} at message {partition.unread_from}"
                self._fail(StreamError(f"The retention of the broker has overtaken {unread}."))

    # Rebalances. The client calls these from within `poll`.

    def _on_assign(self, consumer: Any, assigned: Sequence[Any]) -> None:
        try:
            if self._shard is None:
                offsets = self._assignment.begin([TopicPartitionKey(one.topic, one.partition) for one in assigned])
            else:
                offsets = self._shard.join()
                self._check_topics_at = 0.0 if self._shard.waits else self._check_topics_at
        except Exception as error:
            self._fail(described_exception("The assigned partitions cannot be read", error))
            offsets = {}
        starts = [(key, *self.partitions.client_start(key, offset)) for key, offset in offsets.items()]
        targets = [self._client.library.TopicPartition(*key, offset, leader_epoch=epoch) for key, offset, epoch in starts]
        if uses_new_protocol(self._description.consumer):
            consumer.incremental_assign(targets)
        else:
            consumer.assign(targets)
        self._pause.apply(consumer, targets)
        self._has_lost_session = False
        self._commits.rebalance(begins=False)
        self._stalls.joined()
        if self.failure is None:
            self.problems.update(self._assignment.gaps)
            self._listener.begin(newest_marks(note.mark for note in self._assignment.notes))
            self._commits.check_soon()
        log.info("partitions of Kafka assigned", partitions=len(targets))

    def _on_revoke(self, consumer: Any, revoked: Sequence[Any]) -> None:
        """Commit all answers, then fence the partitions: later answers are not committed."""
        del consumer
        self._commits.commit_requests(self._client)
        self._fence(revoked)

    def _on_lost(self, consumer: Any, lost: Sequence[Any]) -> None:
        """Fence the partitions. Another reader may have them already, so that nothing is committed."""
        del consumer
        self._has_lost_session = True
        self._fence(lost)
        log.warning("partitions of Kafka lost", partitions=len(lost))

    def _fence(self, partitions: Sequence[Any]) -> None:
        self._commits.rebalance(begins=True)
        self._stalls.join(time.monotonic())
        if self._shard is not None:
            self._shard.leave()
            return
        for one in partitions:
            partition = self.partitions.get(TopicPartitionKey(one.topic, one.partition))
            if partition is not None:
                partition.is_assigned = False

    def _check_topics(self) -> None:
        """End the stream if a topic was deleted and created again. A rebalance shows the same, but not in each case."""
        try:
            birthmarks = self._client.birthmarks((one.key.topic for one in self.partitions.assigned), once=True)
        except HeadraceError as error:
            self.problems["brokers"] = str(error)
            return
        changed = recreated(self.partitions.assigned, birthmarks)
        if changed:
            self._fail(StreamError(f"Deleted and created again: topic {', '.join(sorted(changed))}."))
        for name in ("brokers", *birthmarks) if birthmarks else ():  # without a partition, nothing was requested
            self.problems.pop(name, None)

    def _check_stalls(self, now: float) -> None:
        """End the stream if the consumer is silent."""
        try:
            if (stalled := self._stalls.check(now)) is not None:
                self._fail(stalled)
        except HeadraceError as error:
            self.problems["brokers"] = str(error)

    def _check_shard(self) -> None:
        """Join the group again if the partitions of the shard are others now."""
        if self._shard is None or self.failure is not None:
            return
        try:
            if self._shard.has_changed():
                self._subscribe()
        except HeadraceError as error:
            self.problems["brokers"] = str(error)
        if self._shard.waits:
            self._check_topics_at = time.monotonic() + LOOK_SECONDS
            self.problems["start"] = WAITS
        else:
            self.problems.pop("start", None)

    def _fail(self, error: HeadraceError) -> None:
        if isinstance(error, UpstreamFenced) and self._has_lost_session:
            # The client drops its member id when its session ends. If it sends a heartbeat then, the broker takes it for another consumer.
            self._is_fenced_by_itself = True
        elif self.failure is None:
            self.failure = error
            self._listener.end(error)

    def _committed(self, error: HeadraceError | None) -> None:
        """React to the result of a commit."""
        if isinstance(error, UpstreamFenced):
            self._fail(error)
        elif error is None:
            self._end_if_overtaken()

    def _close(self) -> None:
        try:
            if hasattr(self, "_client"):
                if self.failure is None:
                    self._commits.commit_requests(self._client)
                    self._commits.finish(self._client, COMMIT_TICK_SECONDS)
                self._client.close()
        except Exception as error:
            log.warning("consumer of Kafka not closed", error=str(error))
        finally:
            if self._registry is not None:
                self._registry.close()
            self.failure = self.failure or StreamError(ENDED)
            self._commits.reject_requests(self.failure)
