"""A registered subscriber that is offline misses no raw event, receives none twice, and delays no other subscriber."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceOutcome
from headrace.errors import AckTimeout, StreamError, SubscriberOverflow
from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import Poisoned, RejectedEvent
from headrace.triggers.event import TriggerEvent, reject_shared_stream_event
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import KEY, Engine, Feed, Keeper, MemoryUpstream, Reads, Runner, other_tasks, reads, settle, until


class Scene:
    """A manager, its keeper and a feed, with these triggers registered."""

    def __init__(self, *registered: int, items: Any = (), kind: type[Reads] = Reads, auto: bool = True, **bounds: Any) -> None:
        self.feed = Feed(items)
        self.keeper = Keeper(auto=auto)
        self.manager = self.keeper.manager = SharedStreamManager(sink=self.keeper, **{"retry_wait": 0.0} | bounds)
        self.kind = type("ReadsFeed", (kind,), {"feed": self.feed})
        self.manager.register(trigger_ids=registered, key=KEY)

    def engine(self, trigger_id: int, **arguments: Any) -> Engine:
        return Engine(self.manager, self.keeper, trigger_id, self.kind(**arguments))

    async def close(self) -> None:
        await self.manager.stop_all()
        await settle()
        assert not other_tasks()


async def test_a_late_subscriber_receives_missed_raw_events_before_live_ones() -> None:
    scene = Scene(1, 2, items=range(3))
    first, late = scene.engine(1), scene.engine(2)
    first.start()
    await until(lambda: len(scene.feed.advanced) == 3)
    assert scene.feed.outcomes == [AdvanceOutcome(1, 0, 0, 1)] * 3
    assert all(outcome.is_clean for outcome in scene.feed.outcomes)
    assert [spill.trigger_ids for spill in scene.keeper.spills] == [(2,)] * 3
    late.start()
    await until(lambda: late.events == [0, 1, 2])
    scene.feed.feed(3, 4)
    await until(lambda: len(late.events) == 5)
    assert late.events == first.events == list(range(5))
    await until(lambda: len(scene.keeper.backlog(2).answers) == 3)
    assert {answer for _, answer in scene.keeper.backlog(2).answers} == {"fired"}
    await until(lambda: scene.feed.outcomes[3:] == [AdvanceOutcome(2, 0)] * 2)
    assert scene.manager.statistics(KEY).counters.spilled == 3
    await scene.close()


async def test_offline_subscribers_share_one_spill() -> None:
    scene = Scene(1, 2, 3, items=["a"])
    one = scene.engine(1)
    one.start()
    await until(lambda: scene.keeper.spills)
    [spill] = scene.keeper.spills
    assert spill.trigger_ids == (2, 3)
    assert (spill.key, spill.lane, spill.position) == (KEY, "default", 1)
    await until(lambda: scene.feed.outcomes == [AdvanceOutcome(1, 0, 0, 2)])
    await scene.close()


async def test_a_spill_is_owed_until_it_is_confirmed_and_pauses_the_poll() -> None:
    scene = Scene(1, 2, items=range(10), auto=False, max_outstanding=4)
    one = scene.engine(1)
    one.start()
    await until(lambda: scene.feed.read == 4)
    await settle()
    assert scene.feed.read == 4
    assert scene.feed.advanced == []
    assert scene.manager.statistics(KEY).held_by == "the store"
    scene.keeper.auto = True
    scene.keeper.store()
    await until(lambda: len(scene.feed.advanced) == 10)
    await scene.close()


async def test_a_returning_subscriber_resumes_at_its_position() -> None:
    class Waits(Reads):
        gate = asyncio.Event()

        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                if raw == 2:
                    await self.gate.wait()
                yield TriggerEvent(raw)

    scene = Scene(1, 2, items=range(6), kind=Waits)
    engine, other = scene.engine(1), Engine(scene.manager, scene.keeper, 2, reads(scene.feed)())
    engine.start()
    other.start()
    await until(lambda: len(other.events) == 6)
    assert engine.events == [0, 1]
    await engine.stop()
    await until(lambda: len(scene.feed.advanced) == 6)
    assert scene.feed.outcomes == [AdvanceOutcome(2, 0)] * 2 + [AdvanceOutcome(1, 0, 0, 1)] * 4
    Waits.gate.set()
    engine.start()
    await until(lambda: len(engine.events) == 6)
    scene.feed.feed(6)
    await until(lambda: len(engine.events) == 7)
    assert engine.events == list(range(7))
    await scene.close()


async def test_a_burst_is_spilled_without_delay_and_delivered_in_order() -> None:
    class Slow(Reads):
        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                await settle(3)
                yield TriggerEvent(raw)

    scene = Scene(1, 2, items=(("x" if n % 3 else "y", n) for n in range(3000)), kind=Slow, max_subscriber_queue=16)
    slow, quick = scene.engine(1), Engine(scene.manager, scene.keeper, 2, reads(scene.feed)())
    slow.start()
    quick.start()
    await until(lambda: len(quick.events) == 3000)
    assert len(slow.events) < 3000
    await until(lambda: len(slow.events) == 3000)
    assert slow.events == quick.events == list(range(3000))
    assert scene.keeper.spills
    await until(lambda: len(scene.feed.advanced) == 3000)
    await until(lambda: not scene.keeper.backlog(1).entries)
    await scene.close()


async def test_a_stuck_subscriber_fails_and_receives_the_same_raw_event() -> None:
    class Sticks(Reads):
        stuck = 0

        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                if raw == 1 and type(self).stuck < 2:
                    type(self).stuck += 1
                    await asyncio.Event().wait()
                yield TriggerEvent(raw)

    scene = Scene(1, 2, items=range(4), kind=Sticks, ack_timeout=0.05)
    engine, other = scene.engine(1), Engine(scene.manager, scene.keeper, 2, reads(scene.feed)())
    restarts: list[asyncio.Task[None]] = []
    scene.keeper.on_failed = lambda _: restarts.append(asyncio.create_task(engine.restart()))
    engine.start()
    other.start()
    await until(lambda: len(scene.feed.advanced) == 4)
    assert other.events == [0, 1, 2, 3]
    assert scene.manager.statistics(KEY).counters.failed == 0
    await until(lambda: len(engine.events) == 4)
    assert engine.events == [0, 1, 2, 3]
    assert [(who, type(error)) for who, error in scene.keeper.failures] == [(1, AckTimeout)] * 2
    assert len(restarts) == 2
    await scene.close()


async def test_a_subscriber_that_times_out_too_often_continues_with_the_next_raw_event() -> None:
    class Sticks(Reads):
        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                if raw == 1:
                    await asyncio.Event().wait()
                yield TriggerEvent(raw)

    scene = Scene(1, items=range(4), kind=Sticks, ack_timeout=0.02, max_attempts=2)
    engine = scene.engine(1)
    restarts: list[asyncio.Task[None]] = []
    scene.keeper.on_failed = lambda _: restarts.append(asyncio.create_task(engine.restart()))
    engine.start()
    await until(lambda: engine.events == [0, 2, 3])
    [letter] = scene.keeper.letters
    assert isinstance(letter, Poisoned)
    assert (letter.position, letter.attempts, len(letter.times), letter.trigger_id) == (2, 2, 2, 1)
    assert "AckTimeout" in letter.reason
    await until(lambda: not scene.keeper.backlog(1).entries)
    assert [answer for _, answer in scene.keeper.backlog(1).answers].count("dead_lettered") == 1
    await scene.close()


class Raises(Reads):
    """Raises at 1, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in stream:
            if raw == 1 and self.times:
                self.times -= 1
                raise ValueError(f"not {raw}")
            yield TriggerEvent(raw)


