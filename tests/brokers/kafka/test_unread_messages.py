"""The number of unread messages follows the topic, also while the stream takes no messages and the partitions are paused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest

from headrace.sources.kafka.buffer import MAX_BUFFERED_MESSAGES
from support.sources.kafka import KafkaTopic
from support.sources.reading import until

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("kafka")]


async def test_unread_messages_are_counted_while_the_stream_takes_none(topic: KafkaTopic) -> None:
    topic.send([b"1"] * (2 * MAX_BUFFERED_MESSAGES))
    producer = topic.producer()
    assert producer.get_unread() is None, "no partition is assigned"
    try:
        async with aclosing(cast(AsyncGenerator[Any, None], producer.open_stream())) as stream:
            await anext(stream)
            await until(lambda: producer.get_unread() == 2 * MAX_BUFFERED_MESSAGES - 1)
            await until(lambda: producer._reader is not None and producer._reader._pause.is_active)
            await asyncio.to_thread(topic.send, [b"1"] * 700)
            await until(lambda: producer.get_unread() == 2 * MAX_BUFFERED_MESSAGES + 699)
            for _ in range(2 * MAX_BUFFERED_MESSAGES + 699):
                await anext(stream)
            await until(lambda: producer.get_unread() == 0)
    finally:
        await producer.aclose()
