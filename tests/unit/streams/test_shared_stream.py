"""Resolution: which subscribers must answer, which answers count, and when the broker is advanced."""

from __future__ import annotations

import asyncio
import random

import pytest

from headrace.core.ledger.outcome import AdvanceOutcome
from headrace.errors import AckTimeout, SubscriberOverflow
from headrace.streams.manager import SharedStreamManager
from support.sources.streams import KEY, Feed, Runner, other_tasks, reads, settle, until


def seqs(runner: Runner) -> list[int]:
    return [seq for seq in runner.seqs if seq is not None]


async def test_a_raw_event_is_acked_when_all_its_trigger_events_are_persisted() -> None:
    manager, feed = SharedStreamManager(), Feed(["a", "b"])
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(runner.events) == 2)
    await settle()
    assert feed.advanced == []
    manager.confirm_persisted([*seqs(runner)[:1], -1, 12345])
    await until(lambda: feed.advanced == ["a"])
    manager.confirm_persisted(seqs(runner)[:1])
    await settle()
    assert feed.advanced == ["a"]
    await runner.leave()
    assert feed.outcomes == [AdvanceOutcome(1, 0)]


async def test_skipped_raw_events_resolve_when_the_filter_continues() -> None:
    manager, feed = SharedStreamManager(), Feed(range(4))
    runner = Runner(manager, 1, reads(feed)(lambda raw: raw == 2))
    await until(lambda: len(feed.advanced) == 4)
    assert runner.events == [2]
    statistics = manager.statistics(KEY)
    assert (statistics.counters.read, statistics.counters.advanced, statistics.counters.filtered) == (4, 4, 3)
    await runner.leave()


async def test_the_subscribers_that_must_answer_are_fixed_at_fan_out() -> None:
    manager, feed = SharedStreamManager(), Feed(["a"])
    first = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: first.events)
    late = Runner(manager, 2, reads(feed)())
    manager.confirm_persisted(seqs(first))
    await until(lambda: feed.advanced == ["a"])
    assert feed.outcomes == [AdvanceOutcome(1, 0)]
    assert late.events == []
    await first.leave()
    await late.leave()


async def test_without_a_live_subscriber_raw_events_advance_with_no_answers() -> None:
    manager, feed = SharedStreamManager(ack_timeout=0.02), Feed(["a"])
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    assert isinstance(await runner.error(), AckTimeout)
    feed.feed("b")
    await until(lambda: feed.advanced == ["a", "b"])
    assert feed.outcomes == [AdvanceOutcome(0, 1), AdvanceOutcome(0, 0)]
    assert not feed.outcomes[1].is_clean
    await runner.leave()


async def test_a_leaving_subscriber_acks_its_open_raw_event_and_fails_unread_raw_events() -> None:
    manager, feed = SharedStreamManager(), Feed(range(3))
    stays = Runner(manager, 1, reads(feed)())
    leaves = manager.subscribe(trigger_id=2, trigger=reads(feed)(), key=KEY)
    assert await anext(leaves) == 0
    await until(lambda: len(stays.events) == 3)
    await manager.unsubscribe(2, KEY)
    await until(lambda: len(feed.advanced) == 3)
    assert feed.outcomes == [AdvanceOutcome(2, 0), AdvanceOutcome(1, 1), AdvanceOutcome(1, 1)]
    await stays.leave()


async def test_an_ack_timeout_fails_only_the_subscriber_that_does_not_answer() -> None:
    manager, feed = SharedStreamManager(ack_timeout=0.05), Feed(["a"])
    stuck = manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    good = Runner(manager, 2, reads(feed)())
    await until(lambda: feed.advanced)
    assert feed.outcomes == [AdvanceOutcome(1, 1)]
    with pytest.raises(AckTimeout):
        await anext(stuck)
    feed.feed("b")
    await until(lambda: feed.advanced == ["a", "b"])
    assert feed.outcomes[1] == AdvanceOutcome(1, 0)
    assert manager.statistics(KEY).counters.failed == 1
    assert not good.task.done()
    await manager.unsubscribe(1, KEY)
    await good.leave()