@pytest.mark.parametrize("queue", [100, 1])
async def test_a_filter_that_raises_receives_the_same_raw_event(queue: int) -> None:
    scene = Scene(1, items=range(5), kind=Raises, max_subscriber_queue=queue)
    engine = scene.engine(1, times=3)
    engine.start()
    await until(lambda: len(engine.events) == 5)
    assert engine.events == list(range(5))
    assert engine.faults == [1, 2, 3]
    assert scene.keeper.letters == []
    await until(lambda: len(scene.feed.advanced) == 5)
    await scene.close()


@pytest.mark.parametrize("backlog", [False, True])
async def test_a_poison_event_becomes_a_dead_letter_and_the_trigger_continues(backlog: bool) -> None:
    scene = Scene(1, 2, items=range(4), kind=Raises, auto=backlog, max_attempts=3)
    engine, other = scene.engine(1, times=99), Engine(scene.manager, scene.keeper, 2, reads(scene.feed)())
    if backlog:
        other.start()
        await until(lambda: len(scene.feed.advanced) == 4)
    engine.start()
    if not backlog:
        other.start()
    await until(lambda: engine.events == [0, 2, 3])
    assert engine.faults == [1, 2, 3]
    [letter] = scene.keeper.letters
    assert isinstance(letter, Poisoned)
    assert (letter.trigger_id, letter.position, letter.attempts, letter.reason) == (1, 2, 3, "ValueError: not 1")
    assert "raise ValueError" in "".join(letter.traceback)
    assert letter.raw.endswith("1")
    if backlog:
        await until(lambda: len(scene.keeper.backlog(1).answers) == 4)
        assert [answer for _, answer in sorted(scene.keeper.backlog(1).answers)] == ["fired", "dead_lettered", "fired", "fired"]
    else:
        await settle()
        assert scene.feed.advanced == [0]
        scene.keeper.store()
        await until(lambda: len(scene.feed.advanced) == 4)
        assert scene.feed.outcomes[1] == AdvanceOutcome(1, 0, 1)
    await scene.close()


