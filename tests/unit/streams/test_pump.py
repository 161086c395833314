"""Advancing: in order within a lane, lanes independent, bounded, tried again."""

from __future__ import annotations

import asyncio

from headrace.errors import StreamEnded
from headrace.streams.hub import SharedStreamManager
from stream_kit import KEY, Feed, Runner, other_tasks, reads, until


async def test_lanes_advance_in_order_and_do_not_wait_for_one_another() -> None:
    hub, feed = SharedStreamManager(), Feed([("x", 1), ("y", 2), ("x", 3), ("y", 4)])
    feed.hold["x"] = asyncio.Event()
    runner = Runner(hub, 1, reads(feed)())
    await until(lambda: feed.of("y") == [2, 4])
    feed.feed(("x", 5), ("y", 6))
    await until(lambda: feed.of("y") == [2, 4, 6])
    assert feed.of("x") == []
    assert hub.statistics(KEY).outstanding == 3
    feed.hold["x"].set()
    await until(lambda: feed.of("x") == [1, 3, 5])
    assert feed.overlap == 2
    await runner.leave()


async def test_advances_are_bounded() -> None:
    hub, feed = SharedStreamManager(max_advances=2), Feed((lane, lane) for lane in range(9))
    runner = Runner(hub, 1, reads(feed)())
    await until(lambda: len(feed.advanced) == 9)
    assert feed.overlap == 2
    await runner.leave()


async def test_an_advance_that_raises_is_tried_again() -> None:
    hub, feed = SharedStreamManager(advance_backoff=(0.001, 0.001)), Feed(["a"])
    feed.failures[None] = 2
    runner = Runner(hub, 1, reads(feed)())
    await until(lambda: feed.advanced)
    assert not runner.task.done()
    await runner.leave()


async def test_an_advance_that_keeps_raising_ends_the_stream_while_other_lanes_finish() -> None:
    hub, feed = SharedStreamManager(advance_backoff=(0.001, 0.001), advance_attempts=2), Feed([("x", 1), ("y", 2)])
    feed.failures["x"] = 99
    feed.hold["y"] = asyncio.Event()
    runner = Runner(hub, 1, reads(feed)())
    error = await runner.error()
    assert isinstance(error, StreamEnded)
    assert "could not be advanced" in str(error.__cause__)
    assert not hub.keys()
    assert not feed.closed
    feed.hold["y"].set()
    await until(lambda: feed.closed)
    assert feed.of("y") == [2]
    assert feed.failures["x"] == 97
    await runner.leave()
    assert not other_tasks()
