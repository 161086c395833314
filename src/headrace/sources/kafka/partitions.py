"""The partitions of one stream: their delivered, answered and committed offsets. Pure: no client and no clock.

Invariants:
- An offset of a partition is delivered once in a stream, whatever the client reads again after a rebalance.
- The committed offset never passes the *floor*, the first failed message.
- The partition that a topic with the same name has after it was deleted and created again is another lane.

An *offset* is the number of a message. The committed offset is the next one to read, as Kafka counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1


class TopicPartitionKey(NamedTuple):
    """The topic and the number of a partition."""

    topic: str
    number: int


class EpochRun(NamedTuple):
    """Delivered messages, from the first offset to the last, that leaders of one epoch have stored."""

    first: int
    last: int
    epoch: int


class Partition:
    """One partition as a lane. The thread of the client changes it, the event loop reads single fields of it."""

    __slots__ = (
        "answered",
        "birthmark",
        "committed",
        "committed_epoch",
        "committing",
        "delivered",
        "earlier_epochs",
        "end",
        "epoch",
        "epoch_start",
        "floor",
        "is_assigned",
        "key",
        "lane",
        "lost_before",
        "read_before",
        "read_end",
        "unread_from",
    )

    def __init__(self, key: TopicPartitionKey, birthmark: str | None, start: int, committed: int) -> None:
        self.key = key
        self.birthmark = birthmark
        self.lane = lane_name(key, birthmark)
        self.delivered = start - 1
        """The last delivered offset, or the one before the start."""
        self.answered = start
        """The offset after the last answered message."""
        self.committed = committed
        """The committed offset at the broker, or NO_OFFSET."""
        self.committed_epoch = NO_EPOCH
        """The epoch that is committed beside it, or NO_EPOCH."""
        self.epoch: int | None = None
        """The epoch of the last delivered message, or None if it is not known."""
        self.epoch_start = start
        """The offset of the first message of this epoch."""
        self.earlier_epochs: list[EpochRun] = []
        """The epochs of the messages before it that may not be committed yet."""
        self.committing = NO_OFFSET
        """The offset of the commit in flight, or NO_OFFSET."""
        self.floor: int | None = None
        """The offset of the first failed message."""
        self.end = start
        """The offset after the last message of the partition, as of the last look."""
        self.read_end = start
        """The offset up to which the client has read. It passes markers of transactions, which are not delivered."""
        self.unread_from: int | None = None
        """The first offset that the broker had deleted before it was read, while the stream is open."""
        self.read_before: EpochRun | None = None
        """The message before the start, with the epoch that it had when it was read. The client reads it again."""
        self.lost_before = 0
        """The offset before which messages are missing at the broker that were not read."""
        self.is_assigned = True

    @property
    def is_drained(self) -> bool:
        """Whether all delivered messages are answered."""
        return self.answered > self.delivered

    @property
    def target(self) -> int:
        """The offset to commit."""
        if self.floor is not None:
            return min(self.floor, self.answered)
        return max(self.answered, self.read_end) if self.is_drained else self.answered

    @property
    def needs_commit(self) -> bool:
        """Whether the committed offset is behind what was answered, or there is none: the group then begins where it began."""
        return self.is_assigned and self.target > self.committed

    @property
    def committed_position(self) -> int | None:
        """The last position that is acknowledged or lost at the broker, or None if there is none."""
        committed = max(self.committed, self.lost_before)
        return committed - 1 if committed > 0 else None

    @property
    def end_position(self) -> int | None:
        """The last position of the lane, or None if it is empty."""
        end = max(self.end, self.delivered + 1)
        return end - 1 if end > 0 else None

    @property
    def next_offset(self) -> int:
        """The offset up to which everything was read."""
        return max(self.delivered + 1, self.read_end)

    @property
    def unread(self) -> int:
        """The number of offsets after the last one read. Some may have no message: markers of transactions, and compacted messages."""
        return max(0, self.end - self.next_offset)

    def deliver(self, offset: int, epoch: int | None) -> bool:
        """Record that a message is delivered, which a leader of this epoch has stored. Return False if it was delivered before."""
        if offset <= self.delivered:
            return False
        if epoch != self.epoch:
            if self.epoch is not None:
                self.earlier_epochs.append(EpochRun(self.epoch_start, self.delivered, self.epoch))
            self.epoch, self.epoch_start = epoch, offset
        self.delivered = offset
        return True

    def compare(self, low: int) -> None:
        """Begin with the message before the start, if its epoch is known, to compare it. `low` is the first offset of the partition."""
        last, epoch = self.delivered, self.epoch_before(self.delivered + 1)
        if epoch != NO_EPOCH and last >= low:
            self.read_before = EpochRun(last, last, epoch)

    def is_truncated(self, offset: int, epoch: int | None) -> bool:
        """Return whether this message has replaced one that was read: a leader without it has stored another at its offset."""
        before = self.read_before
        return before is not None and offset == before.last and epoch is not None and epoch != before.epoch

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the message before an offset, or NO_EPOCH if it is not known, as that of the marker of a transaction."""
        if self.epoch is not None and self.epoch_start < offset <= self.delivered + 1:
            return self.epoch
        for run in reversed(self.earlier_epochs):
            if run.first < offset <= run.last + 1:
                return run.epoch
        return self.committed_epoch if offset == self.committed else NO_EPOCH

    def answer(self, last: int, first_failed: int | None) -> None:
        """Record that all messages up to `last` are answered, and which failed first."""
        self.answered = max(self.answered, last + 1)
        if first_failed is not None and first_failed >= max(self.committed, 0):
            self.floor = first_failed if self.floor is None else min(self.floor, first_failed)

    def reached_end(self, offset: int) -> None:
        """Record that the client has read all messages before `offset`, and that there are no more yet."""
        self.read_end = max(self.read_end, offset)
        self.end = max(self.end, offset)

    def confirm(self, offset: int) -> None:
        """Record that the broker has stored the committed offset."""
        if offset > self.committed:
            self.committed_epoch = self.epoch_before(offset)
            self.committed = offset
            while self.earlier_epochs and self.earlier_epochs[0].last < offset - 1:
                del self.earlier_epochs[0]

    def assign(self, committed: int, epoch: int = NO_EPOCH) -> int:
        """Record that the partition is assigned again, with this committed offset and epoch. Return the offset to read from.

        A floor that another reader has passed is dropped.
        """
        self.is_assigned = True
        self.committed, self.committed_epoch = committed, epoch
        if self.floor is not None and committed > self.floor:
            self.floor = None
        return max(committed, self.delivered + 1, 0)


