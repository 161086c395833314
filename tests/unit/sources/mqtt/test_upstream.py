"""The upstream `Mqtt`, without a connection."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.mqtt.upstream import Mqtt
from headrace.triggers.upstream import load_upstream


def test_connection_session_and_topics_identify_the_stream() -> None:
    one = Mqtt(["b/#", "a", "b/#"], client_id="plant")
    assert one.stream_key() == Mqtt(["a", "b/#"], client_id="plant", receive_maximum=7).stream_key() == "mqtt:mqtt/plant/a,b/#"
    assert one.stream_key() != Mqtt(["a", "b/#"], client_id="other").stream_key()
    assert one.reader_names == Mqtt("c", client_id="plant").reader_names


def test_it_is_serialised_with_all_arguments() -> None:
    upstream = Mqtt(["a", "b/+"], client_id="x", connection="c", decode="text", receive_maximum=7, session_expiry=60)
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.event_type == "headrace.mqtt.message"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"topics": "a/#/b"}, "topic filter"),
        ({"topics": None}, "topic filters"),
        ({"topics": {"a": 1}}, "topic filters"),
        ({"topics": [5]}, "topic filter"),
        ({"topics": "a\nb"}, "topic filter"),
        ({"topics": "a\ud800"}, "topic filter"),
        ({"client_id": ""}, "client_id"),
        ({"client_id": "x" * 257}, "client_id"),
        ({"client_id": "a\nb"}, "client_id"),
        ({"connection": ""}, "connection"),
        ({"decode": "xml"}, "decode"),
        ({"receive_maximum": 0}, "receive_maximum"),
        ({"receive_maximum": 65_536}, "receive_maximum"),
        ({"session_expiry": 0}, "session_expiry"),
        ({"dead_letter_topic": ""}, "dead_letter_topic"),
        ({"dead_letter_topic": "a/+"}, "dead_letter_topic"),
        ({"dead_letter_topic": "a\x01"}, "dead_letter_topic"),
        ({"dead_letter_topic": "$share/g/a"}, "dead_letter_topic"),
    ],
)
def test_an_invalid_argument_is_named(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(UpstreamError, match=f"^Invalid {name}"):
        Mqtt(**({"topics": "a", "client_id": "x"} | arguments))


def test_the_dead_letter_topic_is_serialised_and_not_part_of_the_stream_key() -> None:
    upstream = Mqtt("a/#", client_id="x", dead_letter_topic="dead")
    other = Mqtt("a/#", client_id="x")
    assert upstream.stream_key() == other.stream_key()
    assert load_upstream(*upstream.serialize()).dead_letter_target == "topic dead"
    assert other.dead_letter_target is None


def test_a_dead_letter_topic_that_is_read_is_refused() -> None:
    with pytest.raises(UpstreamError, match="one of the topics that are read"):
        Mqtt("a/#", client_id="x", dead_letter_topic="a/dead")


def test_it_is_imported_without_the_client_library() -> None:
    code = "import sys; from headrace import Mqtt; Mqtt('a', client_id='x').producer(); assert 'paho' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


async def test_a_missing_client_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    monkeypatch.setenv("HEADRACE_CONNECTION_MQTT", "mqtt://127.0.0.1:1")
    producer = Mqtt("a", client_id="x").producer()
    with pytest.raises(UpstreamError, match="is not installed") as raised:
        await anext(producer.open_stream())
    assert "headrace[mqtt]" in str(raised.value.hint)
    await producer.aclose()
