"""An invalid raw event or a faulty producer causes one dead letter or one named error, and affects no other raw event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamEnded, StreamError
from headrace.streams.manager import SharedStreamManager
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import KEY, Engine, Feed, Keeper, MemoryUpstream, Runner, other_tasks, reads, until


def raises(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Unhashable:
    def __hash__(self) -> int:
        raise SystemExit(3)


ERRORS: list[BaseException] = [
    ValueError("no"),
    Unprintable(),
    ValueError("\udcff"),
    SystemExit(2),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    BaseException("base"),
    StopAsyncIteration(),
    RecursionError(),
]
ODD_LANES = [*map(raises, ERRORS), list, dict, Unhashable]
ODD_POSITIONS = [*map(raises, ERRORS), *(lambda odd=odd: odd for odd in (1.5, "12-0", True, 2**63, -(2**70), b"1", [1], Unprintable()))]


class Odd(Feed):
    """What is fed as `("odd", raw)` has the lane or position that `lane` or `position` gives."""

    lane: Callable[[], Any] | None = None
    position: Callable[[], Any] | None = None

    def get_advance_lane(self, broker_payload: Any) -> Any:
        return self.lane() if self.lane is not None and broker_payload[0] == "odd" else broker_payload[0]

    def get_position(self, broker_payload: Any) -> Any:
        return self.position() if self.position is not None and broker_payload[0] == "odd" else broker_payload[1]


@pytest.mark.parametrize("what", ["lane", "position"])
async def test_an_invalid_lane_or_position_is_one_dead_letter_for_all_triggers(what: str) -> None:
    for odd in ODD_LANES if what == "lane" else ODD_POSITIONS:
        feed, keeper = Odd([("x", {"n": 1}), ("odd", {"n": 2}), ("x", {"n": 3})]), Keeper()
        setattr(feed, what, odd)
        manager = keeper.manager = SharedStreamManager(sink=keeper)
        manager.register(trigger_ids=[1], key=KEY)
        manager.watch(triggers={2: WatchTrigger(upstream=MemoryUpstream.of(feed), id="$.n")}, key=KEY)
        engine = Engine(manager, keeper, 1, reads(feed)())
        engine.start()
        await until(lambda: len(feed.advanced) == 3)  # noqa: B023
        assert engine.events == [{"n": 1}, {"n": 3}]
        assert [event.value for event in keeper.events] == [{"n": 1}, {"n": 3}]
        [letter] = keeper.dead
        assert (letter.trigger_ids, letter.position) == ((1, 2), None)
        assert "producer" in letter.reason
        letter.reason.encode()
        outcomes = dict(zip((raw["n"] for raw in feed.advanced), feed.outcomes, strict=True))
        assert outcomes == {1: AdvanceOutcome(2, 0), 2: AdvanceOutcome(0, 0, 2), 3: AdvanceOutcome(2, 0)}
        await manager.stop_all()
        await engine.stop()
        assert feed.closed == 1


async def test_a_raw_event_without_a_lane_waits_until_earlier_raw_events_are_advanced() -> None:
    feed = Odd([("x", 1), ("odd", 2), ("x", 3)])
    feed.lane = raises(ValueError("no"))
    manager = SharedStreamManager()
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: runner.events == [1])
    assert feed.advanced == []
    manager.confirm_persisted([seq for seq in runner.seqs if seq is not None])
    await until(lambda: runner.events == [1, 3])
    assert feed.advanced == [1, 2]
    await manager.stop_all()
    await runner.leave()


@pytest.mark.parametrize("lane", ["a\udcff.jsonl", "a\0b", "x" * 3000, ("tuple", "\udcff"), 7, None])
async def test_any_lane_has_a_storable_name(lane: Any) -> None:
    feed, keeper = Feed(), Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper)
    manager.watch(triggers={1: WatchTrigger(upstream=MemoryUpstream.of(feed))}, key=KEY)
    feed.feed((lane, {"n": 1}))
    await until(lambda: feed.advanced)
    [event] = keeper.events
    event.lane.encode()
    assert "\0" not in event.lane
    assert len(event.lane) <= 500
    await manager.stop_all()


class OddMapping(dict[str, Any]):
    def keys(self) -> Any:
        raise SystemExit(4)

    def __iter__(self) -> Any:
        raise KeyboardInterrupt

    def __eq__(self, other: object) -> bool:
        raise asyncio.CancelledError

    __hash__ = None

    def __repr__(self) -> str:
        raise SystemExit(5)


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = value
    return value


def deep(depth: int, kind: type) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if kind is dict else [value]
    return {"a": value}


ODD_RAWS = [
    OddMapping(a=1),
    cyclic(),
    deep(250, dict),
    deep(250, list),
    deep(100_000, list),
    {"a": "\udcff"},
    {"\udcff": 1},
    {1: 2, "1": 3},
    {"a": object()},
    Unprintable(),
    object(),
    float("nan"),
    b"\xff",
    RawEvent("a text", "x", 1),  # type: ignore[arg-type]
    RawEvent(None, "x", 1),  # type: ignore[arg-type]
    RawEvent(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "x", 1),
    RawEvent(b'{"a":' + b"[" * 250 + b"]" * 250 + b"}", "x", 1),
    RawEvent(b"\xff\xfe", "x", 1),
    RawEvent(b'"\\ud800"', "x", 1),
    RawEvent(b"1" * 5000, "x", 1),
    RawEvent(b"", "x", 1),
]


@pytest.mark.parametrize("number", range(len(ODD_RAWS)))
async def test_an_invalid_raw_event_causes_at_most_one_dead_letter_of_a_watch(number: int) -> None:
    raw = ODD_RAWS[number]
    feed, keeper = Feed([("x", raw), ("x", {"a": 1})]), Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper)
    manager.register(trigger_ids=[1], key=KEY)
    manager.watch(triggers={2: WatchTrigger(upstream=MemoryUpstream.of(feed), match={"a": [1]})}, key=KEY)
    await until(lambda: len(feed.advanced) == 2)
    assert sum(2 in letter.trigger_ids for letter in keeper.dead) <= 1
    assert len(keeper.dead) + len(keeper.spills) <= 3
    assert [event.value for event in keeper.events][-1:] == [{"a": 1}]
    for letter in keeper.dead:
        letter.reason.encode()
        assert isinstance(letter.raw.data, bytes)
    for spill in keeper.spills:
        spill.raw.encode()
    assert manager.keys() == (KEY,)
    await manager.stop_all()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["make", "open", "first", "later"])
async def test_any_exception_of_an_upstream_ends_its_stream_with_a_printable_error(where: str, error: BaseException) -> None:
    class Raises(Feed):
        def open_stream(self) -> Any:
            if where == "open":
                raise error
            return self.items()

        async def items(self) -> AsyncIterator[tuple[Any, Any]]:
            if where == "later":
                yield {"n": 1}, ("x", 1, 1)
            raise error

    feed, keeper = Raises(), Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper)
    trigger = WatchTrigger(upstream=MemoryUpstream.of(feed))
    if where == "make":
        made = SharedStreamManager(sink=keeper)
        upstream = trigger.upstream
        upstream.producer = raises(error)  # type: ignore[method-assign]
        manager = made
        MemoryUpstream.feeds[KEY] = None  # type: ignore[assignment]
    manager.watch(triggers={1: trigger}, key=KEY)
    await until(lambda: keeper.ends)
    [(_, _, ended)] = keeper.ends
    str(ended).encode()
    assert not manager.keys()
    await manager.stop_all()
    await until(lambda: not other_tasks())


@pytest.mark.parametrize("item", [None, 7, (1,), (1, 2, 3), "ab\udcffc", Unprintable()])
async def test_an_item_that_is_not_a_pair_ends_the_stream(item: Any) -> None:
    class Wrong(Feed):
        async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
            yield item

    keeper = Keeper()
    manager = keeper.manager = SharedStreamManager(sink=keeper)
    manager.watch(triggers={1: WatchTrigger(upstream=MemoryUpstream.of(Wrong()))}, key=KEY)
    await until(lambda: keeper.ends)
    assert "not (raw_event, broker_payload)" in str(keeper.ends[0][2])
    await manager.stop_all()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_any_exception_of_advance_is_a_failed_advance_and_is_retried(error: BaseException) -> None:
    class Raises(Feed):
        times = 2

        async def advance(self, batch: Sequence[AdvanceItem]) -> None:
            if self.times:
                self.times -= 1
                raise error
            await super().advance(batch)

        async def aclose(self) -> None:
            await super().aclose()
            raise error

    manager, feed = SharedStreamManager(advance_backoff=(0.001, 0.001)), Raises([("x", 1)])
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.advanced == [1])
    assert manager.statistics(KEY).counters.advance_errors == 2
    await runner.leave()
    assert feed.closed == 1
    await until(lambda: not other_tasks())


class Stubborn(SharedStreamProducer):
    """Swallows every cancellation until it is let go, in the method that `where` names."""

    def __init__(self, where: str, swallows: int = 1_000_000) -> None:
        self.where = where
        self.swallows = swallows
        self.let_go = asyncio.Event()
        self.hangs = False

    async def hang(self, where: str) -> None:
        while where == self.where and not self.let_go.is_set():
            self.hangs = True
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.swallows -= 1
                if self.swallows < 0:
                    raise

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        try:
            yield 1, 1
            await self.hang("poll")
            if not self.let_go.is_set():
                await asyncio.Event().wait()
        finally:
            await self.hang("generator")

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        await self.hang("advance")

    async def aclose(self) -> None:
        await self.hang("aclose")


@pytest.mark.parametrize("where", ["poll", "generator", "advance", "aclose"])
@pytest.mark.parametrize("how", ["stop", "unsubscribe", "stop_all"])
async def test_stopping_ends_for_any_producer(where: str, how: str) -> None:
    manager = SharedStreamManager(close_timeout=0.3, advance_timeout=1000)
    producer: Any = Stubborn(where)
    runner = Runner(manager, 1, reads(producer)())
    await until(lambda: producer.hangs or where in ("generator", "aclose"))
    await until(lambda: runner.events)
    if how == "unsubscribe":
        await runner.leave()
    else:
        await (manager.stop(KEY) if how == "stop" else manager.stop_all())
    assert not manager.keys()
    assert manager.statistics(KEY).left_behind == 1
    producer.let_go.set()
    await runner.leave()
    await until(lambda: not other_tasks())
    assert manager.statistics(KEY).left_behind == 0


async def test_a_poll_that_swallows_a_cancellation_is_cancelled_again() -> None:
    manager = SharedStreamManager(close_timeout=0.3)
    producer: Any = Stubborn("poll", swallows=1)
    runner = Runner(manager, 1, reads(producer)())
    await until(lambda: producer.hangs)
    await manager.stop_all()
    assert manager.statistics(KEY).left_behind == 0
    assert isinstance(await runner.error(), StreamEnded)
    await until(lambda: not other_tasks())


async def test_an_advance_that_does_not_end_is_abandoned_and_named() -> None:
    manager = SharedStreamManager(close_timeout=0.2, advance_timeout=0.02)
    producer: Any = Stubborn("advance")
    runner = Runner(manager, 1, reads(producer)())
    error = await runner.error()
    assert isinstance(error, StreamEnded)
    assert isinstance(error.__cause__, StreamError)
    assert "left behind" in str(error)
    assert manager.statistics(KEY).left_behind == 1
    await runner.leave()
    producer.let_go.set()
    await until(lambda: not other_tasks())
