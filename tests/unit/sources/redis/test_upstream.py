"""The description of streams of Redis."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.redis.upstream import RedisStreams
from headrace.triggers.upstream import load_upstream


def test_an_upstream_is_serialised_with_all_arguments() -> None:
    upstream = RedisStreams(
        ["b", "a", "b"], connection="shop", group="g", payload="data", key="who", decode="cloudevents", start="17", lease=30
    )
    classpath, kwargs = upstream.serialize()
    assert load_upstream(classpath, kwargs).serialize() == (classpath, kwargs)
    assert (upstream.stream_key(), upstream.event_type) == ("redis:shop/g/a,b", "headrace.redis.entry")
    assert (kwargs["keys"], kwargs["start"]) == (["a", "b"], "17-0")
    assert upstream.producer().upstream is upstream


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"keys": []}, "No stream keys"),
        ({"keys": [""]}, "Invalid stream key ''"),
        ({"keys": 5}, "Invalid stream keys 5"),
        ({"keys": None}, "Invalid stream keys None"),
        ({"keys": ["a", 5]}, "Invalid stream key 5"),
        ({"keys": "a\ud800"}, r"Invalid stream key 'a\\ud800': it is not a text in UTF-8"),
        ({"keys": ["orders", "orders:lease"]}, "Invalid stream key 'orders:lease': the lease of another stream has such a key"),
        ({"group": "a\ud800"}, r"Invalid group 'a\\ud800'"),
        ({"payload": "a\ud800"}, r"Invalid payload 'a\\ud800'"),
        ({"key": "a\ud800"}, r"Invalid key 'a\\ud800'"),
        ({"dead_letter_stream": "a\ud800"}, r"Invalid dead_letter_stream 'a\\ud800'"),
        ({"keys": "k" * 201}, "more than 200 characters"),
        ({"keys": [str(number) for number in range(1_001)]}, "1001 stream keys"),
        ({"group": ""}, "Invalid group"),
        ({"connection": 1}, "Invalid connection 1"),
        ({"payload": ""}, "Invalid payload"),
        ({"key": 1}, "Invalid key 1"),
        ({"decode": "xml"}, "Invalid decode 'xml'"),
        ({"decode": "text"}, "no payload is given"),
        ({"start": "tomorrow"}, "Invalid start 'tomorrow'"),
        ({"start": "9999999999999999-0"}, "too large for a position"),
        ({"lease": 0}, "Invalid lease 0"),
        ({"lease": True}, "Invalid lease True"),
        ({"dead_letter_stream": ""}, "Invalid dead_letter_stream ''"),
        ({"dead_letter_stream": ["a"]}, "Invalid dead_letter_stream"),
        ({"dead_letter_stream": "k" * 201}, "Invalid dead_letter_stream.*more than 200 characters"),
        ({"dead_letter_stream": "orders"}, "'orders' is one of the streams that are read"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason):
        RedisStreams(**({"keys": "orders", "group": "g"} | arguments))


def test_the_dead_letter_stream_is_serialised_and_not_part_of_the_stream_key() -> None:
    upstream = RedisStreams("orders", group="g", dead_letter_stream="orders:dead")
    other = RedisStreams("orders", group="g")
    assert upstream.stream_key() == other.stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "stream orders:dead"
    assert other.dead_letter_target is None
    assert "dead_letter_stream" not in other.serialize()[1]
