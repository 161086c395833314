"""Copies of dead letters in topics of Pub/Sub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, UpstreamError
from headrace.sources.dead_letters.cloud.pubsub import MAX_ATTRIBUTES, MAX_VALUE_BYTES
from headrace.sources.pubsub.upstream import PubSub
from support.processes.broker_server import BrokerServer, require_server
from support.processes.pubsub import shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, opened
from support.sources.dead_letters import Copied, bytes_of, copied, copy_of
from support.sources.pubsub import PubSubSubscription

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("pubsub")]

MARKERS = ("headrace-cut", "headrace-left-out")


class PubSubTarget(DeadLetterTarget):
    """A dead-letter topic with a subscription."""

    server: BrokerServer
    source: PubSubSubscription

    def __init__(self, server: BrokerServer) -> None:
        super().__init__(server, PubSubSubscription(server=server))
        self.dead = PubSubSubscription(server=server)

    @property
    def description(self) -> str:
        return f"topic {self.dead.name}"

    def set_address(self, address: str) -> None:
        self.source.set_address(address)

    def upstream(self, **arguments: Any) -> PubSub:
        return self.source.upstream(**{"dead_letter_topic": self.dead.name} | arguments)

    def upstream_to_missing(self) -> PubSub:
        return self.upstream(dead_letter_topic=f"{self.dead.name}-missing")

    def has_missing(self) -> bool:
        return self.source.has_topic(f"{self.dead.name}-missing")

    def copies(self) -> list[Copied]:
        copies: list[Copied] = []
        for message in self.dead.take():
            headers = bytes_of({name: text for name, text in message.attributes.items() if name not in MARKERS})
            copies.append(copied(message.data, headers)._replace(key=message.ordering_key.encode() or None))
        return copies

    def start(self) -> None:
        """Start the server, which has forgotten everything."""
        self.server.start()
        self.source.create()
        self.dead.create()

    def close(self) -> None:
        self.source.close()
        self.dead.close()


@pytest.fixture
def target() -> Iterator[PubSubTarget]:
    target = PubSubTarget(shared())
    yield target
    target.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[BrokerServer]:
    """Return a server that the tests of this module may kill."""
    require_server("pubsub", "pstest/pstest", library="google.pubsub_v1")
    server = BrokerServer("pubsub")
    yield server
    server.close()


class TestTopic(DeadLetterSenderContract):
    ordered = False
    large_bytes = 10_000_001
    forgets = True
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.cloud.pubsub.ANSWER_SECONDS": 2.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = PubSubTarget(shared())
        yield target
        target.close()

    @pytest.fixture
    def killable(self, own_server: BrokerServer) -> Iterator[DeadLetterTarget]:
        target = PubSubTarget(own_server)
        yield target
        target.close()


async def test_the_topic_of_the_subscription_is_refused(target: PubSubTarget) -> None:
    async with opened(target.upstream(dead_letter_topic=target.source.name)) as sender:
        with pytest.raises(UpstreamError, match="is the topic of subscription") as error:
            await sender.send([copy_of(1)])
    assert error.value.hint is not None


async def test_a_copy_has_at_most_100_attributes_and_names_what_is_cut_or_left_out(target: PubSubTarget) -> None:
    headers = tuple((f"name{number}", b"value") for number in range(99))
    metadata = MessageMetadata("k", (("ce_id", b"7"), *headers))
    async with opened(target.upstream()) as sender:
        copy = copy_of(1, metadata=metadata, reason="x" * 2_000, triggers=["t" * 1_000, "u" * 100])
        assert await sender.send([copy]) == [None]
    (message,) = await asyncio.to_thread(target.dead.take)
    attributes = dict(message.attributes)
    assert len(attributes) <= MAX_ATTRIBUTES
    assert (attributes["ce-id"], attributes["headrace-reason"]) == ("7", "x" * MAX_VALUE_BYTES)
    assert json.loads(attributes["headrace-triggers"]) == ["t" * 1_000]
    assert json.loads(attributes["headrace-cut"]) == ["headrace-reason", "headrace-triggers"]
    assert int(attributes["headrace-left-out"]) == 100 - sum(not name.startswith("headrace-") for name in attributes)


async def test_a_topic_that_is_deleted_is_an_error_for_each_copy_and_the_copies_come_when_it_is_back(target: PubSubTarget) -> None:
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(0)]) == [None]
        await asyncio.to_thread(target.dead.delete_topic)
        for result in await sender.send([copy_of(1), copy_of(2)]):
            assert isinstance(result, UpstreamError)
            assert not isinstance(result, CopyRejected)
            assert "Create the dead-letter topic" in str(result.hint)
        await asyncio.to_thread(target.dead.create_topic)
        assert await sender.send([copy_of(1), copy_of(2)]) == [None] * 2


async def test_a_value_that_was_decoded_by_another_format_is_named(target: PubSubTarget) -> None:
    async with opened(target.upstream(decode="debezium")) as sender:
        assert await sender.send([copy_of(1, b'{"op":"c"}')]) == [None]
    (copy,) = await asyncio.to_thread(target.copies)
    assert (copy.value, copy.headers["headrace-decode"]) == (b'{"op":"c"}', b"debezium")
