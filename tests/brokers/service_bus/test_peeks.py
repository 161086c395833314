"""Peeks at queues of Service Bus."""

from __future__ import annotations

import pytest

from headrace.errors import UpstreamError
from headrace.sources.peeks.peek import PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from support.sources.reading import numbers
from support.sources.service_bus import ServiceBusQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("service-bus")]


async def test_a_peek_shows_the_first_messages_and_delivers_none(queue: ServiceBusQueue) -> None:
    queue.send(numbers(0, 250))
    peek = await peek_upstream(queue.upstream(), PeekRequest(220))
    assert [message.value["n"] for message in peek.messages] == list(range(220))
    assert queue.count() == (250, 0)
    assert queue.server.request("GET", queue.path)["deliveries"] == 0


async def test_a_peek_shows_what_a_reader_holds_with_the_same_ids(queue: ServiceBusQueue) -> None:
    queue.send(numbers(0, 3))
    async with reading(queue.producer()) as stream:
        items = await stream.take(3)
        peek = await peek_upstream(queue.upstream(), PeekRequest(10))
        assert {message.id for message in peek.messages} == {raw.id for raw, _ in items}  # type: ignore[attr-defined]
        await stream.advance(items)
    assert (await peek_upstream(queue.upstream(), PeekRequest(10))).messages == []


async def test_a_peek_at_sessions_or_at_a_missing_queue_is_an_error(sessions: ServiceBusQueue) -> None:
    with pytest.raises(UpstreamError, match="to its reader only"):
        await peek_upstream(sessions.upstream(), PeekRequest(10))
    with pytest.raises(UpstreamError, match="lane"):
        await peek_upstream(sessions.upstream(sessions=None), PeekRequest(10, "other"))
