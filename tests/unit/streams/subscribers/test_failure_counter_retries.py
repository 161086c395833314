"""A failed raw event is retried after growing waits, and delays only its own lane."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.core.ledger.obligations import Lane, PendingEvent
from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import Poisoned
from headrace.streams.subscribers.failure_counter import MAX_COUNTED, FailureCounter, retry_wait
from headrace.triggers.event import TriggerEvent
from support.sources.streams import KEY, Engine, Feed, Keeper, Reads, other_tasks, settle, until

LONG = 1_000_000.0


class Fails(Reads):
    """Raises on each raw event as often as `times` says."""

    def __init__(self, times: dict[Any, int]) -> None:
        super().__init__()
        self.times = times
        self.given: Counter[Any] = Counter()

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in stream:
            self.given[raw] += 1
            if self.times.get(raw, 0) > 0:
                self.times[raw] -= 1
                raise ValueError(f"not {raw} now")
            yield TriggerEvent(raw)


class Scene:
    """A manager with a clock that stands, a trigger that fails, and its keeper."""

    def __init__(self, items: Any, times: dict[Any, int], **bounds: Any) -> None:
        self.now = 1000.0
        self.feed, self.keeper = Feed(items), Keeper()
        self.manager = self.keeper.manager = SharedStreamManager(sink=self.keeper, **{"clock": lambda: self.now} | bounds)
        self.manager.register(trigger_ids=[1], key=KEY)
        self.trigger = type("FailsOnFeed", (Fails,), {"feed": self.feed})(times)
        self.engine = Engine(self.manager, self.keeper, 1, self.trigger)
        self.engine.start()

    def after(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.now += seconds
        self.manager.recheck_backlog(trigger_id=1, key=KEY)

    async def close(self) -> None:
        await self.manager.stop_all()
        await settle()
        assert not other_tasks()


def of(events: list[Any], lane: str) -> list[Any]:
    return [event for event in events if event[0] == lane]


def interleaved(lanes: str, count: int) -> list[tuple[str, str]]:
    return [(lane, f"{lane}{n}") for n in range(count) for lane in lanes]


@pytest.mark.parametrize("queue", [1, 4, 100])
async def test_a_waiting_lane_delays_neither_other_lanes_nor_the_broker(queue: int) -> None:
    scene = Scene(interleaved("xy", 20), {"x3": 2}, max_subscriber_queue=queue, retry_wait=LONG)
    await until(lambda: len(of(scene.engine.events, "y")) == 20)
    await until(lambda: len(scene.feed.advanced) == 40)
    scene.feed.feed(*[("y", f"y{n}") for n in range(20, 30)], ("x", "x20"))
    await until(lambda: len(of(scene.engine.events, "y")) == 30)
    await until(lambda: len(scene.feed.advanced) == 51)
    assert of(scene.engine.events, "x") == ["x0", "x1", "x2"]
    assert of(scene.engine.events, "y") == [f"y{n}" for n in range(30)]
    [retry] = scene.manager.statistics(KEY).retrying
    assert (retry.trigger_id, retry.lane, retry.attempts, retry.error) == (1, "x", 2, "ValueError: not x3 now")
    assert 0 < retry.seconds <= LONG
    scene.after(LONG)
    await until(lambda: len(scene.engine.events) == 51)
    assert of(scene.engine.events, "x") == [f"x{n}" for n in range(21)]
    assert scene.manager.statistics(KEY).retrying == ()
    scene.feed.feed(("x", "x21"))
    fetches = scene.keeper.backlog(1).fetches
    await until(lambda: len(scene.engine.events) == 52)
    assert scene.keeper.backlog(1).fetches == fetches, "the trigger reads its queue again"
    assert not scene.keeper.letters
    assert set(scene.trigger.given.values()) == {1, 3}
    await scene.close()


async def test_an_outage_of_two_minutes_causes_no_dead_letter() -> None:
    scene = Scene([("x", "x0")], {"x0": 5})
    begun = scene.now
    while not scene.keeper.letters:
        await settle()
        scene.after(1)
    assert 120 < scene.now - begun < 600
    [letter] = scene.keeper.letters
    assert isinstance(letter, Poisoned)
    assert (letter.attempts, len(letter.times), letter.reason) == (5, 5, "ValueError: not x0 now")
    await scene.close()


async def test_a_lane_is_retried_when_its_wait_ends() -> None:
    scene = Scene(interleaved("xyz", 10), {"x2": 4, "z5": 3}, clock=asyncio.get_running_loop().time, retry_wait=0.05)
    await until(lambda: len(scene.engine.events) == 30)
    for lane in "xyz":
        assert of(scene.engine.events, lane) == [f"{lane}{n}" for n in range(10)]
    assert not scene.keeper.letters
    assert (scene.trigger.given["x2"], scene.trigger.given["z5"]) == (5, 4)
    await scene.close()


async def test_a_raw_event_that_no_backlog_can_store_is_retried_in_place() -> None:
    class Odd:
        pass

    odd = Odd()
    scene = Scene([("x", odd), ("x", "x1")], {odd: 99}, retry_wait=LONG)
    await until(lambda: "x1" in scene.engine.events)
    [letter] = scene.keeper.letters
    assert isinstance(letter, Poisoned)
    assert letter.attempts == 5
    await scene.close()


async def test_a_redriven_dead_letter_has_all_its_attempts() -> None:
    scene = Scene([("x", "x0")], {"x0": 8}, retry_wait=0.0)
    await until(lambda: scene.keeper.letters)
    raw = scene.keeper.letters[0].raw
    scene.keeper.keep(1, "x", 1, raw)
    scene.after(0)
    await until(lambda: scene.engine.events == ["x0"])
    assert scene.trigger.given["x0"] == 9
    assert len(scene.keeper.letters) == 1
    await scene.close()


@pytest.mark.parametrize("seed", range(12))
async def test_each_lane_stays_in_order_and_complete_despite_any_failures(seed: int) -> None:
    chance = random.Random(seed)
    lanes = "abcdefgh"[: chance.randint(1, 8)]
    items = [(lane, f"{lane}{n}") for n in range(60) for lane in lanes if chance.random() < 0.9]
    times = {raw: chance.randint(1, 6) for _, raw in items if chance.random() < 0.1}
    scene = Scene(
        items[:100],
        dict(times),
        clock=asyncio.get_running_loop().time,
        max_subscriber_queue=chance.choice([1, 3, 1000]),
        max_outstanding=chance.choice([4, 1000]),
        retry_wait=chance.choice([0.005, 0.02]),
    )
    fed = 100
    poison = {raw for raw, count in times.items() if count >= 5}
    wanted = [raw for _, raw in items if raw not in poison]

    def is_done() -> bool:
        return fed >= len(items) and len(scene.engine.events) >= len(wanted) and len(scene.keeper.letters) >= len(poison)

    while not is_done():
        await settle(chance.randint(1, 40))
        what = chance.random()
        if what < 0.3:
            scene.feed.feed(*items[fed : fed + 20])
            fed += 20
        elif what < 0.33:
            await scene.engine.stop()
            scene.engine.start()
    await settle()
    assert Counter(scene.engine.events) == Counter(wanted), seed
    for lane in lanes:
        assert of(scene.engine.events, lane) == of(wanted, lane), (seed, lane)
    await until(lambda: len(scene.feed.advanced) == len(items))
    await until(lambda: not scene.keeper.backlog(1).entries)
    await scene.close()


def test_waits_grow_with_jitter() -> None:
    chance = random.Random(1)
    waits = [[retry_wait(failures, 5, 250.0, chance) for _ in range(1000)] for failures in range(1, 5)]
    assert set(waits[0]) == {0.0}
    for found, longest in zip(waits[1:], (10.0, 50.0, 250.0), strict=True):
        assert longest / 2 <= min(found) < longest * 0.51
        assert longest * 0.99 < max(found) <= longest


def test_counts_of_failures_are_bounded() -> None:
    trouble, lane = FailureCounter(), Lane("x")
    entries = [PendingEvent(n, None, lane, n, 0.0, n) for n in range(2 * MAX_COUNTED)]
    for entry in entries:
        assert trouble.count(entry).attempts == 1
    assert trouble.count(entries[-1]).attempts == 2
    assert trouble.count(entries[0]).attempts == 1, "the oldest is forgotten"
    assert trouble.count(entries[-1]).times[-1] <= datetime.now(UTC)
