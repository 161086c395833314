from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace import SQS, Directory, Kafka, Kinesis, Nats, Postgres, Pulsar, Queue, RabbitMQ, RedisStreams, ServiceBus
from headrace.errors import ProjectError
from headrace.project import Project
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.upstream import Upstream


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


@pytest.mark.parametrize(
    ("first", "other", "argument"),
    [
        (Kafka("orders", group="shop"), Kafka("orders", group="shop", decode="text"), "decode"),
        (Kafka("orders", group="shop"), Kafka("orders", group="shop", start="latest"), "start"),
        (Kafka("orders", group="shop", dead_letter_topic="dead"), Kafka("orders", group="shop"), "dead_letter_topic"),
        (
            Kafka("orders", group="shop", dead_letter_topic="dead"),
            Kafka("orders", group="shop", dead_letter_topic="b"),
            "dead_letter_topic",
        ),
        (SQS("orders", dead_letter_queue="dead"), SQS("orders"), "dead_letter_queue"),
        (ServiceBus("orders"), ServiceBus("orders", sessions=2), "sessions"),
        (ServiceBus("orders", "billing"), ServiceBus("orders", "billing", lock=60), "lock"),
        (Directory("inbox", keep_done=3), Directory("inbox"), "keep_done"),
        (Queue("orders.queue", lanes=4), Queue("orders.queue"), "lanes"),
        (SQS("orders"), SQS("orders", decode=("sns", "json")), "decode"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_two_declarations_of_one_stream_that_differ_are_rejected(first: Upstream, other: Upstream, argument: str) -> None:
    project = Project("shop")
    project.watch("first", first)
    project.watch("same", first)
    project.declaration()
    project.watch("other", other)
    with pytest.raises(ProjectError, match=rf"declared with {argument}=.* by 'first', and with {argument}=.* by 'other'"):
        project.declaration()


@pytest.mark.parametrize(
    ("one", "two", "reader"),
    [
        (Kafka("orders", group="shop"), Kafka(["orders", "payments"], group="shop"), "consumer group 'shop'"),
        (Kafka("orders", group="shop", shards=2), Kafka("payments", group="shop", shards=2), "consumer group 'shop'"),
        (
            Kinesis("orders", group="shop"),
            Kinesis("orders", group="shop", connection="other", table_connection="aws"),
            "reader 'shop/orders' of table 'headrace-kinesis'",
        ),
        (Nats("a", stream="S", durable="d"), Nats(["a", "b"], stream="S", durable="d"), "durable consumer 'd' of 'a'"),
        (Pulsar("a", subscription="s"), Pulsar(["a", "b"], subscription="s"), "subscription 's' of topic 'persistent://public/default/a'"),
        (Postgres("outbox", slot="shop"), Postgres("others", slot="shop"), "replication slot 'shop'"),
        (RedisStreams("a", group="shop"), RedisStreams(["a", "b"], group="shop"), "consumer group 'shop' of 'a'"),
        (RabbitMQ("a"), RabbitMQ(["a", "b"]), "queue 'a'"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_two_upstreams_with_one_reader_at_the_broker_are_rejected(one: Upstream, two: Upstream, reader: str) -> None:
    project = Project("shop")
    project.watch("first", one)
    project.declaration()
    project.watch("other", two)
    with pytest.raises(ProjectError, match=rf"The {reader} .*would read for two upstreams"):
        project.declaration()


def test_upstreams_with_different_readers_at_the_broker_are_accepted() -> None:
    project = Project("shop")
    for number, upstream in enumerate(
        [
            Kafka("orders", group="shop", shards=2),
            Kafka("orders", group="other"),
            Kafka("orders", group="shop", connection="elsewhere"),
            Nats("a", stream="S", durable="d"),
            Nats("b", stream="S", durable="d"),
            RedisStreams("a", group="shop"),
            RedisStreams("b", group="shop"),
            RabbitMQ("a"),
            RabbitMQ("b"),
        ]
    ):
        project.watch(f"watch{number}", upstream)
    project.declaration()
