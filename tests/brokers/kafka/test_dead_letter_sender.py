"""Copies of dead letters on a real cluster: what each report says, and what the broker refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected
from headrace.sources.kafka.upstream import Kafka
from support.processes.kafka import KafkaServer, shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, ProxiedTarget, kinds, opened
from support.sources.dead_letters import Copied, copies_in, copy_of
from support.sources.kafka import KafkaTopic
from support.sources.proxied import ProxiedKafka, new_proxied_kafka

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka")]


class KafkaTarget(DeadLetterTarget):
    """A dead-letter topic of one partition."""

    server: KafkaServer
    source: KafkaTopic

    def __init__(self, server: KafkaServer, **settings: str) -> None:
        super().__init__(server, KafkaTopic(server))
        self.topic = server.create_topic(settings=settings)

    @property
    def description(self) -> str:
        return f"topic {self.topic}"

    def set_address(self, address: str) -> None:
        self.source.set_connection(address)

    def upstream(self) -> Kafka:
        return self.source.upstream(dead_letter_topic=self.topic)

    def upstream_to_missing(self) -> Kafka:
        return self.source.upstream(dead_letter_topic=f"{self.topic}-missing")

    def has_missing(self) -> bool:
        return f"{self.topic}-missing" in self.server.admin.list_topics(timeout=10).topics

    def copies(self) -> list[Copied]:
        return copies_in(self.server, self.topic)


@pytest.fixture(scope="module")
def proxied_server() -> Iterator[ProxiedKafka]:
    """Return a server behind a proxy, which the tests of this module may kill."""
    proxied = new_proxied_kafka()
    yield proxied
    proxied.proxy.close()
    proxied.server.close()


class TestTopic(DeadLetterSenderContract):
    large_bytes = 1_100_000
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.kafka.METADATA_SECONDS": 2.0, "dead_letters.kafka.REPORT_SECONDS": 2.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = KafkaTarget(shared("kafka"))
        yield target
        target.close()

    @pytest.fixture
    def killable(self, proxied_server: ProxiedKafka) -> Iterator[DeadLetterTarget]:
        target = KafkaTarget(proxied_server.server)
        yield target
        target.close()

    @pytest.fixture
    def proxied(self, killable: KafkaTarget, proxied_server: ProxiedKafka) -> Iterator[ProxiedTarget]:
        proxy = proxied_server.proxy
        killable.set_address(proxy.address)
        yield ProxiedTarget(killable, proxy)
        proxy.calm()


async def test_a_compacted_topic_refuses_a_copy_without_a_key() -> None:
    target = KafkaTarget(shared("kafka"), **{"cleanup.policy": "compact"})
    async with opened(target.upstream()) as sender:
        results = await sender.send([copy_of(1, metadata=MessageMetadata("k")), copy_of(2), copy_of(3, b"null", MessageMetadata("k"))])
    assert kinds(results) == [None, CopyRejected, None]
    assert [copy.value for copy in target.copies()][-1] == b"null", "not a tombstone"
    target.close()


async def test_settings_of_the_connection_do_not_weaken_the_report() -> None:
    target = KafkaTarget(shared("kafka"))
    target.source.set_connection(target.address, acks="0", enable_idempotence="false", retries="0", transactional_id="theirs")
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(number) for number in range(100)]) == [None] * 100
    assert [copy.number for copy in target.copies()] == [*range(100)]
    target.close()
