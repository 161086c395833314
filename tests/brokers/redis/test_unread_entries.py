"""The number of unread entries follows the stream, also while it takes no entries; it is unknown while the server is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest

from headrace.testing.contract.reading import reading
from support.sources.kit import PATIENCE
from support.sources.reading import until_in_thread
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("redis"), pytest.mark.timeout(2 * PATIENCE)]


async def test_unread_entries_are_counted_while_the_stream_takes_none(stream: RedisStream) -> None:
    stream.send([b"1"] * 100)
    producer = stream.producer()
    try:
        async with aclosing(cast(AsyncGenerator[Any, None], producer.open_stream())) as opened:
            await anext(opened)
            await until_in_thread(lambda: producer.get_unread() == 99)
            await asyncio.to_thread(stream.send, [b"1"] * 50)
            await until_in_thread(lambda: producer.get_unread() == 149)
    finally:
        await producer.aclose()


async def test_pending_entries_are_counted_when_they_are_read_again(stream: RedisStream) -> None:
    stream.send([b"1"] * 100)
    async with reading(stream.producer()) as opened:
        await opened.advance((await opened.take(100))[:40])
    stream.send([b"1"] * 5)
    producer = stream.producer()
    try:
        async with aclosing(cast(AsyncGenerator[Any, None], producer.open_stream())) as again:
            await anext(again)
            assert producer.get_unread() is None, "more pending entries follow"
            for _ in range(59):
                await anext(again)
            await anext(again)
            await until_in_thread(lambda: producer.get_unread() == 4)
    finally:
        await producer.aclose()