async def test_a_raw_event_that_a_registered_trigger_rejects_becomes_a_dead_letter() -> None:
    class Refuses(Reads):
        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                reject_shared_stream_event("ugly")
                reject_shared_stream_event("twice")
                if raw is None:
                    yield TriggerEvent(raw)

    scene = Scene(1, items=[RawEvent(b'{"a":1}', "x", 7)], kind=Refuses, auto=False)
    engine = scene.engine(1)
    engine.start()
    await until(lambda: scene.keeper.letters)
    [letter] = scene.keeper.letters
    assert isinstance(letter, RejectedEvent)
    assert (letter.reason, letter.raw, letter.trigger_id) == ("ugly", '{"a":1}', 1)
    await settle()
    assert scene.feed.advanced == []
    scene.keeper.store()
    await until(lambda: scene.feed.outcomes == [AdvanceOutcome(0, 0, 1)])
    await scene.close()


async def test_overflow_fail_spills_and_fails_the_subscriber() -> None:
    scene = Scene(1, 2, items=range(20), max_subscriber_queue=2, overflow="fail")
    stream = scene.manager.subscribe(trigger_id=1, trigger=scene.kind(), key=KEY, backlog=scene.keeper.backlog(1))
    other = scene.engine(2)
    other.start()
    await until(lambda: len(other.events) == 20)
    assert [(who, type(error)) for who, error in scene.keeper.failures] == [(1, SubscriberOverflow)]
    with pytest.raises(SubscriberOverflow):
        await anext(stream)
    engine = scene.engine(1)
    engine.start()
    await until(lambda: engine.events == list(range(20)))
    await scene.close()


async def test_overflow_block_pauses_for_live_subscribers_and_spills_for_offline_subscribers() -> None:
    scene = Scene(1, 2, items=range(10), max_subscriber_queue=2, overflow="block")
    stream = scene.manager.subscribe(trigger_id=1, trigger=scene.kind(), key=KEY, backlog=scene.keeper.backlog(1))
    await settle()
    assert scene.feed.read == 2
    for expected in range(10):
        assert await anext(stream) == expected
    assert [spill.trigger_ids for spill in scene.keeper.spills] == [(2,)] * 10
    await scene.close()


