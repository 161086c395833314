"""Declared watches: an index matches without users' Python, and each seq is owed until it is confirmed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceOutcome
from headrace.errors import StreamError
from headrace.sources.memory.upstream import Memory
from headrace.streams import manager as manager_module
from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import Matched
from headrace.streams.watches import WatchSet
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.watch import WatchTrigger
from support.sources.streams import KEY, Feed, MemoryUpstream, Runner, Sink, other_tasks, reads, settle, until


def manager_with(sink: Sink, **bounds: Any) -> SharedStreamManager:
    sink.manager = SharedStreamManager(sink=sink, **bounds)
    return sink.manager


def watch(feed: Feed, **declared: Any) -> WatchTrigger:
    return WatchTrigger(upstream=MemoryUpstream.of(feed), **declared)


async def test_each_envelope_has_one_seq_with_all_matching_triggers() -> None:
    sink, feed = Sink(), Feed([("x", {"id": 7, "kind": "a"})])
    manager = manager_with(sink)
    triggers = {
        1: watch(feed, match={"kind": ["a"]}, id="$.id"),
        2: watch(feed, match={"kind": ["a", "b"]}, id="$.id"),
        3: watch(feed, id="$.id", type="other"),
        4: watch(feed, match={"kind": ["b"]}, id="$.id"),
    }
    manager.watch(triggers=triggers, key=KEY)
    await until(lambda: len(sink.events) == 2)
    first, second = sink.events
    assert {first.trigger_ids, second.trigger_ids} == {(1, 2), (3,)}
    assert {first.envelope, second.envelope} == {triggers[1].envelope, triggers[3].envelope}
    assert (first.key, first.lane, first.position, first.value) == (KEY, "x", 1, {"id": 7, "kind": "a"})
    assert first.raw.data == b'{"id":7,"kind":"a"}'
    assert manager.statistics(KEY).held_by == "the store"
    manager.confirm_persisted([first.seq])
    await settle()
    assert feed.advanced == []
    manager.confirm_persisted([second.seq])
    await until(lambda: feed.advanced)
    assert feed.outcomes == [AdvanceOutcome(4, 0)]
    await manager.stop_all()
    assert sink.ends == []
    assert not other_tasks()


async def test_a_sink_can_confirm_synchronously() -> None:
    sink, feed = Sink(auto=True), Feed({"n": n} for n in range(2000))
    manager = manager_with(sink, max_outstanding=10)
    manager.watch(triggers={n: watch(feed, match={"n": [n]}) for n in range(0, 2000, 2)}, key=KEY)
    await until(lambda: len(feed.advanced) == 2000)
    assert [event.trigger_ids for event in sink.events] == [(n,) for n in range(0, 2000, 2)]
    assert {outcome.acked for outcome in feed.outcomes} == {1000}
    assert manager.statistics(KEY).counters.filtered == 1000
    await manager.stop_all()


async def test_unconfirmed_events_pause_the_poll_and_never_time_out() -> None:
    sink, feed = Sink(), Feed({"n": n} for n in range(10))
    manager = manager_with(sink, max_outstanding=4, ack_timeout=0.01)
    manager.watch(triggers={1: watch(feed)}, key=KEY)
    await until(lambda: len(sink.events) == 4)
    await asyncio.sleep(0.03)
    assert feed.read == 4
    assert feed.advanced == []
    manager.confirm_persisted([event.seq for event in sink.events])
    await until(lambda: len(sink.events) == 8)
    assert all(outcome.is_clean for outcome in feed.outcomes)
    await manager.stop_all()


async def test_an_unreadable_raw_event_is_malformed_once_for_all_watches() -> None:
    odd = [6, {"bad": object()}, {"bad": float("nan")}, {"none": None, "bad": [{"b": float("-inf")}]}]
    raws = [RawEvent(b"{", "x", 4), RawEvent(b"[1]", "x", 5), *odd]
    sink, feed = Sink(), Feed(("x", raw) for raw in raws)
    manager = manager_with(sink)
    manager.watch(triggers={1: watch(feed), 2: watch(feed, match={"a": [1]})}, key=KEY)
    await until(lambda: len(sink.dead) == len(raws))
    assert sink.dead[0].raw is raws[0]
    assert [dead.trigger_ids for dead in sink.dead] == [(1, 2)] * len(raws)
    assert ["JSON" in dead.reason or "mapping" in dead.reason for dead in sink.dead] == [True] * len(raws)
    for dead in sink.dead:
        manager.mark_rejected(dead.seq)
        manager.confirm_persisted([dead.seq])
    manager.mark_rejected(0)
    await until(lambda: len(feed.advanced) == len(raws))
    assert feed.outcomes == [AdvanceOutcome(0, 0, 2)] * len(raws)
    assert manager.statistics(KEY).counters.rejected == len(raws)
    assert sink.events == []
    await manager.stop_all()


async def test_a_raw_event_supplies_its_position_if_the_producer_does_not() -> None:
    class Silent(Feed):
        def get_position(self, broker_payload: Any) -> int | None:
            return None

    sink, feed = Sink(auto=True), Silent([RawEvent(b"{}", "x", 44), RawEvent(b"{}", "x", 45)])
    manager = manager_with(sink)
    manager.watch(triggers={1: watch(feed)}, key=KEY)
    await until(lambda: len(sink.events) == 2)
    assert [(event.lane, event.position) for event in sink.events] == [("default", 44), ("default", 45)]
    await manager.stop_all()


async def test_a_new_set_of_watches_replaces_the_previous_set() -> None:
    sink, feed = Sink(auto=True), Feed([{"n": 1}])
    manager = manager_with(sink)
    manager.watch(triggers={1: watch(feed), 2: watch(feed)}, key=KEY)
    await until(lambda: sink.events)
    manager.watch(triggers={2: watch(feed), 3: watch(feed, match={"n": [2]})}, key=KEY)
    feed.feed({"n": 2})
    await until(lambda: len(sink.events) == 2)
    assert sink.events[1].trigger_ids == (2, 3)
    await manager.unsubscribe(3, KEY)
    feed.feed({"n": 2})
    await until(lambda: len(sink.events) == 3)
    assert sink.events[2].trigger_ids == (2,)
    await manager.unsubscribe(2, KEY)
    assert not manager.keys()
    assert feed.closed == 1


async def test_watches_and_subscribers_share_one_poll() -> None:
    sink, feed = Sink(auto=True), Feed([{"n": 1}])
    manager = manager_with(sink)
    manager.watch(triggers={1: watch(feed), 2: watch(feed, match={"n": [2]})}, key=KEY)
    runner = Runner(manager, 3, reads(feed)())
    await until(lambda: feed.advanced)
    assert runner.events == [{"n": 1}]
    assert feed.outcomes == [AdvanceOutcome(3, 0)]
    with pytest.raises(StreamError, match="already"):
        manager.watch(triggers={3: watch(feed)}, key=KEY)
    with pytest.raises(StreamError, match="already"):
        manager.subscribe(trigger_id=1, trigger=reads(feed)(), key=KEY)
    await runner.leave()
    assert manager.keys() == (KEY,)
    await manager.stop_all()


async def test_a_reopened_stream_reuses_the_index_of_its_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(WatchSet):
        def __init__(self, triggers: Any) -> None:
            made.append(len(triggers))
            super().__init__(triggers)

    monkeypatch.setattr(manager_module, "WatchSet", Counted)
    sink, feed = Sink(), Feed([("x", {"kind": "a"})])
    manager = manager_with(sink)
    declared = {number: watch(feed, match={"kind": ["a"]}) for number in (1, 2, 3)}
    for _ in range(2):
        manager.watch(triggers=declared, key=KEY)
    assert made == [3]
    await manager.unsubscribe(2, KEY)
    manager.watch(triggers={1: declared[1], 3: declared[3]}, key=KEY)
    assert made == [3], "it left the index too"
    manager.watch(triggers={1: declared[1], 3: watch(feed)}, key=KEY)
    await manager.stop(KEY)
    manager.watch(triggers=declared, key=KEY)
    assert made == [3, 2, 3], "another watch under the same number; a stream that was stopped is forgotten"
    await manager.stop_all()


async def test_the_sink_is_notified_of_the_end_of_a_stream() -> None:
    sink, feed = Sink(), Feed([ConnectionError("gone")])
    manager = manager_with(sink)
    manager.watch(triggers={1: watch(feed), 2: watch(feed)}, key=KEY)
    await until(lambda: sink.ends)
    [(key, trigger_ids, error)] = sink.ends
    assert (key, trigger_ids) == (KEY, (1, 2))
    assert isinstance(error, ConnectionError)
    assert not manager.keys()
    await until(lambda: feed.closed)


async def test_an_event_that_fails_the_sink_is_a_dead_letter_and_the_stream_continues() -> None:
    class Breaks(Sink):
        def matched(self, matched: Matched) -> None:
            if matched.raw.value == {}:
                raise ZeroDivisionError
            super().matched(matched)

    sink, feed = Breaks(), Feed([{}, {"n": 1}])
    manager = manager_with(sink)
    manager.watch(triggers={1: watch(feed)}, key=KEY)
    await until(lambda: sink.events)
    assert [(dead.reason, dead.trigger_ids) for dead in sink.dead] == [("ZeroDivisionError", (1,))]
    manager.confirm_persisted([sink.dead[0].seq, sink.events[0].seq])
    await until(lambda: len(feed.advanced) == 2)
    assert feed.outcomes == [AdvanceOutcome(0, 0, 1), AdvanceOutcome(1, 0)]
    await manager.stop_all()


async def test_invalid_watches_are_rejected() -> None:
    manager = manager_with(Sink())
    with pytest.raises(StreamError, match="no watch"):
        manager.watch(triggers={}, key=KEY)
    with pytest.raises(StreamError, match="sink"):
        SharedStreamManager().watch(triggers={1: watch(Feed())}, key=KEY)

    assert not manager.keys()

    class Fast(BaseEventTrigger):
        def serialize(self) -> tuple[str, dict[str, Any]]:
            return "fast", {}

    manager.subscribe(trigger_id=1, trigger=Fast(), key=KEY)
    with pytest.raises(StreamError, match="no acks"):
        manager.watch(triggers={2: watch(Feed())}, key=KEY)
    await manager.stop_all()


def message(number: int, **metadata: Any) -> Message:
    return Message(b'{"n":%d,"@":{"key":"json"}}' % number, "x", number, **metadata)


def matches(watches: dict[int, dict[str, Any]], raw: RawEvent) -> dict[int, Any]:
    """Return the fields of the events of one raw event, by trigger."""
    triggers = {number: WatchTrigger(upstream=Memory("metadata"), **declared) for number, declared in watches.items()}
    match = WatchSet(triggers).match(raw, "x", raw.position)
    assert match.malformed is None
    return {
        number: envelope.extract(match.value, stream="s", lane="x", position=1) for envelope, numbers in match.groups for number in numbers
    }


def test_watches_select_by_the_metadata_of_a_message() -> None:
    watches: dict[int, dict[str, Any]] = {
        1: {"match": {"@": {"key": ["a"]}}},
        2: {"match": {"@": {"headers": {"kind": ["order"]}}, "n": [1]}},
        3: {"match": {"n": [1]}},
    }
    assert set(matches(watches, message(1, key="a"))) == {1, 3}
    assert set(matches(watches, message(1, key="json", headers=[("kind", b"order")]))) == {2, 3}
    assert set(matches(watches, message(2, key="b", headers=[("kind", b"order")]))) == set()
    assert set(matches(watches, RawEvent(b'{"n":1,"@":{"key":"a"}}', "x", 1))) == {3}


def test_fields_of_an_event_come_from_the_metadata_of_a_message() -> None:
    watch = {
        "id": "@.headers.ce_id",
        "subject": "@.key",
        "occurred": "@.timestamp",
        "source": "@.headers['source']",
        "type": "$['@'].key",
    }
    one = message(1, key="k", headers=[("ce_id", b"7"), ("source", b"there")], timestamp_ms=1_500)
    (fields,) = matches({1: watch}, one).values()
    assert (fields.id, fields.subject, fields.source, fields.type) == ("7", "k", "there", "json")
    assert fields.occurred == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


def test_a_tombstone_is_matched_as_an_empty_object() -> None:
    tombstone = Message(b"null", "x", 1, key="deleted")
    assert set(matches({1: {"match": {"n": [1]}}, 2: {}, 3: {"match": {"@": {"key": ["deleted"]}}}}, tombstone)) == {2, 3}


def test_metadata_is_not_built_after_its_watches_are_removed() -> None:
    watches = WatchSet(
        {1: WatchTrigger(upstream=Memory("metadata"), match={"@": {"key": ["a"]}}), 2: WatchTrigger(upstream=Memory("metadata"))}
    )
    assert "\0@" in watches.match(message(1, key="a"), "x", 1).value
    watches.discard([1])
    assert "\0@" not in watches.match(message(1, key="a"), "x", 1).value
