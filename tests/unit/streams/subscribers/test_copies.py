"""A change that one trigger makes to a raw event is invisible to other triggers, spills and retries (streams C10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.manager import SharedStreamManager
from headrace.streams.subscribers.copies import copied, copier
from headrace.streams.subscribers.raw_text import from_text
from headrace.triggers.event import TriggerEvent
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import KEY, Engine, Feed, Keeper, MemoryUpstream, Reads, Runner, until

NESTED = {"n": 1, "inside": {"a": [1, {"b": 2}], "t": ([3],)}}


@pytest.mark.parametrize("form", ["text", "message", "flat", "nested", "list"])
async def test_changes_by_one_trigger_are_invisible_to_other_triggers(form: str) -> None:
    def value(raw: Any) -> Any:
        return raw.value if isinstance(raw, RawEvent) else raw

    class Changes(Reads):
        fails = 1

        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                found = value(raw)
                yield TriggerEvent(str(found))
                found.clear()
                if type(self).fails:
                    type(self).fails -= 1
                    raise RuntimeError

    data = b'{"n":1,"inside":{"a":[1,{"b":2}]}}'
    makes = {
        "text": RawEvent(data, "x", 1),
        "message": Message(data, "x", 1, "key", 2),
        "flat": {"n": 1},
        "nested": copied(NESTED) | {"inside": {"a": [1]}},
        "list": [{"n": 1}, [2]],
    }
    raw = makes[form]
    text = str(value(raw))
    feed, keeper = Feed([("x", raw)]), Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper)
    kind = type("ChangesFeed", (Changes,), {"feed": feed})
    engines = [Engine(manager, keeper, number, kind()) for number in (1, 2)]
    manager.register(trigger_ids=[1, 2, 3], key=KEY)
    if form != "list":
        manager.watch(triggers={4: WatchTrigger(upstream=MemoryUpstream.of(feed))}, key=KEY)
    for engine in engines:
        engine.start()
    await until(lambda: sum(len(engine.events) for engine in engines) == 3)
    assert [event for engine in engines for event in engine.events] == [text] * 3
    assert [len(engine.faults) for engine in engines].count(1) == 1
    assert all(text == str(value_of(spill.raw)) for spill in keeper.spills)
    await manager.stop_all()
    for engine in engines:
        await engine.stop()


def value_of(text: str) -> Any:
    raw = from_text(text, "x", 1)
    return raw.value if isinstance(raw, RawEvent) else raw


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3)
raws = st.recursive(
    scalars | st.builds(bytearray, st.binary(max_size=3)) | st.sets(st.integers(), max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def spoil(value: Any) -> None:
    """Change all that can be changed in a value."""
    if isinstance(value, dict | list | tuple):
        for one in [*value.values()] if isinstance(value, dict) else [*value]:
            spoil(one)
    if isinstance(value, dict):
        value["spoilt"] = True
    elif isinstance(value, list):
        value.append("spoilt")
    elif isinstance(value, set):
        value.add("spoilt")
    elif isinstance(value, bytearray):
        value += b"spoilt"


@given(given_raws=st.lists(raws, min_size=1, max_size=4), readers=st.integers(2, 4))
def test_subscribers_that_change_raw_events_receive_the_published_values(given_raws: list[Any], readers: int) -> None:
    seen: list[Any] = []

    class Spoils(Reads):
        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                seen.append(deepcopy(raw))
                spoil(raw)
                yield TriggerEvent(None)

    async def run() -> None:
        manager, kind = SharedStreamManager(), type("SpoilsFeed", (Spoils,), {"feed": Feed([("x", deepcopy(raw)) for raw in given_raws])})
        runners = [Runner(manager, number, kind()) for number in range(readers)]
        await until(lambda: len(seen) == readers * len(given_raws))
        for runner in runners:
            await runner.leave()

    asyncio.run(run())
    assert sorted(map(repr, seen)) == sorted([*map(repr, given_raws)] * readers)


def test_a_copier_makes_deep_copies_of_mutable_values() -> None:
    make = copier(NESTED)
    assert make is not None
    copy = make(NESTED)
    assert copy == NESTED
    copy["inside"]["a"][1]["b"] = 9
    copy["inside"]["t"][0].append(9)
    assert NESTED["inside"] == {"a": [1, {"b": 2}], "t": ([3],)}
    assert copier("text") is None
    assert copier(object()) is None
    message = Message(b"{}", "lane", 3, "key", 2)
    own = message.unread_copy()
    assert (type(own), own.data, own.lane, own.position, getattr(own, "key", None)) == (Message, b"{}", "lane", 3, "key")
    assert own.value is not message.value
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert copied(deep) is not deep
