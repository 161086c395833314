from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import Pulsar
from headrace.errors import UpstreamError
from headrace.triggers.upstream import load_upstream

TIME = datetime(2026, 11, 28, 1, 2, 3, tzinfo=UTC)


def test_an_upstream_is_serialised_with_all_arguments() -> None:
    upstream = Pulsar(["orders", "shop/eu/b"], subscription="s", connection="main", start=TIME, decode="text", receiver_queue_size=9)
    again = load_upstream(*upstream.serialize())
    assert isinstance(again, Pulsar)
    assert again.serialize() == upstream.serialize()
    assert again.description() == upstream.description()
    assert again.stream_key() == "pulsar:main/s/persistent://public/default/orders,persistent://shop/eu/b"
    assert upstream.reader_names[0] == "subscription 's' of topic 'persistent://public/default/orders' of connection 'main'"
    assert upstream.event_type == "headrace.pulsar.message"


def test_the_dead_letter_topic_is_serialised_and_not_part_of_the_stream_key() -> None:
    upstream, other = Pulsar("orders", subscription="s", dead_letter_topic="dead"), Pulsar("orders", subscription="s")
    assert upstream.stream_key() == other.stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "topic persistent://public/default/dead"
    assert other.dead_letter_target is None
    assert "dead_letter_topic" not in other.serialize()[1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"topics": "a/b"}, "Invalid topic"),
        ({"topics": []}, "No topics"),
        ({"subscription": ""}, "Invalid subscription"),
        ({"subscription": "s" * 201}, "Invalid subscription"),
        ({"connection": ""}, "Invalid connection"),
        ({"start": "yesterday"}, "Invalid start"),
        ({"start": datetime(2026, 1, 1)}, "has no time zone"),
        ({"start": datetime(1969, 1, 1, tzinfo=UTC)}, "before 1970"),
        ({"decode": "avro"}, "Invalid decode"),
        ({"receiver_queue_size": 0}, "Invalid receiver_queue_size"),
        ({"dead_letter_topic": "orders"}, "is one of the topics that are read"),
    ],
)
def test_arguments_that_do_not_fit_are_rejection(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason):
        Pulsar(**({"topics": "orders", "subscription": "s"} | arguments))
