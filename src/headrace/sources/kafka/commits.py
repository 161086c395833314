"""Commits of the offsets of one stream: one call for all lanes that wait. Called from the thread of the client, except `add`.

A commit is synchronous. While the cluster does not answer, the client ends it after the session timeout.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from headrace.errors import HeadraceError, StreamError
from headrace.sources.kafka.broker_errors import described, described_exception
from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.partitions import Partition, Partitions
from headrace.sources.progress_note import ProgressNote
from headrace.triggers.stream_log import LogMark

RETRY_SECONDS: Final = 1.0
REBALANCE_SECONDS: Final = 10.0


class CommitNote(ProgressNote, omit_defaults=True, kw_only=True):
    """What a commit leaves beside its offset. `topic` is the id of the topic. Commits of other programs have another text or none."""

    topic: str | None = None


class Answers(NamedTuple):
    """The answers to a batch of one lane: its last offset, and its first failed one, or None."""

    partition: Partition
    last: int
    first_failed: int | None


class CommitRequest(NamedTuple):
    """Answers to commit together. `done` gets one error or None for each."""

    answers: Sequence[Answers]
    mark: LogMark | None
    done: Callable[[list[HeadraceError | None]], None]


class Commits:
    """The requests to commit, and the commits that need no request: positions after the last message, and notes."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._requests: deque[CommitRequest] = deque()
        self._marks: deque[LogMark] = deque()
        self._mark: LogMark | None = None
        self._rebalances_until = 0.0
        self._check_at = 0.0
        self._may_be_behind = False

    def add(self, request: CommitRequest) -> None:
        """Add a request. May be called from any thread."""
        self._requests.append(request)

    def renote(self, mark: LogMark) -> None:
        """Write the mark beside all committed offsets soon. May be called from any thread."""
        self._marks.append(mark)
        self._may_be_behind = True

    @property
    def are_due(self) -> bool:
        """Whether requests wait. During a rebalance they wait for its end, up to REBALANCE_SECONDS."""
        return bool(self._requests) and time.monotonic() >= self._rebalances_until

    def rebalance(self, begins: bool) -> None:
        """Record that a rebalance begins or ends."""
        self._rebalances_until = time.monotonic() + REBALANCE_SECONDS if begins else 0.0

    def check_soon(self) -> None:
        """Record that a lane may need a commit without a request."""
        self._may_be_behind = True

    def commit_requests(self, client: KafkaClient) -> HeadraceError | None:
        """Commit the answers of all requests that wait, with one call. Return its error, or None."""
        requests = [self._requests.popleft() for _ in range(len(self._requests))]
        self._mark = next((request.mark for request in reversed(requests) if request.mark is not None), self._mark)
        for request in requests:
            for answers in request.answers:
                answers.partition.answer(answers.last, answers.first_failed)
        error = self._commit(client, [one for one in self._partitions.assigned if one.needs_commit])
        for request in requests:
            request.done([error or _unassigned(answers.partition) for answers in request.answers])
        return error

    def commit_others(self, client: KafkaClient) -> HeadraceError | None:
        """Commit what needs no request: markers of transactions at the end of a lane, the first start, notes. Return the error, or None."""
        now = time.monotonic()
        if not self._may_be_behind or now < self._check_at:
            return None
        self._may_be_behind = False
        partitions = [one for one in self._partitions.assigned if one.needs_commit]
        while self._marks:
            self._mark = self._marks.popleft()
            partitions = [one for one in self._partitions.assigned if one.needs_commit or one.committed >= 0]
        error = self._commit(client, partitions)
        if error is not None:
            self._may_be_behind, self._check_at = True, now + RETRY_SECONDS
        return error

    def reject_requests(self, error: HeadraceError) -> None:
        """End all requests that wait with this error."""
        while self._requests:
            request = self._requests.popleft()
            request.done([error] * len(request.answers))

    def _commit(self, client: KafkaClient, partitions: Sequence[Partition]) -> HeadraceError | None:
        """Commit the targets of partitions. Return the error, or None."""
        if not partitions:
            return None
        offsets = [max(partition.target, partition.committed) for partition in partitions]
        rows = [self._row(client.library, partition, offset) for partition, offset in zip(partitions, offsets, strict=True)]
        try:
            answers = client.consumer.commit(offsets=rows, asynchronous=False)
        except client.library.KafkaException as failure:
            return described_exception("The offsets cannot be committed", failure)
        for answer in answers:
            if answer.error is not None:
                return described(f"The offset of {answer.topic}/{answer.partition} cannot be committed", answer.error)
        for partition, offset in zip(partitions, offsets, strict=True):
            partition.confirm(offset)
        return None

    def _row(self, library: Any, partition: Partition, offset: int) -> Any:
        note = CommitNote(topic=partition.birthmark).text(self._mark)
        return library.TopicPartition(partition.key.topic, partition.key.number, offset, metadata=note)


def _unassigned(partition: Partition) -> HeadraceError | None:
    if partition.is_assigned:
        return None
    return StreamError(f"Lane {partition.lane} is not assigned to this reader now, so that its offset cannot be committed.")
