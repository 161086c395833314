"""Copies of dead letters in a topic of MQTT: its messages, and what the server refuses."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, UpstreamError
from headrace.sources.mqtt.upstream import Mqtt
from support.processes.broker_server import SECONDS
from support.processes.mosquitto import MosquittoServer, end_client, shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, errors_of, kinds, opened
from support.sources.dead_letters import Copied, bytes_of, copied, copy_of
from support.sources.mqtt import MqttSession

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("mqtt")]


class MqttTarget(DeadLetterTarget):
    """A topic for copies, to which a session subscribes, beside the topic that is read."""

    server: MosquittoServer
    source: MqttSession

    def __init__(self, server: MosquittoServer) -> None:
        super().__init__(server, MqttSession(server))
        self.topic = f"dead/{secrets.token_hex(6)}"
        self._collector = f"collector-{secrets.token_hex(6)}"
        self._found: list[Copied] = []
        server.subscribe(self._collector, [self.topic])

    @property
    def description(self) -> str:
        return f"topic {self.topic}"

    def set_address(self, address: str) -> None:
        self.source.set_connection(f"mqtt://{address}")

    def upstream(self, **arguments: Any) -> Mqtt:
        return self.source.upstream(**{"dead_letter_topic": self.topic} | arguments)

    def messages(self) -> list[Any]:
        """Return all messages that the session has, and remove them there."""
        found: list[Any] = []
        ended = threading.Event()

        def receive(_client: Any, _userdata: Any, message: Any) -> None:
            if message.payload == b"the end":
                ended.set()
            else:
                found.append(message)

        self.server.send(self.topic, [b"the end"])
        client = self.server.connect(self._collector, expiry=86_400, on_message=receive)
        assert ended.wait(SECONDS)
        end_client(client)
        return found

    def copies(self) -> list[Copied]:
        self._found += [copied(message.payload, bytes_of(dict(message.properties.UserProperty))) for message in self.messages()]
        return self._found

    def close(self) -> None:
        super().close()
        self.server.end_session(self._collector)


class TestTopic(DeadLetterSenderContract):
    creates = True
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.mqtt.SEND_SECONDS": 4.0, "mqtt.library.CONNECT_SECONDS": 1.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = MqttTarget(shared())
        yield target
        target.close()

    @pytest.fixture
    def killable(self, own_server: MosquittoServer) -> Iterator[DeadLetterTarget]:
        target = MqttTarget(own_server)
        yield target
        target.close()


@pytest.fixture
def target() -> Iterator[MqttTarget]:
    target = MqttTarget(shared())
    yield target
    target.close()


async def test_a_topic_without_a_subscriber_is_an_error_and_gets_the_copies_later(target: MqttTarget) -> None:
    async with opened(target.upstream(dead_letter_topic=f"{target.topic}/other")) as sender:
        (error,) = await errors_of(sender, [copy_of(1)])
        assert isinstance(error, UpstreamError)
        assert "No session subscribes" in str(error)
        assert "session that outlives its connection" in str(error.hint)
        target.server.subscribe(target._collector, [f"{target.topic}/other"])
        assert await sender.send([copy_of(1)]) == [None]
    assert [copy.number for copy in target.copies()] == [1]


async def test_attributes_of_a_cloud_event_have_their_names_again(target: MqttTarget) -> None:
    headers = (("ce_specversion", b"1.0"), ("ce_id", b"7"), ("tenant", b"eu"))
    async with opened(target.upstream(decode="cloudevents")) as sender:
        assert await sender.send([copy_of(1, b"x", MessageMetadata(headers=headers, malformed="no"))]) == [None]
    (message,) = target.messages()
    properties = dict(message.properties.UserProperty)
    assert (properties["specversion"], properties["id"], properties["tenant"], message.qos) == ("1.0", "7", "eu", 1)


async def test_names_that_no_server_takes_are_left_out_and_long_values_too(target: MqttTarget) -> None:
    headers = (
        ("a\x00b", b"1"),
        ("line\nname", b"2"),
        ("good", b"3"),
        ("longest", b"\xff" * 49_149),
        ("long", b"\xff" * 49_150),
        ("\ufffe", b"4"),
        ("\ufdd0", b"5"),
    )
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1, b"{", MessageMetadata(headers=headers))]) == [None]
    (copy,) = target.copies()
    assert {name for name in copy.headers if not name.startswith("headrace-")} == {"good", "longest"}
    assert copy.headers["longest"] == b"\xff" * 49_149


async def test_copies_beyond_the_limits_of_the_server_are_rejected() -> None:
    server = MosquittoServer("max_packet_size 3000")
    target = MqttTarget(server)
    async with opened(target.upstream()) as sender:
        results = await sender.send([copy_of(number, b"x" * size) for number, size in enumerate((100, 3_000, 1_000))])
        assert kinds(results) == [None, CopyRejected, None]
    assert [copy.number for copy in target.copies()] == [0, 2]
    target.close()
    server.close()
