"""Commits end, also without an answer of the client, and an answer of an earlier commit ends no later one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.errors import HeadraceError, StreamError
from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.commits import COMMIT_SECONDS, Answers, CommitRequest, Commits
from headrace.sources.kafka.partitions import NO_OFFSET, Partition, Partitions, TopicPartitionKey


class Client:
    """Records the commits that are requested."""

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []
        self.consumer = SimpleNamespace(commit=lambda offsets, asynchronous: self.sent.append(offsets))
        self.library = SimpleNamespace(TopicPartition=self._row, KafkaException=KeyError)

    @staticmethod
    def _row(topic: str, partition: int, offset: int, metadata: str, leader_epoch: int) -> SimpleNamespace:
        return SimpleNamespace(topic=topic, partition=partition, offset=offset, metadata=metadata, leader_epoch=leader_epoch, error=None)


class Scene:
    """Commits of one partition, and their results."""

    def __init__(self) -> None:
        self.partition = Partition(TopicPartitionKey("orders", 0), None, 0, NO_OFFSET)
        self.partition.delivered = 99
        partitions = Partitions()
        partitions.add(self.partition)
        self.client = Client()
        self.ends: list[HeadraceError | None] = []
        self.done: list[HeadraceError | None] = []
        self.commits = Commits(partitions, self.ends.append)

    def commit(self, last: int) -> list[Any]:
        """Request a commit up to this offset, and return the rows that were sent."""
        self.commits.add(CommitRequest([Answers(self.partition, last, None)], None, self.done.extend))
        self.commits.commit_requests(cast(KafkaClient, self.client))
        return self.client.sent[-1]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_commit_ends_with_its_answer(scene: Scene) -> None:
    rows = scene.commit(9)
    assert scene.commits.is_in_flight
    assert scene.done == []
    scene.commits.answered(None, rows)
    assert scene.done == [None]
    assert scene.partition.committed == 10


def test_a_commit_without_an_answer_ends_and_its_late_answer_confirms_no_later_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kafka.commits.time", SimpleNamespace(monotonic=lambda: 100.0))
    first = scene.commit(9)
    scene.commits.check(100.0 + COMMIT_SECONDS - 1)
    assert scene.done == []
    scene.commits.check(100.0 + COMMIT_SECONDS)
    assert isinstance(scene.done[0], StreamError)
    assert [scene.commits.is_in_flight] == [False]
    second = scene.commit(19)
    scene.commits.answered(None, first)
    assert scene.commits.is_in_flight
    assert scene.partition.committed == NO_OFFSET
    scene.commits.answered(None, second)
    assert scene.done[1:] == [None]
    assert scene.partition.committed == 20


def test_what_is_in_flight_is_committed_again_before_the_partitions_are_given_up(scene: Scene) -> None:
    scene.commit(9)
    rows = scene.commit(19)
    assert [row.offset for row in rows] == [20]
    scene.commits.answered(None, rows)
    assert scene.done == [None, None]


def test_a_commit_that_was_sent_before_its_partition_was_revoked_succeeds(scene: Scene) -> None:
    rows = scene.commit(9)
    scene.partition.is_assigned = False
    scene.commits.answered(None, rows)
    assert scene.done == [None]


def test_answers_for_a_revoked_partition_are_not_committed(scene: Scene) -> None:
    scene.partition.is_assigned = False
    scene.commits.add(CommitRequest([Answers(scene.partition, 9, None)], None, scene.done.extend))
    scene.commits.commit_requests(cast(KafkaClient, scene.client))
    assert scene.client.sent == []
    (error,) = scene.done
    assert "is not assigned to this reader now" in str(error)


def test_the_end_of_the_reading_ends_what_is_in_flight(scene: Scene) -> None:
    scene.commit(9)
    error = StreamError("over")
    scene.commits.reject_requests(error)
    assert scene.done == [error]
