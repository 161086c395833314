from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import Kafka
from headrace.errors import UpstreamError
from headrace.triggers.upstream import load_upstream


@pytest.mark.parametrize(
    "start", ["earliest", "latest", datetime(2026, 1, 2, tzinfo=UTC), {"orders": {0: 5, 3: 2**63 - 1}}, {"orders": {}}]
)
def test_an_upstream_is_restored_from_its_serialized_form(start: Any) -> None:
    upstream = Kafka(["orders", "^refunds\\..*"], connection="main", group="shop", start=start, decode="text")
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.stream_key() == upstream.stream_key() == "kafka:main/shop/^refunds\\..*,orders"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"topics": []}, "No topics"),
        ({"topics": "a b"}, "Invalid topic 'a b'"),
        ({"topics": "^("}, "Invalid pattern"),
        ({"topics": "x" * 250}, "Invalid topic"),
        ({"group": ""}, "Invalid group"),
        ({"start": "yesterday"}, "Invalid start"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
        ({"start": {"orders": {0: -5}}}, "not an offset"),
        ({"start": {"orders": 5}}, "Invalid start"),
        ({"start": {"orders": {0: 1.9}}}, "Invalid start of orders/0: 1.9 is not an offset"),
        ({"start": {"orders": {0: True}}}, "Invalid start of orders/0: True is not an offset"),
        ({"start": {"orders": {0: "7"}}}, "Invalid start of orders/0: '7' is not an offset"),
        ({"start": {"orders": {0.5: 7}}}, "Invalid start of orders/0.5: it is not the number of a partition"),
        ({"start": {"orders": {True: 7}}}, "it is not the number of a partition"),
        ({"start": {"orders": {-1: 7}}}, "Invalid start of orders/-1"),
        ({"start": {5: {0: 7}}}, "Invalid start"),
        ({"start": {"order": {0: 12}}}, "Invalid start: topic 'order' is not read"),
        ({"topics": 5}, "Invalid topics 5"),
        ({"topics": None}, "Invalid topics None"),
        ({"topics": {"orders": 1}}, "Invalid topics"),
        ({"topics": b"orders"}, "Invalid topics b'orders'"),
        ({"topics": [["orders"]]}, r"Invalid topic \['orders'\]"),
        ({"decode": "avro"}, "Invalid decode"),
        ({"dead_letter_topic": "a b"}, "Invalid topic 'a b'"),
        ({"dead_letter_topic": ""}, "Invalid topic ''"),
        ({"dead_letter_topic": 5}, "Invalid dead_letter_topic 5"),
        ({"dead_letter_topic": "^dead"}, "is not the name of one topic"),
        ({"dead_letter_topic": "orders"}, "is one of the topics that are read: 'orders'"),
        ({"topics": ["x", "^orders.*"], "dead_letter_topic": "orders.dead"}, r"is one of the topics that are read: '\^orders\.\*'"),
        ({"shards": 0}, "Invalid shards 0"),
        ({"shards": 257}, "Invalid shards 257"),
        ({"shards": "4"}, "Invalid shards '4'"),
        ({"shards": 2.0}, "Invalid shards 2.0"),
        ({"shards": True}, "Invalid shards True"),
        ({"shards": 4, "shard": 4}, "Invalid shard 4"),
        ({"shards": 4, "shard": -1}, "Invalid shard -1"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem):
        Kafka(**({"topics": "orders", "group": "shop"} | arguments))


def test_offsets_of_topics_that_a_pattern_matches_are_a_start() -> None:
    upstream = Kafka("^orders\\..*", group="shop", start={"orders.eu": {0: 12}})
    assert load_upstream(*upstream.serialize()).serialize() == upstream.serialize()


@pytest.mark.parametrize(
    "pattern",
    [
        r"^orders\d+$",
        r"^orders\D",
        r"^orders\Z",
        r"^\Aorders",
        r"^orders\b",
        r"^orders\B",
        r"^(?:orders)1$",
        r"^(?i)orders",
        r"^orders(?!2)",
        r"^(a)\1",
        r"^orders[\w]+",
        r"^orders[\d.]+",
        r"^orders[[:digit:]]+",
    ],
)
def test_a_pattern_that_the_client_reads_otherwise_is_refused(pattern: str) -> None:
    """The client matches POSIX extended regular expressions, and the project was checked with those of Python."""
    with pytest.raises(UpstreamError, match="Invalid pattern of topics") as error:
        Kafka(pattern, group="shop")
    assert "[0-9]" in str(error.value.hint)


@pytest.mark.parametrize(
    "pattern", [r"^orders\..*", "^orders[0-9]+$", r"^a\\d", r"^t\w+\W\s\S", "^(eu|us)[.]x{2,3}", r"^[^a-z\.]+", "^[]a]", "^[^]a]", "^."]
)
def test_a_pattern_that_means_the_same_to_the_client_is_taken(pattern: str) -> None:
    assert Kafka(pattern, group="shop").serialize()[1]["topics"] == [pattern]


def test_an_upstream_is_split_into_its_shards() -> None:
    upstream = Kafka("orders", group="shop", start="latest", shards=3)
    parts = upstream.split()
    assert [part.stream_key() for part in parts] == [f"kafka:kafka/shop/orders#{number}-of-3" for number in range(3)]
    assert {part.whole_stream_key() for part in parts} == {upstream.stream_key()}
    assert {part.source for part in parts} == {upstream.source} == {"headrace:kafka:kafka/shop/orders"}
    again = [load_upstream(*part.serialize()) for part in parts]
    assert [one.serialize() for one in again] == [part.serialize() for part in parts]
    assert [one.stream_key() for one in again] == [part.stream_key() for part in parts]
    assert [part.split() for part in parts] == [(part,) for part in parts]
    assert [part.producer().upstream for part in parts] == list(parts)


def test_an_upstream_of_one_shard_is_its_only_part() -> None:
    upstream = Kafka("orders", group="shop", shards=1)
    assert upstream.split() == (upstream,)
    assert upstream.serialize() == Kafka("orders", group="shop").serialize()
    assert not {"shards", "shard"} & upstream.serialize()[1].keys()


def test_all_shards_together_have_no_producer() -> None:
    with pytest.raises(UpstreamError, match="is read in 4 shards") as error:
        Kafka("orders", group="shop", shards=4).producer()
    assert "split()" in str(error.value.hint)


def test_the_dead_letter_topic_is_not_part_of_the_stream_key_and_each_shard_has_it() -> None:
    upstream = Kafka("orders", group="shop", dead_letter_topic="orders.dead", shards=2)
    assert upstream.stream_key() == Kafka("orders", group="shop").stream_key()
    assert [part.dead_letter_target for part in upstream.split()] == ["topic orders.dead"] * 2
    assert load_upstream(*upstream.serialize()).dead_letter_target == "topic orders.dead"
    assert Kafka("orders", group="shop").dead_letter_target is None
