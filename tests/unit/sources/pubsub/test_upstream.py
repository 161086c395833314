from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headrace import PubSub
from headrace.errors import UpstreamError
from headrace.triggers.upstream import load_upstream


def test_an_upstream_is_the_same_after_serialization() -> None:
    upstream = PubSub("orders", connection="shop", decode="text", lease=30, wait=2)
    again = load_upstream(*upstream.serialize())
    assert (again.stream_key(), again.serialize()) == ("pubsub:shop/orders", upstream.serialize())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"subscription": "projects/p/subscriptions/s"}, "Invalid subscription"),
        ({"connection": ""}, "Invalid connection"),
        ({"decode": "xml"}, "Invalid decode"),
        ({"lease": 9}, "Invalid lease"),
        ({"lease": 601}, "Invalid lease"),
        ({"wait": True}, "Invalid wait"),
        ({"wait": 21}, "Invalid wait"),  # longer ones do not end before a stream is left behind that closes
        ({"dead_letter_topic": "projects/p/topics/t"}, "Invalid dead_letter_topic"),
        ({"dead_letter_topic": ""}, "Invalid dead_letter_topic"),
        ({"dead_letter_topic": 5}, "Invalid dead_letter_topic"),
    ],
)
def test_an_invalid_argument_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason):
        PubSub(**({"subscription": "orders"} | arguments))


def test_the_dead_letter_topic_is_not_part_of_the_stream_key() -> None:
    upstream = PubSub("orders", dead_letter_topic="orders-dead")
    assert upstream.stream_key() == PubSub("orders").stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "topic orders-dead"
    assert load_upstream(*PubSub("orders").serialize()).dead_letter_target is None


def test_the_client_library_is_not_imported_before_the_stream_opens() -> None:
    code = "import sys; from headrace import PubSub; PubSub('orders').producer(); sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