class Partitions:
    """The partitions of one stream, by topic and number, and by lane."""

    def __init__(self) -> None:
        self._current: dict[TopicPartitionKey, Partition] = {}
        self._lanes: dict[str, Partition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._current.values()))

    def get(self, key: TopicPartitionKey) -> Partition | None:
        """Return the partition that now has this topic and number."""
        return self._current.get(key)

    def client_start(self, key: TopicPartitionKey, offset: int) -> tuple[int, int]:
        """Return the offset at which the client begins to read a partition from `offset`, and the epoch before it, or NO_EPOCH."""
        partition = self._current[key]
        before = partition.read_before
        is_compared = before is not None and before.last == offset - 1
        return offset - is_compared, partition.epoch_before(offset)

    def of_lane(self, lane: str) -> Partition | None:
        """Return the partition of a lane, also one that a newer partition has replaced."""
        return self._lanes.get(lane)

    def add(self, partition: Partition) -> None:
        """Add a partition, in place of an older one of the same name."""
        old = self._current.get(partition.key)
        if old is not None:
            old.is_assigned = False
        self._current[partition.key] = partition
        self._lanes[partition.lane] = partition

    @property
    def assigned(self) -> list[Partition]:
        """The partitions that are assigned to this reader."""
        return [partition for partition in self._current.values() if partition.is_assigned]


def lane_name(key: TopicPartitionKey, birthmark: str | None) -> str:
    """Return the lane of a partition. The birthmark is the id of its topic, which a topic that is created again does not have."""
    name = f"{key.topic}/{key.number}"
    return name if birthmark is None else f"{name}@{birthmark}"


def partitions_of(counts: Mapping[str, int | None], topics: Sequence[str]) -> list[TopicPartitionKey]:
    """Return all partitions of the topics with these names or patterns, by the numbers of partitions of all topics."""
    names = {topic for topic in topics if not topic.startswith("^")}
    patterns = [re.compile(topic) for topic in topics if topic.startswith("^")]
    return [
        TopicPartitionKey(name, number)
        for name, count in sorted(counts.items())
        if name in names or any(pattern.search(name) for pattern in patterns)
        for number in range(count or 0)
    ]
