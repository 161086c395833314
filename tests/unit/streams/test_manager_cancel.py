"""Cancellation at each await of leaving and stopping leaves no task behind and is never swallowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.streams.manager import SharedStreamManager
from support.sources.streams import KEY, Engine, Feed, Keeper, reads, settle, until

WAYS: dict[str, Callable[[SharedStreamManager], Awaitable[None]]] = {
    "unsubscribe": lambda manager: manager.unsubscribe(3, KEY),
    "unregister": lambda manager: manager.unregister(trigger_ids=[1, 2], key=KEY),
    "stop": lambda manager: manager.stop(KEY),
    "stop_all": lambda manager: manager.stop_all(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("turns", range(9))
@pytest.mark.parametrize("before", [0, 2, 5])
async def test_a_cancellation_after_any_number_of_turns_leaves_no_tasks(way: str, turns: int, before: int) -> None:
    feed, keeper = Feed(range(5)), Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper)
    alone = way == "unsubscribe"
    mine = asyncio.all_tasks()
    engines: list[Engine] = []
    if alone:
        manager.subscribe(trigger_id=3, trigger=reads(feed)(), key=KEY)
    else:
        manager.register(trigger_ids=[1, 2], key=KEY)
        engines.append(Engine(manager, keeper, 1, reads(feed)()))
        engines[0].start()
    await settle(before)
    leaving = asyncio.ensure_future(WAYS[way](manager))
    await settle(turns)
    was_done = leaving.done()
    leaving.cancel()
    await asyncio.wait({leaving})
    assert leaving.cancelled() != was_done, "a cancellation is not swallowed"
    await WAYS[way](manager)
    await until(lambda: not asyncio.all_tasks() - mine)
    assert not manager.keys()
    assert feed.opened <= feed.closed <= 1
    assert feed.advanced == sorted(feed.advanced)


@pytest.mark.parametrize("turns", range(12))
async def test_a_filter_that_is_cancelled_while_it_reads_its_backlog_loses_no_entry(turns: int) -> None:
    feed, keeper = Feed([5, 6]), Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper)
    for number in range(5):
        keeper.keep(1, "old", number, f"\x1e{number}")
    manager.register(trigger_ids=[1], key=KEY)
    engine = Engine(manager, keeper, 1, reads(feed)())
    engine.start()
    await settle(turns)
    await engine.stop()
    engine.start()
    await until(lambda: engine.events[-1:] == [6])
    assert list(dict.fromkeys(engine.events)) == [0, 1, 2, 3, 4, 5, 6]
    assert len(engine.events) <= 8, "at most what it was at comes again"
    await until(lambda: not keeper.backlog(1).entries)
    await until(lambda: feed.advanced == [5, 6])
    await manager.stop_all()
