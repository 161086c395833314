from __future__ import annotations

from typing import Any

import pytest

from headrace import SQS
from headrace.errors import UpstreamError
from headrace.triggers.upstream import load_upstream


def test_an_upstream_is_restored_from_its_serialized_form() -> None:
    upstream = SQS("orders.fifo", connection="main", account="123456789012", decode=("sns", "s3"), visibility=60, wait=20, lanes=8)
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.stream_key() == upstream.stream_key() == "sqs:main/123456789012/orders.fifo"
    assert SQS("orders").stream_key() == "sqs:sqs/orders"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"queue": "https://sqs.eu-west-1.example/1/orders"}, "Invalid queue"),
        ({"queue": "x" * 81}, "Invalid queue"),
        ({"queue": ""}, "Invalid queue"),
        ({"connection": ""}, "Invalid connection"),
        ({"account": "12"}, "Invalid account"),
        ({"decode": "xml"}, "Invalid decode"),
        ({"visibility": 1}, "Invalid visibility"),
        ({"visibility": 43_201}, "Invalid visibility"),
        ({"visibility": True}, "Invalid visibility"),
        ({"wait": 0}, "Invalid wait"),
        ({"wait": 21}, "Invalid wait"),
        ({"lanes": 4}, "a standard queue has one lane"),
        ({"queue": "orders.fifo", "lanes": 0}, "Invalid lanes"),
        ({"dead_letter_queue": "https://sqs.eu-west-1.example/1/dead"}, "Invalid dead_letter_queue"),
        ({"dead_letter_queue": ""}, "Invalid dead_letter_queue"),
        ({"dead_letter_queue": 5}, "Invalid dead_letter_queue"),
        ({"dead_letter_queue": "orders"}, "'orders' is the queue that is read"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem):
        SQS(**({"queue": "orders"} | arguments))


def test_the_dead_letter_queue_is_not_part_of_the_stream_key() -> None:
    upstream = SQS("orders", dead_letter_queue="orders-dead.fifo")
    assert upstream.stream_key() == SQS("orders").stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "queue orders-dead.fifo"
    assert load_upstream(*SQS("orders").serialize()).dead_letter_target is None
