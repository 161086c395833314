"""The declaration of a `Nats` upstream."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import Nats
from headrace.errors import UpstreamError
from headrace.triggers.upstream import load_upstream

STARTS = ["earliest", "latest", 7, datetime(2026, 11, 23, 12, tzinfo=UTC), "2026-11-23T12:00:00+00:00"]


@pytest.mark.parametrize("start", STARTS)
def test_it_can_be_serialised(start: Any) -> None:
    upstream = Nats(["b", "a.>"], stream="ORDERS", durable="shop", start=start, decode="text", max_ack_pending=10_000)
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.stream_key() == "nats:nats/ORDERS/shop/a.>,b"
    assert upstream.event_type == "headrace.nats.message"
    assert upstream.producer().upstream is upstream


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"stream": "a.b"}, "Invalid stream 'a.b'"),
        ({"stream": ""}, "Invalid stream ''"),
        ({"durable": "a b"}, "Invalid durable 'a b'"),
        ({"durable": "x" * 101}, "Invalid durable"),
        ({"connection": ""}, "Invalid connection ''"),
        ({"decode": "xml"}, "Invalid decode 'xml'"),
        ({"start": "soon"}, "Invalid start 'soon'"),
        ({"start": 0}, "Invalid start 0"),
        ({"start": True}, "Invalid start True"),
        ({"start": datetime(2026, 11, 23)}, "has no time zone"),
        ({"max_ack_pending": 0}, "Invalid max_ack_pending 0"),
        ({"max_ack_pending": True}, "Invalid max_ack_pending True"),
        ({"subjects": "a..b"}, "Invalid subject"),
        ({"subjects": 5}, "Invalid subjects 5"),
        ({"subjects": [["a"]]}, r"Invalid subject \['a'\]"),
        ({"dead_letter_subject": ""}, "Invalid subject ''"),
        ({"dead_letter_subject": 1}, "Invalid dead_letter_subject 1"),
        ({"dead_letter_subject": "dead.*"}, "Invalid dead_letter_subject 'dead.\\*'"),
        ({"dead_letter_subject": "dead.>"}, "Invalid dead_letter_subject 'dead.>'"),
        ({"dead_letter_subject": "$JS.API.dead"}, "belongs to JetStream"),
        ({"dead_letter_subject": "a"}, "'a' is one of the subjects that are read: 'a'"),
        ({"subjects": ["b", "a.>"], "dead_letter_subject": "a.dead"}, "'a.dead' is one of the subjects that are read: 'a.>'"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem):
        Nats(**{"subjects": "a", "stream": "ORDERS", "durable": "shop"} | arguments)


def test_the_dead_letter_subject_is_serialised_and_not_part_of_the_stream_key() -> None:
    upstream = Nats("orders.>", stream="ORDERS", durable="shop", dead_letter_subject="dead.orders")
    other = Nats("orders.>", stream="ORDERS", durable="shop")
    assert upstream.stream_key() == other.stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "subject dead.orders"
    assert other.dead_letter_target is None
    assert "dead_letter_subject" not in other.serialize()[1]


@pytest.mark.parametrize("subjects", [">", "*.dead"])
def test_a_filter_that_begins_with_a_wildcard_is_not_compared_with_the_dead_letter_subject(subjects: str) -> None:
    upstream = Nats(subjects, stream="ORDERS", durable="shop", dead_letter_subject="orders.dead")
    assert upstream.dead_letter_target == "subject orders.dead"