async def test_a_full_unregistered_subscriber_pauses_the_poll() -> None:
    scene = Scene(items=range(10), max_subscriber_queue=2)
    scene.manager.subscribe(trigger_id=1, trigger=scene.kind(), key=KEY)
    quick = Runner(scene.manager, 2, scene.kind())
    await settle()
    assert scene.feed.read == 2
    await scene.manager.unsubscribe(1, KEY)
    await until(lambda: len(quick.events) == 10)
    await quick.leave()
    await scene.close()


async def test_backlog_entries_precede_live_raw_events_and_later_entries_follow() -> None:
    scene = Scene(1, items=["live"])
    keeper = scene.keeper
    for number in range(1200):
        keeper.keep(1, "old", number, f"\x1e{number}")
    engine = scene.engine(1)
    engine.start()
    await until(lambda: len(engine.events) == 1201)
    assert engine.events == [*range(1200), "live"]
    keeper.keep(1, "old", 5000, '\x1e"again"', attempts=5)
    scene.manager.recheck_backlog(trigger_id=1, key=KEY)
    scene.manager.recheck_backlog(trigger_id=9, key=KEY)
    scene.manager.recheck_backlog(trigger_id=1, key="other")
    await until(lambda: engine.events[-1] == "again")
    scene.feed.feed("more")
    await until(lambda: engine.events[-1] == "more")
    await until(lambda: not keeper.backlog(1).entries)
    await scene.close()


async def test_an_unconfirmed_backlog_entry_is_not_read_twice() -> None:
    scene = Scene(1, items=[])
    for number in range(5):
        scene.keeper.keep(1, "old", number, f"\x1e{number}")
    engine = scene.engine(1)
    engine.confirm = False
    engine.start()
    await until(lambda: len(engine.events) == 5)
    await engine.stop()
    assert len(scene.keeper.backlog(1).entries) == 5
    scene.feed.feed("live")
    engine.start()
    await until(lambda: "live" in engine.events)
    # What it was at when it was stopped comes again; what it had ended waits for the store and does not.
    assert engine.events == [0, 1, 2, 3, 4, "live"]
    scene.manager.confirm_persisted(engine.seqs)
    await until(lambda: not scene.keeper.backlog(1).entries)
    await scene.close()


@pytest.mark.parametrize("redriven", [1, 700])
async def test_a_redriven_dead_letter_older_than_a_current_spill_is_read_after_a_failure(redriven: int) -> None:
    class FailsAtLast(Reads):
        gate = asyncio.Event()
        failed = False

        async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
            async for raw in stream:
                if raw == 0:
                    await self.gate.wait()
                if raw == f"again {redriven}" and not type(self).failed:
                    type(self).failed = True
                    raise ValueError("a hiccup")
                yield TriggerEvent(raw)

    scene = Scene(1, items=[0], kind=FailsAtLast, max_subscriber_queue=2)
    engine = scene.engine(1)
    engine.confirm = False
    engine.start()
    await until(lambda: scene.feed.read == 1)
    await settle()
    letters = [f"again {number}" for number in range(1, redriven + 1)]
    for number, letter in enumerate(letters):
        scene.keeper.keep(1, "old", number, f'\x1e"{letter}"')
    scene.feed.feed(1, 2, 3)
    await until(lambda: scene.keeper.spills)
    FailsAtLast.gate.set()
    await until(lambda: engine.faults)
    scene.feed.feed("live")
    await until(lambda: "live" in engine.events)
    assert engine.events == [0, *letters, 1, 2, 3, "live"]
    engine.confirm = True
    scene.manager.confirm_persisted(engine.seqs)
    await until(lambda: not scene.keeper.backlog(1).entries)
    await scene.close()


