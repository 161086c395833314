"""A subscription: reading, cancellation and rejection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceOutcome
from headrace.errors import StreamEnded, StreamError
from headrace.streams.manager import SharedStreamManager
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import SKIP, Handled, Reject, TriggerEvent, reject_shared_stream_event
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer
from support.sources.streams import KEY, Feed, Reads, Runner, reads, settle, until


class Refuses(Reads):
    """Rejects odd numbers in a way that `how` names."""

    how = "here"

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        while True:
            raw = await asyncio.wait_for(anext(stream), 60) if self.how == "wait_for" else await anext(stream)
            if raw % 2 == 0:
                yield TriggerEvent(raw)
            elif self.how == "task":
                await asyncio.create_task(self._reject())
            elif self.how == "thread":
                await asyncio.to_thread(reject_shared_stream_event)
            else:
                reject_shared_stream_event("odd")

    async def _reject(self) -> None:
        reject_shared_stream_event("odd")


@pytest.mark.parametrize("how", ["here", "wait_for", "task", "thread"])
async def test_a_filter_can_reject_from_any_task_or_thread(how: str) -> None:
    manager, feed = SharedStreamManager(), Feed(range(4))
    runner = Runner(manager, 1, type("RefusesFeed", (Refuses,), {"feed": feed, "how": how})())
    await until(lambda: len(feed.advanced) == 4)
    assert feed.outcomes == [AdvanceOutcome(1, 0), AdvanceOutcome(0, 0, 1)] * 2
    assert manager.statistics(KEY).counters.rejected == 2
    await runner.leave()


async def test_a_rejection_outside_an_open_raw_event_has_no_effect(capsys: pytest.CaptureFixture[str]) -> None:
    manager, feed = SharedStreamManager(), Feed(["a"])
    reject_shared_stream_event()
    stream = manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    assert await anext(stream) == "a"
    pulling = asyncio.create_task(_pull(stream))
    await until(lambda: feed.advanced)
    reject_shared_stream_event("too late")
    pulling.cancel()
    await manager.unsubscribe(1, KEY)
    assert feed.outcomes == [AdvanceOutcome(1, 0)]
    assert capsys.readouterr().out.count("Nothing to reject") == 2


async def _pull(stream: AsyncIterator[Any]) -> Any:
    return await anext(stream)


async def test_an_event_that_follows_a_rejection_is_not_bound() -> None:
    class Both(Reads):
        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                reject_shared_stream_event()
                yield TriggerEvent(raw)

    manager, feed = SharedStreamManager(), Feed(["a"])
    runner = Runner(manager, 1, type("BothFeed", (Both,), {"feed": feed})())
    await until(lambda: feed.advanced)
    await until(lambda: runner.seqs == [None])
    assert feed.outcomes == [AdvanceOutcome(0, 0, 1)]
    await runner.leave()


async def test_handle_is_called_for_each_raw_event() -> None:
    class Handles(BaseEventTrigger):
        feed = Feed([0, 1, 2, 3, 4])

        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "handles", {}

        @classmethod
        def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
            return cls.feed

        async def handle(self, raw: int) -> Handled:
            if raw == 4:
                return TriggerEvent(RawEvent(b"{", "lane", raw).value)
            return (TriggerEvent(raw), [TriggerEvent("x"), TriggerEvent("y")], SKIP, Reject("three"))[raw]

    manager, feed = SharedStreamManager(), Handles.feed
    runner = Runner(manager, 1, Handles())
    await until(lambda: len(feed.advanced) == 5)
    assert runner.events == [0, "x", "y"]
    assert feed.outcomes == [AdvanceOutcome(1, 0)] * 3 + [AdvanceOutcome(0, 0, 1)] * 2, "the malformed one is rejected"
    await runner.leave()


async def test_a_filter_can_be_cancelled_at_any_await() -> None:
    manager = SharedStreamManager()
    feed = Feed()
    stream = manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.01)
    feed.feed("a")
    assert await anext(stream) == "a"
    await manager.unsubscribe(1, KEY)
    with pytest.raises(StreamEnded, match="left"):
        await anext(stream)


async def test_two_tasks_cannot_read_the_same_subscription() -> None:
    manager = SharedStreamManager()
    stream = manager.subscribe(trigger_id=1, trigger=reads(Feed())(), key=KEY)
    first = asyncio.create_task(_pull(stream))
    await settle()
    with pytest.raises(StreamError, match="Two tasks"):
        await anext(stream)
    first.cancel()
    await manager.unsubscribe(1, KEY)
