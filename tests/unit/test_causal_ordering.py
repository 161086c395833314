"""`CausalOrdering` as a program uses it: in memory, and with its own database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import CausalEvent, CausalOrdering, DeliveryPolicy, EventAlreadySeen, EventArrivedEarly

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = (NOW - EPOCH) // timedelta(microseconds=1)

    def __call__(self) -> int:
        return self.now

    def turn(self, time: timedelta) -> None:
        self.now += time // timedelta(microseconds=1)


def event(id: str, follows: str | None = None, second: int = 0) -> CausalEvent:
    return CausalEvent(id=id, follows=follows, occurred=NOW + timedelta(seconds=second), payload={"id": id})


class Consumer:
    """Handles events as they come and as they are handed to it, by one and the same function."""

    def __init__(self, ordering: CausalOrdering) -> None:
        self.ordering = ordering
        self.handled: list[str] = []
        self.bad: set[str] = set()

    async def handle(self, event: CausalEvent) -> None:
        async with self.ordering.preceding_event_confirmed(self.handle, event):
            if event.id in self.bad:
                raise ValueError(event.id)
            assert event.payload == {"id": event.id}
            self.handled.append(event.id)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
async def consumer(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Consumer]:
    store = None if request.param == "memory" else f"sqlite:///{tmp_path / 'ordering.db'}"
    async with CausalOrdering("tests", store, policy=DeliveryPolicy(max_attempts=2), clock=clock) as ordering:
        yield Consumer(ordering)


async def test_a_follower_waits_and_is_handled_after_its_leader(consumer: Consumer) -> None:
    for early in (event("c", "b"), event("b2", "a", 2), event("b", "a", 1)):
        with pytest.raises(EventArrivedEarly):
            await consumer.handle(early)
    assert [one.id for one in await consumer.ordering.get_followers(event("a"))] == ["b", "b2"]
    await consumer.handle(event("a"))
    assert consumer.handled == ["a", "b", "b2", "c"]
    assert await consumer.ordering.event_has_been_seen("c")
    for id in "abc":
        with pytest.raises(EventAlreadySeen):
            await consumer.handle(event(id))


async def test_a_reversed_chain_of_2_000_is_handled_without_recursion(consumer: Consumer) -> None:
    await consumer.ordering.offer(event(f"{n}", f"{n - 1}") for n in range(1_999, 0, -1))
    await consumer.handle(event("0"))
    assert consumer.handled == [f"{n}" for n in range(2_000)]


async def test_a_failing_follower_blocks_its_followers_until_it_is_redriven(consumer: Consumer, clock: Clock) -> None:
    consumer.bad = {"bad"}
    await consumer.ordering.offer([event("bad", "a"), event("held", "bad"), event("good", "a")])
    await consumer.handle(event("a"))
    assert consumer.handled == ["a", "good"]
    clock.turn(timedelta(minutes=5))
    await consumer.ordering.handle_ready(consumer.handle)
    assert (await consumer.ordering.counts()).dead == 1
    consumer.bad = set()
    assert await consumer.ordering.redrive() == 1
    await consumer.ordering.handle_ready(consumer.handle)
    assert consumer.handled == ["a", "good", "bad", "held"]


async def test_an_event_whose_body_fails_can_be_handled_again(consumer: Consumer) -> None:
    consumer.bad = {"a"}
    with pytest.raises(ValueError, match="a"):
        await consumer.handle(event("a"))
    assert not await consumer.ordering.event_has_been_seen("a")
    consumer.bad = set()
    await consumer.handle(event("a"))
    assert consumer.handled == ["a"]


async def test_lost_followers_are_handled_after_the_lookback_unless_they_were_dropped(consumer: Consumer, clock: Clock) -> None:
    await consumer.ordering.record_follower(event("b", "a"))
    await consumer.ordering.record_follower(event("c", "b"))
    await consumer.ordering.record_follower(event("x", "y"))
    await consumer.ordering.forget_follower(event("x", "y"))
    assert await consumer.ordering.event_has_been_seen("x")
    clock.turn(timedelta(minutes=15))
    assert [(one.id, one.mark) for one in await consumer.ordering.get_lost_followers()] == [("b", "lost")]
    clock.turn(timedelta(minutes=2))
    await consumer.ordering.handle_ready(consumer.handle)
    assert consumer.handled == ["b", "c"]
    await consumer.handle(event("a"))
    counts = await consumer.ordering.counts()
    assert (counts.lost, counts.late, counts.handled) == (1, 1, 4)
