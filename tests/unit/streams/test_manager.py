"""Lifecycle: a stream key is registered only while its poll runs and accepts subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceOutcome
from headrace.errors import StreamEnded, StreamError
from headrace.streams.manager import SharedStreamManager
from headrace.triggers.upstream import SharedStreamProducer
from support.sources.streams import KEY, STOP, Feed, Reads, Runner, other_tasks, reads, settle, until


@pytest.fixture
async def manager() -> AsyncIterator[SharedStreamManager]:
    manager = SharedStreamManager(advance_attempts=1)
    yield manager
    await manager.stop_all()
    assert not manager.keys()


async def test_all_subscribers_that_join_together_receive_the_first_raw_event(manager: SharedStreamManager) -> None:
    feed = Feed("abc")
    runners = [Runner(manager, number, reads(feed)()) for number in range(5)]
    await until(lambda: len(feed.advanced) == 3)
    assert [runner.events for runner in runners] == [["a", "b", "c"]] * 5
    assert feed.outcomes == [AdvanceOutcome(5, 0)] * 3
    assert feed.opened == 1
    for runner in runners:
        await runner.leave()
    assert feed.closed == 1
    assert not manager.keys()
    assert not other_tasks()


async def test_a_stream_key_is_required_and_a_trigger_id_subscribes_once(manager: SharedStreamManager) -> None:
    trigger = reads(Feed())()
    with pytest.raises(StreamError, match="not None"):
        manager.subscribe(trigger_id=1, trigger=trigger, key=None)
    manager.subscribe(trigger_id=1, trigger=trigger, key=KEY)
    with pytest.raises(StreamError, match="already"):
        manager.subscribe(trigger_id=1, trigger=trigger, key=KEY)
    assert manager.keys() == (KEY,)


async def test_a_serialize_method_that_raises_leaves_no_stream(manager: SharedStreamManager) -> None:
    class Unwritable(Reads):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        manager.subscribe(trigger_id=1, trigger=Unwritable(), key=KEY)
    assert not manager.keys()
    assert not other_tasks()


async def test_a_producer_that_cannot_be_created_ends_the_stream(manager: SharedStreamManager) -> None:
    class Unmakeable(Reads):
        @classmethod
        def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
            raise ConnectionError("no broker")

    runner = Runner(manager, 1, Unmakeable())
    error = await runner.error()
    assert isinstance(error, StreamEnded)
    assert isinstance(error.__cause__, ConnectionError)
    await runner.leave()


@pytest.mark.parametrize(("end", "cause"), [(ConnectionError("gone"), ConnectionError), (STOP, StreamEnded)])
async def test_an_ended_poll_ends_all_subscriptions_and_the_next_opens_a_new_stream(
    manager: SharedStreamManager, end: object, cause: type
) -> None:
    feed = Feed(["a"])
    runners = [Runner(manager, number, reads(feed)()) for number in range(3)]
    await until(lambda: feed.advanced)
    feed.feed(end)
    await until(lambda: not manager.keys())
    again = Feed(["b"])
    fresh = Runner(manager, 9, reads(again)())
    for runner in runners:
        error = await runner.error()
        assert isinstance(error, StreamEnded)
        assert isinstance(error.__cause__, cause)
        await runner.leave()
    await until(lambda: again.advanced)
    assert fresh.events == ["b"]
    assert feed.closed == 1
    assert not again.closed
    assert manager.statistics(KEY).counters.read == 2, "the counts go on"


async def test_a_stream_is_evicted_before_its_subscribers_receive_the_error(manager: SharedStreamManager) -> None:
    feed = Feed([ConnectionError("gone")])
    keys: list[object] = []

    async def watch() -> None:
        stream = manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
        with pytest.raises(StreamEnded):
            await anext(stream)
        keys.append(manager.keys())

    await watch()
    assert keys == [()]


async def test_the_last_subscriber_that_leaves_evicts_the_stream_before_it_waits(manager: SharedStreamManager) -> None:
    feed = Feed(["a"])
    feed.hold[None] = asyncio.Event()
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.running)
    leaving = asyncio.create_task(runner.leave())
    await until(lambda: not manager.keys())
    assert not leaving.done()
    again = Feed(["b"])
    fresh = Runner(manager, 1, reads(again)())
    await until(lambda: fresh.events)
    assert not leaving.done()
    feed.hold[None].set()
    await leaving
    assert feed.advanced == ["a"]
    assert feed.closed == 1


async def test_a_cancelled_unsubscribe_raises_and_still_stops_the_stream(manager: SharedStreamManager) -> None:
    feed = Feed(["a"])
    feed.hold[None] = asyncio.Event()
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.running)
    leaving = asyncio.create_task(runner.leave())
    await until(lambda: not manager.keys())
    leaving.cancel()
    await asyncio.wait({leaving})
    assert leaving.cancelled()
    assert not feed.closed
    feed.hold[None].set()
    await until(lambda: feed.closed)
    await until(lambda: not other_tasks())


async def test_several_subscribers_leave_concurrently(manager: SharedStreamManager) -> None:
    feed = Feed(range(5))
    runners = [Runner(manager, number, reads(feed)()) for number in range(10)]
    await until(lambda: feed.advanced)
    await asyncio.gather(*(runner.leave() for runner in runners))
    assert feed.closed == 1
    assert not other_tasks()


async def test_leaving_an_unknown_stream_has_no_effect(manager: SharedStreamManager) -> None:
    await manager.unsubscribe(1, "unknown")
    runner = Runner(manager, 1, reads(Feed())())
    await manager.unsubscribe(2, KEY)
    assert manager.keys() == (KEY,)
    await runner.leave()


async def test_leaving_before_the_start_of_the_stream_opens_no_upstream(manager: SharedStreamManager) -> None:
    feed = Feed(["a"])
    manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    await manager.unsubscribe(1, KEY)
    assert not feed.opened
    assert not feed.closed
    assert not other_tasks()


async def test_stop_advances_resolved_raw_events_only(manager: SharedStreamManager) -> None:
    feed = Feed([("x", 1), ("y", 2), ("y", 3)])
    feed.hold["x"] = asyncio.Event()
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(runner.seqs) == 3)
    manager.confirm_persisted([seq for seq in runner.seqs[:1] if seq is not None])
    await until(lambda: feed.running)
    manager.confirm_persisted([seq for seq in runner.seqs[1:2] if seq is not None])
    stopping = asyncio.create_task(manager.stop_all())
    await settle()
    assert not stopping.done(), "an advance is in flight"
    feed.hold["x"].set()
    await stopping
    assert feed.of("x") == [1]
    assert feed.of("y") == [2]
    assert feed.closed == 1
    assert isinstance(await runner.error(), StreamEnded)


async def test_stop_all_wakes_subscribers_that_wait_on_an_empty_queue(manager: SharedStreamManager) -> None:
    runners = [Runner(manager, number, reads(Feed())(), key=number) for number in range(3)]
    await settle()
    await manager.stop_all()
    for runner in runners:
        assert isinstance(await runner.error(), StreamEnded)
    assert not other_tasks()


async def test_a_cancelled_stream_task_ends_its_stream(manager: SharedStreamManager) -> None:
    feed = Feed(["a"])
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.advanced)
    for task in other_tasks() - {runner.task}:
        task.cancel()
    assert isinstance(await runner.error(), StreamEnded)
    assert not manager.keys()
    await until(lambda: feed.closed)
    await until(lambda: not other_tasks())


@pytest.mark.parametrize("name", ["headrace advancer", "headrace timer"])
async def test_a_fault_in_an_internal_task_ends_the_stream_with_an_error(
    manager: SharedStreamManager, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    broken = {"headrace advancer": "ledger.Ledger.take_ready", "headrace timer": "subscribers.SubscriberRegistry.deadline"}[name]
    monkeypatch.setattr(f"headrace.core.ledger.{broken}", fault)
    feed = Feed(["a"])
    runner = Runner(manager, 1, reads(feed)())
    error = await runner.error()
    assert isinstance(error, StreamEnded)
    assert not manager.keys()
    await until(lambda: feed.closed)


async def test_a_producer_that_does_not_close_is_logged(manager: SharedStreamManager) -> None:
    class Clings(Feed):
        async def aclose(self) -> None:
            await super().aclose()
            raise ConnectionError("still here")

    feed = Clings(["a"])
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.advanced)
    await runner.leave()
    assert feed.closed == 1


async def test_an_upstream_that_ignores_its_cancellation_still_ends(manager: SharedStreamManager) -> None:
    class Stubborn(Feed):
        async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
            for number in range(10):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    yield number, (None, number, number)

    feed = Stubborn()
    runner = Runner(manager, 1, reads(feed)())
    await settle()
    await runner.leave()
    assert feed.closed == 1
    assert runner.events == []


async def test_statistics_of_an_unknown_key_are_empty(manager: SharedStreamManager) -> None:
    statistics = manager.statistics(("a", "tuple"))
    assert (statistics.stream, statistics.state, statistics.counters.read) == ("('a', 'tuple')", "ended", 0)
