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
        ({"decode": "avro"}, "Invalid decode"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem):
        Kafka(**({"topics": "orders", "group": "shop"} | arguments))
