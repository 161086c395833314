"""Rights that are revoked while a stream is read, and given again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.errors import UpstreamError
from headrace.testing.contract.reading import opened, reading
from support.sources.reading import numbers, until
from support.sources.service_bus import MakeQueue, ServiceBusQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("service-bus")]


@pytest.fixture(params=[None, 2])
def source(make_queue: MakeQueue, request: pytest.FixtureRequest) -> Iterator[ServiceBusQueue]:
    queue = make_queue(sessions=request.param)
    yield queue
    queue.server.request("PUT", "faults", {})


async def test_a_stream_whose_rights_are_revoked_ends_and_the_next_one_goes_on(source: ServiceBusQueue) -> None:
    source.send(numbers(0, 10))
    producer = source.producer()
    async with asyncio.timeout(30), opened(producer) as stream:
        items = [await anext(stream) for _ in range(10)]
        source.server.request("PUT", "faults", {"unauthorized": True})
        source.server.request("POST", "disconnect")
        with pytest.raises(UpstreamError) as failure:
            await anext(stream)
        assert failure.value.hint is not None
    await producer.aclose()
    with pytest.raises(UpstreamError):
        await anext(source.producer().open_stream())
    source.server.request("PUT", "faults", {})
    async with reading(source.producer()) as following:
        again = await following.take(10)
        assert {raw.id for raw, _ in again} == {raw.id for raw, _ in items}
        await following.advance(again)
        await until(lambda: source.count() == (0, 0))
