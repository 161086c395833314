from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import ProjectError
from headrace.project import Project
from headrace.sources.kafka.upstream import Kafka
from headrace.triggers.base import BaseEventTrigger


class Reader(BaseEventTrigger):
    """A trigger in Python on a stream."""

    def __init__(self, *, key: str) -> None:
        super().__init__()
        self._key = key

    def shared_stream_key(self) -> str:
        return self._key

    def serialize(self) -> tuple[str, dict[str, str]]:
        return f"{__name__}.Reader", {"key": self._key}


def orders(shards: int) -> Kafka:
    return Kafka("orders", group="shop", shards=shards)


def watch(project: Project, shards: int) -> None:
    project.watch("other", orders(shards))


def trigger(project: Project, shards: int) -> None:
    project.trigger("other", Reader(key=orders(shards).stream_key()))


@pytest.mark.parametrize(("declare", "shards"), [(watch, 2), (watch, 1), (trigger, 4), (trigger, 1)])
def test_two_numbers_of_shards_of_one_stream_are_rejected(declare: Callable[[Project, int], None], shards: int) -> None:
    project = Project("shop")
    project.watch("orders", orders(4))
    declare(project, shards)
    with pytest.raises(ProjectError, match=r"read in 4 shards by 'orders#0-of-4', and in [12] by 'other"):
        project.declaration()


def test_a_trigger_in_python_can_read_each_shard() -> None:
    project = Project("shop")
    project.watch("orders", orders(2))
    for number, part in enumerate(orders(2).split()):
        project.trigger(f"large.{number}", Reader(key=part.stream_key()))
    streams = [trigger.stream for trigger in project.declaration().triggers]
    assert streams == ["kafka:kafka/shop/orders#0-of-2", "kafka:kafka/shop/orders#1-of-2"] * 2


@pytest.mark.parametrize("other", [None, "elsewhere"])
def test_two_dead_letter_topics_of_one_stream_are_rejected(other: str | None) -> None:
    project = Project("shop")
    project.watch("first", Kafka("orders", group="shop", dead_letter_topic="dead"))
    project.watch("same", Kafka("orders", group="shop", dead_letter_topic="dead"))
    project.watch("another.group", Kafka("orders", group="another", dead_letter_topic=other))
    project.declaration()
    project.watch("other", Kafka("orders", group="shop", dead_letter_topic=other))
    with pytest.raises(ProjectError, match=r"are copied to topic dead by 'first', and to (nowhere|topic elsewhere) by 'other'"):
        project.declaration()
