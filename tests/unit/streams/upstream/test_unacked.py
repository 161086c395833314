"""Streams without acks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.errors import SubscriberOverflow
from headrace.streams.manager import SharedStreamManager
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from support.sources.streams import KEY, Keeper, Runner, other_tasks, until


async def test_the_fast_path_has_the_same_shape_and_no_acks() -> None:
    manager = SharedStreamManager()
    closed = asyncio.Event()

    class Plain(BaseEventTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "plain", {}

        @classmethod
        async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            try:
                for number in range(300):
                    yield number
                await asyncio.Event().wait()
            finally:
                closed.set()

        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                yield TriggerEvent(raw)

    trigger = Plain()
    runners = [Runner(manager, number, trigger) for number in range(2)]
    await until(lambda: all(len(runner.events) == 300 for runner in runners))
    assert runners[0].events == list(range(300))
    assert runners[0].seqs == [None] * 300
    for runner in runners:
        await runner.leave()
    assert closed.is_set()
    assert not other_tasks()


async def test_a_subscriber_that_hangs_fails_and_other_subscribers_continue() -> None:
    """Streams B8: it held up all others for ever, once its queue was full."""

    class Plain(BaseEventTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "plain", {}

        @classmethod
        async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
            for number in range(200):
                yield number
            await asyncio.Event().wait()

        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                yield TriggerEvent(raw)

    keeper = Keeper()
    manager = SharedStreamManager(sink=keeper, max_subscriber_queue=10, ack_timeout=0.05)
    trigger = Plain()
    stuck = manager.subscribe(trigger_id=2, trigger=trigger, key=KEY)
    runner = Runner(manager, 1, trigger)
    assert await anext(stuck) == 0
    await until(lambda: len(runner.events) == 200)
    assert [(trigger_id, type(error)) for trigger_id, error in keeper.failures] == [(2, SubscriberOverflow)]
    with pytest.raises(SubscriberOverflow, match="misses what comes"):
        await anext(stuck)
    await manager.unsubscribe(2, KEY)
    await runner.leave()
    assert not other_tasks()
