from __future__ import annotations

import asyncio

import pytest

from headrace.errors import StreamError
from headrace.sources import inbox
from headrace.sources.inbox import Inbox
from headrace.sources.kinesis.client import Shard
from headrace.sources.kinesis.lanes import Checkpoint, Delivered, Lane
from headrace.triggers.raw_event import Message

LANE = Lane("a@1", Shard("a", (), 0, 0), Checkpoint())


def item(position: int, size: int = 1) -> tuple[Message, Delivered]:
    return Message(b"1" * size, LANE.name, position), LANE.deliver(str(position), 1, 0)


async def test_a_failure_is_raised_after_the_messages_before_it() -> None:
    one: Inbox[Delivered] = Inbox()
    first = item(1)
    await one.put(first)
    one.end(StreamError("it failed"))
    assert await one.next() is first
    with pytest.raises(StreamError, match="it failed"):
        await one.next()


async def test_a_failure_ends_a_wait_for_messages() -> None:
    one: Inbox[Delivered] = Inbox()
    waiting = asyncio.create_task(one.next())
    await asyncio.sleep(0)
    one.end(StreamError("it failed"))
    with pytest.raises(StreamError, match="it failed"):
        await waiting


@pytest.mark.parametrize(("limit", "size"), [("MAX_MESSAGES", 1), ("MAX_BYTES", 2)])
async def test_a_put_waits_for_room(monkeypatch: pytest.MonkeyPatch, limit: str, size: int) -> None:
    monkeypatch.setattr(inbox, limit, 2 * size)
    one: Inbox[Delivered] = Inbox()
    await one.put(item(1, size))
    puts = [asyncio.create_task(one.put(item(position, size))) for position in (2, 3)]
    await asyncio.sleep(0)
    assert not any(put.done() for put in puts)
    await one.next()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(put.done() for put in puts)
    await one.next()
    await asyncio.gather(*puts)
    assert len(one) == 1
