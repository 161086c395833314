"""A seek of an upstream without positions that can move: the error says why, and what to do instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import SQS, Directory, Http, Kafka, Kinesis, ObjectStore, Postgres, Pulsar, Queue, RabbitMQ, RabbitMQStreams, ServiceBus
from headrace.errors import UpstreamError
from headrace.sources.memory.upstream import Memory
from headrace.sources.peeks import peek
from headrace.sources.seeks import seek
from headrace.sources.seeks.target import parse_target
from headrace.triggers.upstream import Upstream


class Own(Kafka):
    """An upstream of a user."""


UPSTREAMS: list[Upstream] = [
    SQS("orders"),
    Kinesis("orders", group="shop"),
    Pulsar("orders", subscription="shop"),
    RabbitMQ("orders"),
    ServiceBus("orders"),
    ServiceBus("orders", "billing", sessions=2),
    RabbitMQStreams("orders", group="shop"),
    Postgres("outbox", slot="shop"),
    ObjectStore("s3://landing/orders"),
    Directory(Path("in")),
    Queue("orders.queue"),
    Http("orders", verify="none"),
    Memory("orders"),
    Own("orders", group="shop"),
]


@pytest.mark.parametrize("upstream", UPSTREAMS, ids=lambda one: type(one).__name__)
async def test_an_upstream_that_cannot_seek_says_what_to_do(upstream: Any) -> None:
    with pytest.raises(UpstreamError, match="cannot seek: ") as caught:
        await seek.preview_seek(upstream, parse_target("latest"))
    assert caught.value.hint


def test_each_built_in_kind_can_seek_or_says_why_not() -> None:
    assert seek.MODULES.keys() | seek.REFUSALS.keys() == peek.MODULES.keys() | peek.REFUSALS.keys()


async def test_an_upstream_that_a_function_decodes_cannot_seek() -> None:
    upstream = Kafka("orders", group="shop", decode="shop.decoding:order")
    with pytest.raises(UpstreamError, match="a function decodes its values"):
        await seek.preview_seek(upstream, parse_target("latest"))