async def test_a_trigger_is_added_and_removed_while_the_stream_runs() -> None:
    scene = Scene(1, items=["a"], auto=False)
    one, two = scene.engine(1), scene.engine(2)
    one.start()
    await until(lambda: scene.feed.advanced == ["a"])
    scene.manager.register(trigger_ids=[2, 2], key=KEY)
    scene.feed.feed("b")
    await until(lambda: scene.keeper.spills)
    await settle()
    assert scene.feed.advanced == ["a"]
    await scene.manager.unregister(trigger_ids=[2], key=KEY)
    await until(lambda: scene.feed.advanced == ["a", "b"])
    assert scene.feed.outcomes[1] == AdvanceOutcome(1, 0)
    scene.feed.feed("c")
    await until(lambda: scene.feed.advanced == ["a", "b", "c"])
    scene.manager.register(trigger_ids=[2], key=KEY)
    two.start()
    scene.feed.feed("d")
    await until(lambda: two.events == ["d"])
    await scene.manager.unregister(trigger_ids=[1, 2], key=KEY)
    assert not scene.manager.keys()
    assert scene.feed.closed == 1
    await scene.manager.unregister(trigger_ids=[1, 2], key=KEY)
    await settle()
    assert not other_tasks()


async def test_a_stream_that_is_handed_over_resolves_no_raw_events() -> None:
    scene = Scene(1, 2, items=["a"], auto=False)
    scene.engine(1).start()
    await until(lambda: scene.keeper.spills)
    await scene.manager.stop(KEY)
    assert scene.feed.advanced == []
    assert scene.feed.closed == 1
    await scene.manager.stop(KEY)
    feed = Feed(["b"])
    again = Runner(scene.manager, 1, reads(feed)())
    await until(lambda: feed.outcomes == [AdvanceOutcome(1, 0)])
    assert not scene.keeper.spills[1:], "nobody is registered any more"
    await again.leave()


async def test_registration_outlives_the_stream() -> None:
    scene = Scene(1, 2, items=["a", ConnectionError("gone")])
    one = scene.engine(1)
    one.start()
    await until(lambda: not scene.manager.keys())
    await until(lambda: one.task is not None and one.task.done())
    scene.feed.feed("b")
    one.start()
    await until(lambda: len(scene.keeper.spills) == 2)
    assert [spill.trigger_ids for spill in scene.keeper.spills] == [(2,)] * 2
    await scene.close()


async def test_declared_and_registered_triggers_share_a_stream() -> None:
    scene = Scene(1, items=[{"n": 1}])
    upstream = MemoryUpstream.of(scene.feed)
    scene.manager.watch(triggers={7: WatchTrigger(upstream=upstream)}, key=KEY)
    await until(lambda: scene.feed.advanced)
    assert scene.feed.outcomes == [AdvanceOutcome(1, 0, 0, 1)]
    with pytest.raises(StreamError, match="with its backlog"):
        scene.manager.subscribe(trigger_id=1, trigger=scene.kind(), key=KEY)
    with pytest.raises(StreamError, match="already"):
        scene.manager.subscribe(trigger_id=7, trigger=scene.kind(), key=KEY)
    one = scene.engine(1)
    one.start()
    with pytest.raises(StreamError, match="already"):
        scene.manager.watch(triggers={1: WatchTrigger(upstream=upstream)}, key=KEY)
    await one.stop()
    await scene.close()


