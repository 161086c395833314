"""The offsets at which the partitions of an assignment are read, and what was deleted before it was read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog

from headrace.core.values.shards import WHOLE, Shard
from headrace.errors import StreamError
from headrace.sources.blocking_seek import BlockingSeek
from headrace.sources.kafka.broker_errors import described, described_exception
from headrace.sources.kafka.client import KafkaClient, OffsetRange
from headrace.sources.kafka.commits import CommitNote
from headrace.sources.kafka.group.truncation import truncated
from headrace.sources.kafka.partitions import NO_EPOCH, NO_OFFSET, Partition, Partitions, TopicPartitionKey, lane_name
from headrace.sources.kafka.start import Start
from headrace.triggers.stream_log import LaneMove, LogMark

log = structlog.get_logger(__name__)

MAX_REPORTED_GAPS: Final = 1_000
GROUP: Final = "group"
"""The name under which missing offsets of the group are reported."""
NO_OFFSETS: Final = (
    "The group has no committed offsets, and was read before: they were deleted, or have expired. Its partitions are read again from their "
    "first messages. Events that are stored are recognised."
)


class Commit(NamedTuple):
    """A committed offset, or a negative number, the epoch beside it, and the note."""

    offset: int
    epoch: int
    note: CommitNote

    def own(self, birthmark: str | None) -> tuple[int, int]:
        """Return the offset and the epoch, without those of an earlier topic of this name."""
        is_foreign = birthmark is not None and self.note.topic is not None and self.note.topic != birthmark
        return (NO_OFFSET, NO_EPOCH) if self.offset < 0 or is_foreign else (self.offset, self.epoch)


class Membership(NamedTuple):
    """What a member of the group has, and a reader outside of it has not: a planned seek, and the mark of the event log."""

    seek: BlockingSeek | None = None
    mark: LogMark | None = None


class Assignment:
    """Decides where the partitions of one stream begin. `gaps` has what the broker deleted before it was read, by lane.

    `start` counts only for the first reading of the group. A partition that is added later begins at its earliest message. With shards,
    the first one commits where the reading of all partitions begins. The others wait for it, because they do not know which partitions
    were added later. If the event log has receipts, the group was read before, and its offsets are missing. Then all partitions begin at
    their first messages.

    A partition that ends before its committed offset was cut by its broker. Its next messages have the offsets of lost ones, so a member
    refuses it. It notes that beside the committed offset, because the partition may have grown past it at the next opening. If it has
    grown before, the epoch that is committed beside the offset shows it.

    A planned seek is carried out by the member of the group to which a partition is assigned, before it reads the partition: the group
    fences all earlier readers then. What a member has read before, it does not read again, so that it moves no partition that it knows.
    """

    def __init__(
        self, client: KafkaClient, partitions: Partitions, start: Start, shard: Shard = WHOLE, member: Membership | None = None
    ) -> None:
        self._client = client
        self._partitions = partitions
        self._start = start
        self._shard = shard
        self._member = member
        self.gaps: dict[str, str] = {}
        self.notes: list[CommitNote] = []

    def begin(self, keys: Sequence[TopicPartitionKey]) -> dict[TopicPartitionKey, int]:
        """Add the partitions to those of the stream. Return the offset at which each is read.

        Raises:
            StreamError: The brokers do not answer, or a topic was deleted meanwhile.
            UpstreamError: A broker has lost messages that were read.
        """
        self.notes = []
        if not keys:
            return {}
        birthmarks = self._client.birthmarks(key.topic for key in keys)
        for key in keys:
            if key.topic not in birthmarks:
                raise StreamError(f"Topic {key.topic!r} was deleted while its partitions were assigned.")
        commits = self._commits(keys)
        seek = None if self._member is None else self._member.seek
        if seek is not None and self._move(seek, keys, birthmarks, commits):
            commits = self._commits(keys)
        offsets: dict[TopicPartitionKey, int] = {}
        unknown: list[TopicPartitionKey] = []
        for key in keys:
            known, birthmark = self._partitions.get(key), birthmarks[key.topic]
            if known is not None and known.birthmark == birthmark:
                offsets[key] = known.assign(*commits[key].own(birthmark))
            else:
                unknown.append(key)
        for partition in self._added(unknown, birthmarks, commits):
            self._partitions.add(partition)
            offsets[partition.key] = partition.delivered + 1
        self.notes = [commit.note for commit in commits.values()]
        return offsets

    def begin_group(self, keys: Sequence[TopicPartitionKey]) -> bool:
        """Return whether the first offsets of the group are decided. `keys` are the partitions of all shards.

        The first shard commits them if the group has no offset yet. A start at the earliest message needs none.

        Raises:
            StreamError: The brokers do not answer, or do not take the offsets.
        """
        is_decided = self._start == "earliest" or not keys or any(True for _ in self._partitions)
        if is_decided or any(commit.offset >= 0 for commit in self._client.committed(keys).values()):
            return True
        if self._shard.number > 0:
            return False
        birthmarks = self._client.birthmarks(key.topic for key in keys)
        starts = self._first_starts(keys, self._client.ranges(keys))
        self._commit({key: (starts[key], None) for key in keys}, birthmarks)
        return True

    def _move(
        self,
        seek: BlockingSeek,
        keys: Sequence[TopicPartitionKey],
        birthmarks: Mapping[str, str | None],
        commits: Mapping[TopicPartitionKey, Commit],
    ) -> bool:
        """Carry out the seek for those of the partitions that this reader does not know yet. Return whether an offset has changed."""
        lanes = {lane_name(key, birthmarks[key.topic]): key for key in keys if self._partitions.get(key) is None}
        due = {lane: key for lane, key in lanes.items() if lane in seek.lanes}
        if not due:
            return False
        ranges = self._client.ranges(list(due.values()))
        own = {lane: commits[key].own(birthmarks[key.topic])[0] for lane, key in due.items()}
        moves = {lane: LaneMove(own[lane] if own[lane] >= 0 else None, _within(seek.lanes[lane], ranges[key])) for lane, key in due.items()}
        positions = seek.begin(moves)
        if not positions:
            return False
        self._commit({due[lane]: (offset, commits[due[lane]].note.mark) for lane, offset in positions.items()}, birthmarks)
        seek.finish(positions)
        log.info("positions of Kafka moved", lanes=len(positions))
        return True

    def _commits(self, keys: Sequence[TopicPartitionKey]) -> dict[TopicPartitionKey, Commit]:
        rows = self._client.committed(keys)
        return {key: Commit(row.offset, row.epoch, CommitNote.parse(row.note)) for key, row in rows.items()}

    def _commit(
        self,
        offsets: Mapping[TopicPartitionKey, tuple[int, LogMark | None]],
        birthmarks: Mapping[str, str | None],
        ends: Mapping[TopicPartitionKey, int] = MappingProxyType({}),
    ) -> None:
        """Commit where partitions are read next, as the member of the group. Raises `StreamError` or `UpstreamError`."""
        notes = {key: CommitNote(topic=birthmarks.get(key.topic), end=ends.get(key)).text(mark) for key, (_, mark) in offsets.items()}
        rows = [self._client.library.TopicPartition(*key, offset, metadata=notes[key]) for key, (offset, _) in offsets.items()]
        try:
            answers = self._client.consumer.commit(offsets=rows, asynchronous=False)
        except self._client.library.KafkaException as failure:
            raise described_exception("The first offsets cannot be committed", failure) from None
        for answer in answers:
            if answer.error is not None:
                raise described(f"The first offset of {answer.topic}/{answer.partition} cannot be committed", answer.error)

    def _added(
        self,
        keys: Sequence[TopicPartitionKey],
        birthmarks: Mapping[str, str | None],
        commits: Mapping[TopicPartitionKey, Commit],
    ) -> list[Partition]:
        if not keys:
            return []
        ranges = self._client.ranges(keys)
        own = {key: commits[key].own(birthmarks[key.topic]) for key in keys}
        is_whole, is_new = self._shard == WHOLE, not any(True for _ in self._partitions)
        is_first = is_whole and is_new and all(commit.offset < 0 for commit in commits.values())
        starts = self._first_starts(keys, ranges) if is_first else {key: ranges[key].low for key in keys}
        if self._member is not None:
            self._check_ends(ranges, birthmarks, {key: (own[key][0], commits[key].note) for key in keys if own[key][0] >= 0})
        partitions = []
        for key in keys:
            (committed, epoch), (low, high) = own[key], ranges[key]
            begin = starts[key] if committed < 0 else min(max(committed, low), high)
            partition = Partition(key, birthmarks[key.topic], begin, committed)
            partition.end, partition.committed_epoch = high, epoch
            if 0 <= committed < low:
                partition.lost_before = low
                self._report(partition, committed, low - 1, "The broker deleted them before they were read: the retention is too short.")
            elif committed > high:
                self._report(partition, high, committed - 1, "They were read, and the broker has lost them.")
            if self._member is not None:
                partition.compare(low)
            partitions.append(partition)
        return partitions

    def _check_ends(
        self,
        ranges: Mapping[TopicPartitionKey, OffsetRange],
        birthmarks: Mapping[str, str | None],
        commits: Mapping[TopicPartitionKey, tuple[int, CommitNote]],
    ) -> None:
        """Refuse partitions that end before their committed offset, and those of which an earlier opening has noted it."""
        cut = {key: ranges[key].high for key, (offset, note) in commits.items() if note.end is None and offset > ranges[key].high}
        if cut:
            self._commit({key: (commits[key][0], commits[key][1].mark) for key in cut}, birthmarks, cut)
        noted = {key: note.end for key, (_, note) in commits.items() if note.end is not None}
        for key, end in (cut | noted).items():
            lane, last = lane_name(key, birthmarks[key.topic]), commits[key][0] - 1
            verb = "ends" if key in cut else "ended"
            ends = f"{verb} at offset {end - 1}" if end else ("is empty" if key in cut else "was empty")
            log.error("messages lost at the broker", lane=lane, first=end, last=last)
            raise truncated(lane, key, ends, last, end)

    def _report(self, partition: Partition, first: int, last: int, reason: str) -> None:
        log.error("messages lost at the broker", lane=partition.lane, first=first, last=last, reason=reason)
        if len(self.gaps) < MAX_REPORTED_GAPS:
            self.gaps[partition.lane] = f"Messages {first} to {last} are missing. {reason}"

    def _first_starts(
        self, keys: Sequence[TopicPartitionKey], ranges: Mapping[TopicPartitionKey, OffsetRange]
    ) -> dict[TopicPartitionKey, int]:
        """Return where a group without offsets begins: at its start, or at the first messages if it was read before."""
        mark = None if self._member is None else self._member.mark
        if mark is None or mark.receipts == 0 or self._start == "earliest":
            return self._starts(keys, ranges)
        log.error("offsets of a group of Kafka missing", partitions=len(keys), receipts=mark.receipts)
        self.gaps[GROUP] = NO_OFFSETS
        return {key: ranges[key].low for key in keys}

    def _starts(self, keys: Sequence[TopicPartitionKey], ranges: Mapping[TopicPartitionKey, OffsetRange]) -> dict[TopicPartitionKey, int]:
        """Return the offsets at which the first reading of the group begins."""
        start = self._start
        if start == "latest":
            return {key: ranges[key].high for key in keys}
        if isinstance(start, datetime):
            at = self._client.offsets_at(keys, start)
            return {key: at[key] if at[key] >= 0 else ranges[key].high for key in keys}
        if isinstance(start, Mapping):
            return {key: _within(start.get(key.topic, {}).get(key.number, 0), ranges[key]) for key in keys}
        return {key: ranges[key].low for key in keys}


def recreated(partitions: Collection[Partition], birthmarks: Mapping[str, str | None]) -> set[str]:
    """Return the topics that were deleted and created again, by their present birthmarks. A missing topic is not among them."""
    return {
        partition.key.topic
        for partition in partitions
        if partition.key.topic in birthmarks and birthmarks[partition.key.topic] != partition.birthmark
    }


def _within(offset: int, range: OffsetRange) -> int:
    return min(max(offset, range.low), range.high)
