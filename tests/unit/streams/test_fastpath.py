"""Streams without acks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from headrace.streams.hub import SharedStreamManager
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from stream_kit import Runner, other_tasks, until


async def test_the_fast_path_has_the_same_shape_and_no_acks() -> None:
    hub = SharedStreamManager()
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
    runners = [Runner(hub, number, trigger) for number in range(2)]
    await until(lambda: all(len(runner.events) == 300 for runner in runners))
    assert runners[0].events == list(range(300))
    assert runners[0].seqs == [None] * 300
    for runner in runners:
        await runner.leave()
    assert closed.is_set()
    assert not other_tasks()