async def test_a_registered_trigger_becomes_a_watch_and_owes_until_then_what_it_spilled() -> None:
    scene = Scene(1, 2, items=[{"n": 1}], auto=False)
    two = scene.engine(2)
    two.start()
    await until(lambda: scene.keeper.spills and two.events)
    scene.manager.watch(triggers={1: WatchTrigger(upstream=MemoryUpstream.of(scene.feed))}, key=KEY)
    scene.feed.feed({"n": 2})
    await until(lambda: len(two.events) == 2)
    await settle()
    assert [spill.trigger_ids for spill in scene.keeper.spills] == [(1,)]
    assert [matched.trigger_ids for matched in scene.keeper.events] == [(1,)]
    assert scene.feed.advanced == []
    scene.keeper.store()
    await until(lambda: len(scene.feed.advanced) == 2)
    assert scene.feed.outcomes == [AdvanceOutcome(1, 0, 0, 1), AdvanceOutcome(2, 0)]
    await scene.manager.unwatch(trigger_ids=[1], key=KEY)
    scene.feed.feed({"n": 3})
    await until(lambda: len(scene.feed.advanced) == 3)
    assert scene.feed.outcomes[2] == AdvanceOutcome(1, 0)
    await scene.close()


async def test_a_watch_becomes_a_registered_trigger() -> None:
    scene = Scene(2, items=[{"n": 1}])
    upstream = MemoryUpstream.of(scene.feed)
    two = scene.engine(2)
    two.start()
    scene.manager.watch(triggers={1: WatchTrigger(upstream=upstream), 3: WatchTrigger(upstream=upstream)}, key=KEY)
    await until(lambda: len(scene.feed.advanced) == 1)
    scene.manager.register(trigger_ids=[1], key=KEY)
    scene.feed.feed({"n": 2})
    await until(lambda: len(scene.feed.advanced) == 2)
    assert [matched.trigger_ids for matched in scene.keeper.events] == [(1, 3), (3,)]
    assert [spill.trigger_ids for spill in scene.keeper.spills] == [(1,)]
    assert scene.feed.outcomes == [AdvanceOutcome(3, 0), AdvanceOutcome(2, 0, 0, 1)]
    await scene.close()


async def test_a_raw_event_without_a_text_is_a_dead_letter_of_offline_subscribers() -> None:
    raw = object()
    scene = Scene(1, 2, items=[raw])
    one = scene.engine(1)
    one.start()
    await until(lambda: scene.feed.advanced)
    [dead] = scene.keeper.dead
    assert dead.trigger_ids == (2,)
    assert "cannot be kept" in dead.reason
    assert scene.feed.outcomes == [AdvanceOutcome(1, 0, 1)]
    await scene.close()


async def test_registration_requires_a_sink_that_spills() -> None:
    with pytest.raises(StreamError, match="sink"):
        SharedStreamManager().register(trigger_ids=[1], key=KEY)


async def test_a_failure_of_an_unregistered_subscriber_unsubscribes_it() -> None:
    manager, feed = SharedStreamManager(), Feed(["a"])
    assert manager.record_failure(trigger_id=1, key=KEY, error=ValueError()) == 0
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.advanced)
    assert manager.record_failure(trigger_id=1, key=KEY, error=ValueError()) == 0
    assert not manager.keys()
    await until(lambda: feed.closed)
    runner.task.cancel()
    await asyncio.wait({runner.task})


async def test_settling_is_retried() -> None:
    scene = Scene(1, advance_backoff=(0.001, 0.001))
    scene.keeper.keep(1, "old", 1, "\x1e1")
    scene.keeper.backlog(1).troubles = 2
    engine = scene.engine(1)
    engine.start()
    await until(lambda: scene.keeper.backlog(1).answers)
    assert engine.events == [1]
    await scene.close()


async def test_settling_that_gives_up_causes_no_repeated_reads() -> None:
    scene = Scene(1, advance_backoff=(0.001, 0.001), advance_attempts=2)
    scene.keeper.keep(1, "old", 1, "\x1e1")
    scene.keeper.backlog(1).troubles = 99
    engine = scene.engine(1)
    engine.start()
    await until(lambda: scene.keeper.backlog(1).troubles == 97)
    scene.manager.recheck_backlog(trigger_id=1, key=KEY)
    scene.feed.feed("live")
    await until(lambda: engine.events == [1, "live"])
    await scene.close()
