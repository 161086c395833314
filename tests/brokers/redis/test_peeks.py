"""A peek at streams shows pending and new entries, with or without a reader, and changes nothing at the server."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import StreamError, UpstreamError
from headrace.sources.peeks.peek import Peek, PeekRequest, peek_upstream
from headrace.testing.contract.reading import reading
from headrace.triggers.raw_event import Message
from support.sources.kit import PATIENCE
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("redis"), pytest.mark.timeout(2 * PATIENCE)]


async def peeked(stream: RedisStream, limit: int = 10, lane: str | None = None, **arguments: Any) -> Peek:
    return await peek_upstream(stream.upstream(**arguments), PeekRequest(limit, lane))


def state(stream: RedisStream) -> dict[str, Any]:
    """Return all that a reader or a peek could have changed."""
    groups = stream.client.xinfo_groups(stream.key) if stream.client.exists(stream.key) else None
    pending = stream.client.xpending_range(stream.key, stream.group, "-", "+", 100) if groups else None
    keys = sorted(stream.client.keys(f"*{stream.key}*"))
    return {"groups": groups, "pending": [(one["message_id"], one["times_delivered"]) for one in pending or ()], "keys": keys}


async def test_without_a_group_a_peek_begins_at_the_start_and_creates_nothing(stream: RedisStream) -> None:
    assert "does not exist" in (await peeked(stream)).notes[0]
    stream.send([b"0", b"1", b"2"])
    before = state(stream)
    messages = (await peeked(stream)).messages
    assert [(raw.lane, raw.data) for raw in messages] == [(stream.key, b"0"), (stream.key, b"1"), (stream.key, b"2")]
    assert (await peeked(stream, start="latest")).messages == []
    assert state(stream) == before


async def test_pending_entries_come_first_and_keep_their_deliveries(stream: RedisStream) -> None:
    stream.send([f"{number}".encode() for number in range(5)])
    async with reading(stream.producer()) as opened:
        items = await opened.take(5)
        await opened.advance(items[:2])
        stream.send([b"5"])
        during = (await peeked(stream)).messages
        await opened.advance(items[2:3])  # the peek has not taken the lease
        await opened.take(1)
        assert stream.pending() == 3
    assert [raw.data for raw in during] == [b"2", b"3", b"4", b"5"]
    stream.send([b"6"])
    before = state(stream)
    messages = (await peeked(stream)).messages
    assert [raw.data for raw in messages] == [b"3", b"4", b"5", b"6"]
    assert [raw.lane for raw in messages] == [items[0][0].lane] * 4
    assert [raw.position for raw in messages][:2] == [raw.position for raw, _ in items[3:]]
    assert next(raw.delivery for raw in messages if isinstance(raw, Message)) == 2
    assert [raw.data for raw in (await peeked(stream, 2, stream.key)).messages] == [b"3", b"4"]
    assert state(stream) == before
    async with reading(stream.producer()) as opened:
        assert [raw.data for raw, _ in await opened.take(4)] == [b"3", b"4", b"5", b"6"]


async def test_pending_entries_that_were_removed_are_a_note(stream: RedisStream) -> None:
    ids = stream.send([b"0", b"1", b"2"])
    async with reading(stream.producer()) as opened:
        await opened.take(3)
    stream.client.xdel(stream.key, ids[1])
    peek = await peeked(stream)
    assert [raw.data for raw in peek.messages] == [b"0", b"2"]
    assert "1 entries were removed" in peek.notes[0]


async def test_unknown_lanes_other_keys_and_a_server_that_does_not_answer_are_named(stream: RedisStream) -> None:
    stream.send([b"0"])
    with pytest.raises(UpstreamError, match="There is no lane 'other'"):
        await peeked(stream, lane="other")
    stream.client.set(f"{stream.key}:text", "1")
    with pytest.raises(UpstreamError, match="cannot be examined"):
        await peeked(stream, keys=f"{stream.key}:text")
    stream.set_connection("redis://127.0.0.1:1")
    with pytest.raises(StreamError):
        await peeked(stream)
