"""Copies of dead letters in a topic of Pulsar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from headrace import Pulsar
from headrace.core.values.message_text import MessageMetadata
from support.processes.pulsar import ProxiedPulsar, PulsarServer, path_of
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, ProxiedTarget, opened
from support.sources.dead_letters import Copied, bytes_of, copied, copy_of
from support.sources.kit import PATIENCE
from support.sources.pulsar import PulsarTopic

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar-outages"), pytest.mark.timeout(2 * PATIENCE)]


class PulsarTarget(DeadLetterTarget):
    """A dead-letter topic without partitions."""

    server: PulsarServer
    source: PulsarTopic

    def __init__(self, proxied: ProxiedPulsar) -> None:
        super().__init__(proxied.server, PulsarTopic(proxied.server))
        self._proxied = proxied
        self.topic = proxied.server.create_topic()

    @property
    def description(self) -> str:
        return f"topic {self.topic}"

    def set_address(self, address: str) -> None:
        self.source.set_connection(self._proxied.url_at(address))

    def upstream(self, decode: str = "json") -> Pulsar:
        return self.source.upstream(dead_letter_topic=self.topic, decode=decode)

    def upstream_to_missing(self) -> Pulsar:
        return self.source.upstream(dead_letter_topic=f"{self.topic}-missing")

    def has_missing(self) -> bool:
        topics: list[str] = self.server.admin("GET", "persistent/public/default")
        return f"{self.topic}-missing" in topics

    def copies(self) -> list[Copied]:
        copies: list[Copied] = []
        for message in self.server.read(self.topic):
            copy = copied(message.data(), bytes_of(message.properties()))
            copies.append(copy._replace(key=message.partition_key().encode() or None))
        return copies


@pytest.fixture
def target(proxied_server: ProxiedPulsar) -> Iterator[PulsarTarget]:
    """Return a topic for copies."""
    target = PulsarTarget(proxied_server)
    yield target
    target.close()


class TestTopic(DeadLetterSenderContract):
    large_bytes = 1_100_000
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.pulsar.SEND_SECONDS": 4.0, "pulsar.client.OPERATION_SECONDS": 2}

    @pytest.fixture
    def target(self, proxied_server: ProxiedPulsar) -> Iterator[DeadLetterTarget]:
        target = PulsarTarget(proxied_server)
        yield target
        target.close()

    @pytest.fixture
    def killable(self, target: PulsarTarget) -> PulsarTarget:
        return target

    @pytest.fixture
    def proxied(self, target: PulsarTarget, proxied_server: ProxiedPulsar) -> Iterator[ProxiedTarget]:
        target.set_address(proxied_server.proxy.address)
        yield ProxiedTarget(target, proxied_server.proxy)
        proxied_server.proxy.calm()


async def test_attributes_of_a_cloudevent_have_their_names_of_pulsar(target: PulsarTarget) -> None:
    async with opened(target.upstream(decode="cloudevents")) as sender:
        assert await sender.send([copy_of(1, metadata=MessageMetadata("k", (("ce_id", b"7"),)))]) == [None]
    (copy,) = target.copies()
    assert copy.headers["ce-id"] == b"7"
    assert copy.headers["headrace-decode"] == b"cloudevents"


async def test_copies_of_a_key_go_to_one_partition_in_order(target: PulsarTarget, proxied_server: ProxiedPulsar) -> None:
    topic = proxied_server.server.create_topic(partitions=3)
    async with opened(target.source.upstream(dead_letter_topic=topic)) as sender:
        copies = [copy_of(number, metadata=MessageMetadata(f"k{number % 5}")) for number in range(50)]
        assert await sender.send(copies) == [None] * 50
    partitions = [proxied_server.server.read(f"{topic}-partition-{number}") for number in range(3)]
    assert sum(map(len, partitions)) == 50
    for key in range(5):
        (with_key,) = [found for messages in partitions if (found := [one for one in messages if one.partition_key() == f"k{key}"])]
        assert [int(one.properties()["headrace-number"]) for one in with_key] == list(range(key, 50, 5))
    proxied_server.server.admin("DELETE", f"{path_of(topic)}/partitions?force=true")
