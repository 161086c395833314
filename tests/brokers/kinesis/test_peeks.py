"""A peek at a stream shows what a reader would get next, and stores nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.connections.probes import probe_connection
from headrace.sources.peeks.peek import Peek, PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.secrets import get_connection
from support.sources.kinesis import MAX_HASH, KinesisStream
from support.sources.kit import PATIENCE
from support.sources.reading import numbers

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kinesis"), pytest.mark.timeout(2 * PATIENCE)]


async def peeked(stream: KinesisStream, limit: int = 10, lane: str | None = None, **arguments: Any) -> Peek:
    return await peek_upstream(stream.upstream(**arguments), PeekRequest(limit, lane))


async def test_a_peek_shows_what_the_next_reader_gets_and_stores_nothing(stream: KinesisStream) -> None:
    stream.send(numbers(0, 5))
    first = await peeked(stream)
    assert stream.items() == {}
    async with reading(stream.producer()) as opened:
        items = await opened.take(5)
        await opened.advance(items[:2])
        before = stream.items()
        during = await peeked(stream, limit=2)
        assert stream.items() == before
        await opened.advance(items[2:3])  # the peek has not fenced the reader
    assert [raw.value["n"] for raw in first.messages] == [0, 1, 2, 3, 4]
    expected = [(raw.lane, raw.position, raw.data, raw.id) for raw, _ in items[2:4]]
    assert [(raw.lane, raw.position, raw.data, raw.id) for raw in during.messages] == expected  # type: ignore[attr-defined]


async def test_a_peek_leaves_out_children_of_shards_that_are_not_finished(stream: KinesisStream) -> None:
    stream.send(numbers(0, 2))
    stream.server.kinesis.split_shard(StreamName=stream.name, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(MAX_HASH // 2))
    stream.send(numbers(2, 3))
    seen = await peeked(stream)
    assert [raw.value["n"] for raw in seen.messages] == [0, 1]
    assert "Shard shardId-000000000002 is read once its parents are finished." in seen.notes
    with pytest.raises(UpstreamError, match="There is no lane"):
        await peeked(stream, lane="shardId-000000000002")


async def test_the_test_of_a_connection_lists_the_streams(stream: KinesisStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CONNECTION_TESTED", f"kinesis://x:y@{stream.server.address}?region=us-east-1&scheme=http")
    text = await asyncio.to_thread(lambda: probe_connection(get_connection("tested")))
    assert text.startswith(f"Kinesis at http://{stream.server.address}")
    assert text.endswith(" streams")
