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
    """Records the commits that it is asked for."""

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []
        self.consumer = SimpleNamespace(commit=lambda offsets, asynchronous: self.sent.append(offsets))
        self.library = SimpleNamespace(TopicPartition=self._row, KafkaException=KeyError)

    @staticmethod
    def _row(topic: str, partition: int, offset: int, metadata: str) -> SimpleNamespace:
        return SimpleNamespace(topic=topic, partition=partition, offset=offset, metadata=metadata, error=None)


class Asked:
    """Commits of one partition, and what came of them."""

    def __init__(self) -> None:
        self.partition = Partition(TopicPartitionKey("orders", 0), None, 0, NO_OFFSET)
        self.partition.delivered = 99
        partitions = Partitions()
        partitions.add(self.partition)
        self.client = Client()
        self.ends: list[HeadraceError | None] = []
        self.done: list[HeadraceError | None] = []
        self.commits = Commits(partitions, self.ends.append)

    def ask(self, last: int) -> list[Any]:
        """Ask for a commit up to this offset, and return what was sent."""
        self.commits.add(CommitRequest([Answers(self.partition, last, None)], None, self.done.extend))
        self.commits.commit_requests(cast(KafkaClient, self.client))
        return self.client.sent[-1]


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_commit_ends_with_its_answer(asked: Asked) -> None:
    rows = asked.ask(9)
    assert asked.commits.is_in_flight
    assert asked.done == []
    asked.commits.answered(None, rows)
    assert asked.done == [None]
    assert asked.partition.committed == 10


def test_a_commit_without_an_answer_ends_and_its_late_answer_confirms_no_later_one(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.kafka.commits.time", SimpleNamespace(monotonic=lambda: 100.0))
    first = asked.ask(9)
    asked.commits.check(100.0 + COMMIT_SECONDS - 1)
    assert asked.done == []
    asked.commits.check(100.0 + COMMIT_SECONDS)
    assert isinstance(asked.done[0], StreamError)
    assert [asked.commits.is_in_flight] == [False]
    second = asked.ask(19)
    asked.commits.answered(None, first)
    assert asked.commits.is_in_flight
    assert asked.partition.committed == NO_OFFSET
    asked.commits.answered(None, second)
    assert asked.done[1:] == [None]
    assert asked.partition.committed == 20


def test_what_is_in_flight_is_committed_again_before_the_partitions_are_given_up(asked: Asked) -> None:
    asked.ask(9)
    rows = asked.ask(19)
    assert [row.offset for row in rows] == [20]
    asked.commits.answered(None, rows)
    assert asked.done == [None, None]


def test_the_end_of_the_reading_ends_what_is_in_flight(asked: Asked) -> None:
    asked.ask(9)
    error = StreamError("over")
    asked.commits.reject_requests(error)
    assert asked.done == [error]
