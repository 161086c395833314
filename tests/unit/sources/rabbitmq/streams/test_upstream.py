"""The upstream `RabbitMQStreams`, without a connection."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.rabbitmq.streams.upstream import RabbitMQStreams
from headrace.triggers.upstream import load_upstream


def test_the_key_names_connection_group_and_streams_in_any_order() -> None:
    one, other = RabbitMQStreams(["b", "a", "b"], group="g"), RabbitMQStreams(["a", "b"], group="g", start="latest")
    assert one.stream_key() == other.stream_key() == "rabbitmq-streams:rabbitmq/g/a,b"
    assert RabbitMQStreams("a", group="h", connection="other").stream_key() == "rabbitmq-streams:other/h/a"


@pytest.mark.parametrize("start", ["earliest", "latest", 0, 12, datetime(2026, 11, 25, tzinfo=UTC)])
def test_all_arguments_survive_serialisation(start: Any) -> None:
    upstream = RabbitMQStreams(["a", "b"], group="g", connection="c", start=start, decode="text", prefetch=7)
    again = load_upstream(*upstream.serialize())
    assert isinstance(again, RabbitMQStreams)
    assert again.serialize() == upstream.serialize()
    assert again.description() == upstream.description()
    assert again.description().start == start


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"streams": []}, "Invalid number of streams: 0"),
        ({"streams": ["a", ""]}, "Invalid stream ''"),
        ({"streams": 5}, "Invalid streams 5"),
        ({"streams": None}, "Invalid streams None"),
        ({"streams": "a\ud800"}, r"Invalid stream 'a\\ud800'"),
        ({"streams": "s" * 255}, "would be longer than 255 bytes"),
        ({"group": "a.b"}, "Invalid group 'a.b'"),
        ({"group": ""}, "Invalid group ''"),
        ({"start": -1}, "Invalid start -1"),
        ({"start": True}, "Invalid start True"),
        ({"start": "yesterday"}, "Invalid start 'yesterday'"),
        ({"start": datetime(2026, 11, 25)}, "it has no time zone"),
        ({"connection": ""}, "Invalid connection ''"),
        ({"decode": "xml"}, "Invalid decode 'xml'"),
        ({"prefetch": 0}, "Invalid prefetch 0"),
        ({"dead_letter_queue": ""}, "Invalid dead_letter_queue ''"),
        ({"dead_letter_queue": "a"}, "'a' is one of the queues that are read"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UpstreamError, match=message):
        RabbitMQStreams(**({"streams": "a", "group": "g"} | arguments))


def test_the_dead_letter_queue_is_serialised_and_not_part_of_the_stream_key() -> None:
    upstream, other = RabbitMQStreams("a", group="g", dead_letter_queue="dead"), RabbitMQStreams("a", group="g")
    assert upstream.stream_key() == other.stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "queue dead"
    assert other.dead_letter_target is None
    assert "dead_letter_queue" not in other.serialize()[1]


def test_a_declaration_needs_no_client_library() -> None:
    code = "import sys; from headrace import RabbitMQStreams; RabbitMQStreams('a', group='g').producer(); sys.exit('aiormq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
