from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import Kinesis
from headrace.errors import UpstreamError
from headrace.sources.kinesis.lanes import start_ms
from headrace.triggers.upstream import load_upstream

TIME = datetime(2026, 11, 28, 1, 2, 3, tzinfo=UTC)


def test_an_upstream_is_serialised_with_all_arguments() -> None:
    upstream = Kinesis("orders", group="shop", connection="main", table="t-1", table_connection="db", start=TIME, decode="text", interval=1)
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.stream_key() == upstream.stream_key() == "kinesis:main/shop/orders"
    assert isinstance(again, Kinesis)
    assert again.arguments().start == TIME
    assert upstream.reader_names == ("reader 'shop/orders' of table 't-1' of connection 'db'",)
    assert Kinesis("orders", group="shop").arguments().table_connection == "aws"


def test_the_dead_letter_stream_is_serialised_and_not_part_of_the_stream_key() -> None:
    upstream, other = Kinesis("orders", group="shop", dead_letter_stream="orders-dead"), Kinesis("orders", group="shop")
    assert upstream.stream_key() == other.stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "stream orders-dead"
    assert other.dead_letter_target is None
    assert "dead_letter_stream" not in other.serialize()[1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"stream": "arn:aws:kinesis:eu-west-1:1:stream/orders"}, "Invalid stream"),
        ({"stream": "a" * 129}, "Invalid stream"),
        ({"group": ""}, "Invalid group"),
        ({"group": "a/b"}, "Invalid group"),
        ({"table": "ab"}, "Invalid table"),
        ({"connection": ""}, "Invalid connection"),
        ({"table_connection": ""}, "Invalid table_connection"),
        ({"start": "yesterday"}, "Invalid start"),
        ({"start": 7}, "Invalid start"),
        ({"start": datetime(2026, 1, 1)}, "has no time zone"),
        ({"decode": "avro"}, "Invalid decode"),
        ({"interval": 0.1}, "Invalid interval"),
        ({"dead_letter_stream": ""}, "Invalid dead_letter_stream"),
        ({"dead_letter_stream": "orders"}, "'orders' is the stream that is read"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason) as caught:
        Kinesis(**({"stream": "orders", "group": "shop"} | arguments))
    assert caught.value.hint or "text" in str(caught.value)


def test_the_first_reading_begins_at_a_time_that_stays() -> None:
    assert start_ms("earliest", 5) is None
    assert start_ms("latest", 5) == 5
    assert start_ms(TIME, 5) == int(TIME.timestamp() * 1_000)
