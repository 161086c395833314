"""The upstream `RabbitMQ`, without a connection."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.rabbitmq.upstream import RabbitMQ
from headrace.triggers.upstream import load_upstream


def test_the_queues_identify_the_stream_in_any_order() -> None:
    assert RabbitMQ(["b", "a", "b"]).stream_key() == RabbitMQ(["a", "b"]).stream_key() == "rabbitmq:rabbitmq/a,b"
    assert RabbitMQ("a", connection="other").stream_key() == "rabbitmq:other/a"


def test_it_is_serialised_with_all_arguments() -> None:
    upstream = RabbitMQ(["a", "b"], connection="c", decode="text", prefetch=7, dead_letters=True, consumer_timeout=60)
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.event_type == "headrace.rabbitmq.message"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"queues": ""}, "queue"),
        ({"queues": []}, "number of queues"),
        ({"queues": ["a", 3]}, "queue"),
        ({"queues": "é" * 128}, "queue"),
        ({"queues": 5}, "queues 5"),
        ({"queues": None}, "queues None"),
        ({"queues": "a\ud800"}, "queue"),
        ({"dead_letter_queue": "a\ud800"}, "dead_letter_queue"),
        ({"connection": ""}, "connection"),
        ({"decode": "xml"}, "decode"),
        ({"prefetch": 0}, "prefetch"),
        ({"prefetch": 65_536}, "prefetch"),
        ({"prefetch": True}, "prefetch"),
        ({"dead_letters": "no"}, "dead_letters"),
        ({"consumer_timeout": 0.5}, "consumer_timeout"),
        ({"dead_letter_queue": ""}, "dead_letter_queue"),
        ({"dead_letter_queue": ["b"]}, "dead_letter_queue"),
        ({"dead_letter_queue": "é" * 128}, "dead_letter_queue"),
    ],
)
def test_an_invalid_argument_is_named_with_a_hint(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(UpstreamError, match=f"^Invalid {name}"):
        RabbitMQ(**({"queues": "a"} | arguments))


def test_the_dead_letter_queue_is_serialised_and_not_part_of_the_stream_key() -> None:
    upstream = RabbitMQ("orders", dead_letter_queue="orders.dead")
    other = RabbitMQ("orders")
    assert upstream.stream_key() == other.stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "queue orders.dead"
    assert other.dead_letter_target is None
    assert "dead_letter_queue" not in other.serialize()[1]


def test_a_queue_that_is_read_cannot_be_the_dead_letter_queue() -> None:
    with pytest.raises(UpstreamError, match="'b' is one of the queues that are read") as error:
        RabbitMQ(["a", "b"], dead_letter_queue="b")
    assert error.value.hint == "Name another queue."


def test_a_watch_needs_no_client_library() -> None:
    code = "import sys; from headrace import RabbitMQ; RabbitMQ('a').producer(); sys.exit('aiormq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
