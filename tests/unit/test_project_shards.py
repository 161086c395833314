"""Watches on an upstream with shards are declared once for each shard."""

from __future__ import annotations

import pytest

from headrace.errors import ProjectError
from headrace.project import Project
from headrace.sources.kafka.upstream import Kafka
from headrace.triggers.watch import WatchTrigger


def declared(shards: int) -> Project:
    project = Project("shop")
    upstream = Kafka("orders", group="shop", shards=shards)
    project.watch("orders.paid", upstream, match={"status": ["paid"]}, queue="fast", priority=3)
    project.watch("orders.all", upstream, id="$.id")
    project.pipeline(on="orders.paid", name="paid")(lambda orders: orders)
    return project


def test_a_watch_is_declared_for_each_shard() -> None:
    declaration = declared(3).declaration()
    assert [(one.name, one.stream) for one in declaration.triggers] == [
        (f"{name}#{number}-of-3", f"kafka:kafka/shop/orders#{number}-of-3") for name in ("orders.paid", "orders.all") for number in range(3)
    ]
    assert {(one.queue, one.priority) for one in declaration.triggers} == {("fast", 3), ("default", 0)}
    for one in declaration.triggers:
        trigger = WatchTrigger(**one.kwargs)
        assert trigger.shared_stream_key() == one.stream
        assert trigger.envelope.source == "headrace:kafka:kafka/shop/orders"


def test_the_project_has_the_watch_itself() -> None:
    project = declared(3)
    assert list(project.triggers) == ["orders.paid", "orders.all"]
    assert {trigger.shared_stream_key() for trigger in project.triggers.values()} == {"kafka:kafka/shop/orders"}
    assert project.declaration().pipelines[0].on == ["orders.paid"]


def test_one_shard_changes_nothing() -> None:
    project = Project("shop")
    upstream = Kafka("orders", group="shop")
    project.watch("orders.paid", upstream, match={"status": ["paid"]}, queue="fast", priority=3)
    project.watch("orders.all", upstream, id="$.id")
    plain = project.declaration().triggers
    assert declared(1).declaration().triggers == plain
    assert "shards" not in plain[0].kwargs["upstream"]["kwargs"]


def test_a_default_id_is_that_of_the_whole_stream() -> None:
    envelopes = {WatchTrigger(**one.kwargs).envelope for shards in (2, 4) for one in declared(shards).declaration().triggers[:shards]}
    (envelope,) = envelopes
    fields = envelope.extract({"status": "paid"}, stream="kafka:kafka/shop/orders#1-of-2", lane="orders/3@ab", position=7)
    (plain,) = {WatchTrigger(**one.kwargs).envelope for one in declared(1).declaration().triggers[:1]}
    assert fields == plain.extract({"status": "paid"}, stream="kafka:kafka/shop/orders", lane="orders/3@ab", position=7)


def test_a_name_that_is_too_long_with_its_shard_is_rejected() -> None:
    project = Project("shop")
    project.watch("x" * 194, Kafka("orders", group="shop", shards=4))
    with pytest.raises(ProjectError, match="are too long"):
        project.declaration()
