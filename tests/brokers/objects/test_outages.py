"""A server that is killed while it is read, and a network that loses requests and answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from headrace.sources.aws import client as aws_client
from headrace.sources.connections import rest_client
from headrace.sources.objects.s3 import client
from headrace.testing.contract.reading import reading
from support.processes.broker_server import connection_variable
from support.processes.network import Network
from support.sources.objects import ObjectServer, TestBucket
from support.sources.reading import advance_until_done, numbers, until

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("objects-outages"), pytest.mark.timeout(200)]


@pytest.fixture
def bucket(own_server: ObjectServer) -> Iterator[TestBucket]:
    bucket = TestBucket(own_server)
    yield bucket
    bucket.close()


async def test_a_reader_goes_on_after_the_server_was_away_and_delivers_nothing_twice(bucket: TestBucket) -> None:
    bucket.put("a.jsonl", numbers(0, 100))
    async with reading(bucket.producer(read="lines")) as stream:
        items = await stream.take(100)
        await asyncio.to_thread(bucket.server.kill)
        await until(lambda: "listing" in stream.producer.get_errors())
        advance = asyncio.create_task(advance_until_done(stream, items[:60]))
        await asyncio.to_thread(bucket.server.start)
        await advance
        await asyncio.to_thread(bucket.put, "b.jsonl", numbers(100, 120))
        later = await stream.take(20)
        assert [raw.value["n"] for raw, _ in later] == list(range(100, 120))
        await until(lambda: not stream.producer.get_errors())
    async with reading(bucket.producer(read="lines")) as stream:
        assert sorted(raw.value["n"] for raw, _ in await stream.take(60)) == list(range(60, 120))


async def test_a_producer_closes_in_time_while_the_server_is_away(bucket: TestBucket) -> None:
    bucket.put("a.jsonl", numbers(0, 10))
    async with asyncio.timeout(30), reading(bucket.producer(read="lines")) as stream:
        await stream.take(10)
        await asyncio.to_thread(bucket.server.kill)
    await asyncio.to_thread(bucket.server.start)
    async with reading(bucket.producer(read="lines")) as stream:
        assert [raw.value["n"] for raw, _ in await stream.take(10)] == list(range(10))


async def test_requests_and_answers_that_are_lost_lose_and_repeat_nothing(bucket: TestBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three readers, one after the other. The first attempt of each advance is lost, or its answer."""
    monkeypatch.setattr(client, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(aws_client, "CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(rest_client, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(rest_client, "CONNECT_SECONDS", 1.0)
    for number in range(12):
        bucket.put(f"{number:02}.jsonl", numbers(10 * number, 10 * number + 10))
    network = Network(int(bucket.server.address.rpartition(":")[2]), 0, silent=1.5)
    variable = connection_variable(bucket.connection)
    seen: list[int] = []
    with network.serving() as url:
        os.environ[variable] = os.environ[variable].replace(bucket.server.address, url.removeprefix("http://"))
        for _ in range(3):
            async with reading(bucket.producer(read="lines")) as stream:
                for mode in ("lose", "drop", "lose", "drop"):
                    items = await stream.take(10)
                    assert len({raw.lane for raw, _ in items}) == 1
                    failures, network.mode = network.did[mode], mode
                    advance = asyncio.create_task(advance_until_done(stream, items))
                    await until(lambda mode=mode, failures=failures: network.did[mode] > failures)  # type: ignore[misc]
                    network.mode = ""
                    await advance
                    seen += [raw.value["n"] for raw, _ in items]
        # An object whose first bytes were lost is read after others: objects have no order.
        assert sorted(seen) == list(range(120))
        bucket.put("end.jsonl", numbers(120, 121))
        async with reading(bucket.producer(read="lines")) as stream:
            assert [raw.value["n"] for raw, _ in await stream.take(1)] == [120]
