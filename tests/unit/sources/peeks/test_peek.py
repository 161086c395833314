"""Kinds that cannot be peeked are refused with the reason, and limits divide among lanes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.memory.upstream import Memory
from headrace.sources.objects.upstream import ObjectStore
from headrace.sources.peeks.peek import MODULES, REFUSALS, PeekRequest, in_turn, matching_lanes, peek_upstream
from headrace.sources.postgres.upstream import Postgres
from headrace.sources.pubsub.upstream import PubSub
from headrace.sources.queue.upstream import Queue
from headrace.sources.rabbitmq.upstream import RabbitMQ
from headrace.sources.sqs.upstream import SQS
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import Upstream, load_upstream


class OwnQueue(Queue):
    """An upstream of a user."""


@pytest.mark.parametrize(
    ("upstream", "why"),
    [
        (SQS("orders"), "counts as a delivery"),
        (PubSub("orders"), "counts as a delivery"),
        (RabbitMQ("orders"), "puts them back"),
        (Postgres("outbox", slot="shop"), "replication slot"),
        (ObjectStore("s3://bucket/orders"), "not implemented"),
        (Memory("orders"), "in the memory of the process"),
        (OwnQueue("orders.queue"), "not built in"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Upstream) else "",
)
async def test_a_kind_that_cannot_be_peeked_says_why_and_what_to_do(upstream: Upstream, why: str) -> None:
    with pytest.raises(UpstreamError, match=why) as caught:
        await peek_upstream(upstream, PeekRequest(1))
    assert upstream.stream_key() in str(caught.value)
    assert caught.value.hint


def test_each_named_class_exists() -> None:
    for classpath in (*MODULES, *REFUSALS):
        with pytest.raises(Exception, match=r"cannot be created|Invalid|cannot"):
            load_upstream(classpath, {"unknown": 1})


def test_lanes_are_named_with_or_without_their_birthmark() -> None:
    lanes = ["orders/0@1f0c", "orders/1@1f0c"]
    assert matching_lanes(lanes, PeekRequest(1)) == lanes
    for name in ("orders/1", "orders/1@1f0c"):
        assert matching_lanes(lanes, PeekRequest(1, name)) == lanes[1:]
    with pytest.raises(UpstreamError, match="There is no lane 'orders'"):
        matching_lanes(lanes, PeekRequest(1, "orders"))


def test_a_limit_is_divided_among_lanes_in_order() -> None:
    def lane(name: str, count: int) -> list[Any]:
        return [RawEvent(b"1", name, number) for number in range(count)]

    chosen = in_turn([lane("a", 9), [], lane("b", 1), lane("c", 3)], 6)
    assert [(raw.lane, raw.position) for raw in chosen] == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)]
    assert in_turn([], 5) == []
