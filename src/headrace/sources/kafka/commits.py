"""Commits of the offsets of one stream: one call for all lanes that wait. Called from the thread of the client, except `add`.

A commit is asynchronous, and ends after COMMIT_SECONDS: a synchronous one of the client waits without an end while the network is silent.
Its answer arrives while the consumer polls. One commit is in flight at a time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace.errors import HeadraceError, StreamError
from headrace.sources.kafka.broker_errors import AWAY_HINT, described, described_exception
from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.partitions import Partition, Partitions
from headrace.sources.progress_note import ProgressNote
from headrace.triggers.stream_log import LogMark

COMMIT_SECONDS: Final = 10.0
CLOSE_COMMIT_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 1.0
REBALANCE_SECONDS: Final = 10.0
WHAT: Final = "The offsets cannot be committed"


class CommitNote(ProgressNote, omit_defaults=True, kw_only=True):
    """What a commit leaves beside its offset. Commits of other programs have another text or none.

    `topic` is the id of the topic. `end` is the end offset of the partition when it was found before the committed offset.
    """

    topic: str | None = None
    end: int | None = None


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


class _Flight(NamedTuple):
    """A commit in flight: the requests that it answers, and the offsets of its partitions. It ends at `until`.

    `unassigned` are the partitions of its requests that were not assigned when it was sent. One that is revoked later is committed.
    """

    requests: Sequence[CommitRequest]
    offsets: Mapping[Partition, int]
    unassigned: Collection[Partition]
    until: float


class Commits:
    """The requests to commit, and the commits that need no request: positions after the last message, and notes.

    `on_end` gets the error of each commit, or None.
    """

    def __init__(self, partitions: Partitions, on_end: Callable[[HeadraceError | None], None]) -> None:
        self._partitions = partitions
        self._on_end = on_end
        self._flight: _Flight | None = None
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
    def is_in_flight(self) -> bool:
        """Whether a commit is not answered yet."""
        return self._flight is not None

    @property
    def are_due(self) -> bool:
        """Whether requests wait and can be sent. During a rebalance they wait for its end, up to REBALANCE_SECONDS."""
        return bool(self._requests) and self._flight is None and time.monotonic() >= self._rebalances_until

    def rebalance(self, begins: bool) -> None:
        """Record that a rebalance begins or ends."""
        self._rebalances_until = time.monotonic() + REBALANCE_SECONDS if begins else 0.0

    def check_soon(self) -> None:
        """Record that a lane may need a commit without a request."""
        self._may_be_behind = True

    def commit_requests(self, client: KafkaClient) -> None:
        """Commit the answers of all requests that wait, and what is in flight already, with one call."""
        requests = [*(self._flight.requests if self._flight is not None else ()), *self._requests]
        self._requests.clear()
        self._mark = next((request.mark for request in reversed(requests) if request.mark is not None), self._mark)
        for request in requests:
            for answers in request.answers:
                answers.partition.answer(answers.last, answers.first_failed)
        self._send(client, requests, [one for one in self._partitions.assigned if one.needs_commit])

    def commit_others(self, client: KafkaClient) -> None:
        """Commit what needs no request: markers of transactions at the end of a lane, the first start, notes."""
        now = time.monotonic()
        if not self._may_be_behind or now < self._check_at or self._flight is not None:
            return
        self._may_be_behind = False
        partitions = [one for one in self._partitions.assigned if one.needs_commit]
        while self._marks:
            self._mark = self._marks.popleft()
            partitions = [one for one in self._partitions.assigned if one.needs_commit or one.committed >= 0]
        self._send(client, (), partitions)

    def answered(self, error: Any, rows: Sequence[Any]) -> None:
        """End the commit in flight with the client's answer. That of an earlier one, which has ended already, changes nothing."""
        flight = self._flight
        offsets = {} if flight is None else {tuple(one.key): offset for one, offset in flight.offsets.items()}
        if flight is None or (rows and {(row.topic, row.partition): row.offset for row in rows} != offsets):
            return
        failed = next((row for row in rows if row.error is not None), None)
        if failed is not None:
            self._end(described(f"The offset of {failed.topic}/{failed.partition} cannot be committed", failed.error))
        else:
            self._end(None if error is None else described(WHAT, error))

    def check(self, now: float) -> None:
        """End the commit in flight if the cluster does not answer."""
        if self._flight is not None and now >= self._flight.until:
            self._end(StreamError(f"{WHAT}: the cluster has not answered for {COMMIT_SECONDS:g} s.", hint=AWAY_HINT))

    def finish(self, client: KafkaClient, tick: float) -> None:
        """Poll, for `tick` seconds at a time, until no commit is in flight. Messages that arrive meanwhile are dropped."""
        until = time.monotonic() + CLOSE_COMMIT_SECONDS
        while self.is_in_flight and time.monotonic() < until:
            client.consumer.poll(tick)

    def reject_requests(self, error: HeadraceError) -> None:
        """End all requests that wait or are in flight with this error."""
        flight, self._flight = self._flight, None
        requests = [*(flight.requests if flight is not None else ()), *self._requests]
        self._requests.clear()
        for request in requests:
            request.done([error] * len(request.answers))

    def _send(self, client: KafkaClient, requests: Sequence[CommitRequest], partitions: Sequence[Partition]) -> None:
        """Commit the targets of partitions."""
        offsets = {partition: max(partition.target, partition.committed) for partition in partitions}
        unassigned = {each.partition for request in requests for each in request.answers if not each.partition.is_assigned}
        self._flight = _Flight(requests, offsets, unassigned, time.monotonic() + COMMIT_SECONDS)
        if not offsets:
            self._end(None)
            return
        rows = [self._row(client.library, partition, offset) for partition, offset in offsets.items()]
        try:
            client.consumer.commit(offsets=rows, asynchronous=True)
        except client.library.KafkaException as failure:
            self._end(described_exception(WHAT, failure))

    def _end(self, error: HeadraceError | None) -> None:
        flight, self._flight = self._flight, None
        if flight is None:
            return
        if error is None:
            for partition, offset in flight.offsets.items():
                partition.confirm(offset)
        elif not flight.requests:
            self._may_be_behind, self._check_at = True, time.monotonic() + RETRY_SECONDS
        for request in flight.requests:
            request.done(
                [error or (_unassigned(each.partition) if each.partition in flight.unassigned else None) for each in request.answers]
            )
        if flight.offsets or flight.requests:
            self._on_end(error)

    def _row(self, library: Any, partition: Partition, offset: int) -> Any:
        note = CommitNote(topic=partition.birthmark).text(self._mark)
        epoch = partition.epoch_before(offset)
        return library.TopicPartition(partition.key.topic, partition.key.number, offset, metadata=note, leader_epoch=epoch)


def _unassigned(partition: Partition) -> HeadraceError:
    return StreamError(f"Lane {partition.lane} is not assigned to this reader now, so that its offset cannot be committed.")
