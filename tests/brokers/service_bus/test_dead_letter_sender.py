"""Copies of dead letters in queues of Service Bus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.sources.dead_letters.cloud.service_bus import PROPERTIES_BYTES
from headrace.sources.service_bus.upstream import ServiceBus
from support.processes.service_bus import ServiceBusServer, require, shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, opened
from support.sources.dead_letters import Copied, bytes_of, copied, copy_of
from support.sources.service_bus import ServiceBusQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("service-bus")]


class ServiceBusTarget(DeadLetterTarget):
    """A dead-letter queue."""

    server: ServiceBusServer
    source: ServiceBusQueue

    def __init__(self, server: ServiceBusServer) -> None:
        super().__init__(server, ServiceBusQueue(server))
        self.dead = ServiceBusQueue(server)

    @property
    def description(self) -> str:
        return f"queue {self.dead.name}"

    def set_address(self, address: str) -> None:
        self.source.set_address(address)

    def upstream(self, **arguments: Any) -> ServiceBus:
        return self.source.upstream(**{"dead_letter_queue": self.dead.name} | arguments)

    def upstream_to_missing(self) -> ServiceBus:
        return self.upstream(dead_letter_queue="missing")

    def has_missing(self) -> bool:
        return self.server.exists("queues/missing")

    def messages(self) -> list[Mapping[str, Any]]:
        """Return all messages of the queue."""
        return self.server.messages(self.dead.path)

    def copies(self) -> list[Copied]:
        return [
            copied(one["body"], bytes_of({name: text for name, text in one["properties"].items() if name != "headrace-left-out"}))
            for one in self.messages()
        ]

    def start(self) -> None:
        """Start the server, which has forgotten everything."""
        self.server.start()
        self.source.create()
        self.dead.create()

    def close(self) -> None:
        self.source.close()
        self.dead.close()


@pytest.fixture
def target() -> Iterator[ServiceBusTarget]:
    target = ServiceBusTarget(shared())
    yield target
    target.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[ServiceBusServer]:
    """Return a server that the tests of this module may kill."""
    require()
    server = ServiceBusServer()
    yield server
    server.close()


class TestQueue(DeadLetterSenderContract):
    large_bytes = 1_100_000
    forgets = True
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.cloud.service_bus.SEND_SECONDS": 3.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = ServiceBusTarget(shared())
        yield target
        target.close()

    @pytest.fixture
    def killable(self, own_server: ServiceBusServer) -> Iterator[DeadLetterTarget]:
        target = ServiceBusTarget(own_server)
        yield target
        target.close()


async def test_a_copy_has_the_session_of_its_message_or_its_lane(target: ServiceBusTarget) -> None:
    copies = [copy_of(1, metadata=MessageMetadata("s1")), copy_of(2, lane="orders"), copy_of(3, lane="x" * 300)]
    async with opened(target.upstream()) as sender:
        assert await sender.send(copies) == [None] * 3
    first, second, third = [one["session"] for one in await asyncio.to_thread(target.messages)]
    assert (first, second, len(third)) == ("s1", "orders", 64)


async def test_headers_for_which_there_is_no_room_are_left_out_and_counted(target: ServiceBusTarget) -> None:
    headers = (("small", b"1"), *((f"large{number}", b"x" * (PROPERTIES_BYTES // 3)) for number in range(4)), ("last", b"2"))
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1, metadata=MessageMetadata("k", headers))]) == [None]
    (message,) = await asyncio.to_thread(target.messages)
    assert message["properties"]["headrace-left-out"] == "2"
    assert {"small", "large0", "large1", "last"} <= message["properties"].keys()
    assert json.loads(message["properties"]["headrace-triggers"]) == ["paid"]