async def test_a_departed_subscriber_without_confirmation_times_out() -> None:
    manager, feed = SharedStreamManager(ack_timeout=0.05), Feed(["a"])
    stays = Runner(manager, 1, reads(feed)())
    leaves = Runner(manager, 2, reads(feed)(), confirm=False)
    await until(lambda: leaves.events)
    await leaves.leave()
    again = Runner(manager, 2, reads(feed)())
    await until(lambda: feed.advanced)
    assert feed.outcomes == [AdvanceOutcome(1, 1)]
    assert not again.task.done(), "the new subscription owes nothing"
    await stays.leave()
    await again.leave()


async def test_overflow_block_pauses_the_poll_without_loss() -> None:
    manager, feed = SharedStreamManager(max_subscriber_queue=2), Feed(range(20))
    slow = manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    fast = Runner(manager, 2, reads(feed)())
    await settle()
    assert feed.read == 2
    for expected in range(20):
        assert await anext(slow) == expected
        await settle(5)
        assert feed.read <= expected + 3
    await until(lambda: fast.events == list(range(20)))
    await manager.unsubscribe(1, KEY)
    await fast.leave()
    assert feed.outcomes == [AdvanceOutcome(2, 0)] * 20


async def test_the_poll_continues_after_a_full_subscriber_leaves() -> None:
    manager, feed = SharedStreamManager(max_subscriber_queue=1), Feed(range(5))
    manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    fast = Runner(manager, 2, reads(feed)())
    await settle()
    assert feed.read == 1
    await manager.unsubscribe(1, KEY)
    await until(lambda: len(feed.advanced) == 5)
    await fast.leave()


async def test_overflow_fail_fails_only_the_slow_subscriber() -> None:
    manager, feed = SharedStreamManager(max_subscriber_queue=2, overflow="fail"), Feed(range(20))
    slow = manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    fast = Runner(manager, 2, reads(feed)())
    await until(lambda: len(feed.advanced) == 20)
    assert fast.events == list(range(20))
    with pytest.raises(SubscriberOverflow):
        await anext(slow)
    assert feed.outcomes[:4] == [AdvanceOutcome(1, 1)] * 3 + [AdvanceOutcome(1, 0)], "it owes also the one that it failed on"
    await manager.unsubscribe(1, KEY)
    await fast.leave()


async def test_the_poll_pauses_at_max_outstanding() -> None:
    manager, feed = SharedStreamManager(max_outstanding=3), Feed(range(10))
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(runner.events) == 3)
    await settle()
    assert feed.read == 3
    manager.confirm_persisted(seqs(runner)[1:2])
    await settle()
    assert feed.read == 3, "the first still holds the lane"
    manager.confirm_persisted(seqs(runner)[:1])
    await until(lambda: len(runner.events) == 5)
    await settle()
    assert feed.read == 5
    await runner.leave()


@pytest.mark.parametrize("seed", range(12))
async def test_each_raw_event_advances_once_and_in_order_under_random_actions(seed: int) -> None:
    chance = random.Random(seed)
    manager = SharedStreamManager(
        max_subscriber_queue=chance.choice((1, 3, 50)), max_outstanding=chance.choice((2, 10, 100)), ack_timeout=30
    )
    feed = Feed((chance.choice("abc"), number) for number in range(150))
    waiting: list[int] = []
    runners: dict[int, Runner] = {}

    def join(number: int) -> None:
        runners[number] = Runner(manager, number, reads(feed)(lambda raw: raw % 3 > number % 2), confirm=False)

    join(0)
    for number in range(1, 400):
        for runner in runners.values():
            waiting.extend(seqs(runner))
            runner.seqs.clear()
        chance.shuffle(waiting)
        manager.confirm_persisted([waiting.pop() for _ in range(chance.randint(0, len(waiting)))])
        action = chance.random()
        if action < 0.1 and len(runners) < 6:
            join(number)
        elif action < 0.15 and len(runners) > 1:
            await runners.pop(chance.choice(list(runners))).leave()
        await settle(chance.randint(0, 4))
    while len(feed.advanced) < 150:
        for runner in runners.values():
            manager.confirm_persisted(seqs(runner))
        manager.confirm_persisted(waiting)
        await settle(5)
    assert sorted(feed.advanced) == list(range(150)), f"seed {seed}"
    for lane in "abc":
        assert feed.of(lane) == sorted(feed.of(lane)), f"seed {seed}"
    await asyncio.gather(*(runner.leave() for runner in runners.values()))
    assert feed.closed == 1
    assert not other_tasks()
