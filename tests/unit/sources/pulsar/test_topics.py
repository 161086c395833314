from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.pulsar.topics import admin_path, check_topics, full_name, partition_names


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("shop/eu/orders", "persistent://shop/eu/orders"),
        ("persistent://shop/eu/orders", "persistent://shop/eu/orders"),
        ("persistent://shop/eu/orders-partition-3", "persistent://shop/eu/orders-partition-3"),
    ],
)
def test_a_name_gets_the_parts_that_it_lacks(name: str, full: str) -> None:
    assert full_name("topic", name) == full


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a/b/c/d", "shop//orders", "persistent://shop/eu/", "sh op/eu/orders", "a,b", "non-persistent://a/b/c", 7, "x" * 300],
)
def test_a_name_that_is_invalid_is_rejection(name: Any) -> None:
    with pytest.raises(UpstreamError, match="Invalid topic"):
        full_name("topic", name)


def test_topics_are_sorted_and_named_once() -> None:
    assert check_topics(["b", "a", "persistent://public/default/b"]) == ("persistent://public/default/a", "persistent://public/default/b")
    with pytest.raises(UpstreamError, match="No topics"):
        check_topics([])
    with pytest.raises(UpstreamError, match="at most"):
        check_topics([f"t{number}" for number in range(1_001)])


def test_a_topic_without_partitions_is_one_lane() -> None:
    assert partition_names("t", 0) == ["t"]
    assert partition_names("t", 2) == ["t-partition-0", "t-partition-1"]


def test_the_path_of_a_topic_is_quoted() -> None:
    assert admin_path("persistent://shop/eu/o r%d") == "persistent/shop/eu/o%20r%25d"
