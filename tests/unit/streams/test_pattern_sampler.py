"""Samples of how often each field of a watch's pattern fails, and the limits of their cost."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from headrace.core.matching.patterns.parser import EventPattern, parse_pattern
from headrace.sources.memory.upstream import Memory
from headrace.streams import pattern_sampler as limits
from headrace.streams.manager import SharedStreamManager
from headrace.streams.pattern_sampler import PathFailures, PatternSample, PatternSampler, SampleBudget
from headrace.streams.watches import WatchSet
from headrace.triggerer.runner.stream_reports import heartbeat
from headrace.triggers.raw_event import Message, RawEvent
from headrace.triggers.watch import WatchTrigger
from headrace.wire.control.jobs import Heartbeat
from support.sources.streams import Feed, MemoryUpstream, Sink, until

PAID = parse_pattern({"status": ["paid"], "total": [{"numeric": [">", 5]}]})


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock of samples, so that no sample reaches its time limit on a slow machine."""
    monkeypatch.setattr(limits, "perf_counter", lambda: 1_000.0)
    monkeypatch.setattr(limits._BUDGET, "next", 0.0)


def sampled(patterns: dict[int, EventPattern | None], *events: Any, size: int = 10) -> PatternSampler:
    sampler = PatternSampler(SampleBudget())
    for second, event in enumerate(events):
        sampler.sample(patterns, event, float(second), size=size)
    return sampler


def test_failures_are_counted_by_field_the_worst_first() -> None:
    orders = [{"status": "open", "total": 6}, {"status": "paid", "total": 6}, {"status": "open", "total": 1}, {"status": "no"}]
    sampler = sampled({7: PAID}, *orders)
    assert sampler.take(10) == [PatternSample(7, 4, 1, (PathFailures("status", 3), PathFailures("total", 2)))]
    assert sampler.take(10) == [], "nothing new"


def test_the_next_sample_is_due_a_second_later() -> None:
    sampler = PatternSampler(SampleBudget())
    assert sampler.due == 0.0
    sampler.sample({7: PAID}, {}, 41.5, size=10)
    assert sampler.due == 42.5


def test_watches_are_sampled_in_rotation() -> None:
    patterns: dict[int, EventPattern | None] = {n: parse_pattern({"n": [n]}) for n in range(120)}
    sampler = PatternSampler(SampleBudget())
    samples: list[int] = []
    for second in range(12):
        sampler.sample(patterns, {"n": 3}, float(second), size=10)
        sampled_now = [sample.trigger_id for sample in sampler.take(1_000)]
        assert len(sampled_now) == limits.MAX_WATCHES
        samples += sampled_now
    assert samples == list(patterns) * 5


def test_a_sample_ends_at_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(0.0, limits.MAX_SAMPLE_SECONDS * 0.4)
    monkeypatch.setattr(limits, "perf_counter", lambda: next(clock))
    patterns: dict[int, EventPattern | None] = {n: parse_pattern({"n": [n]}) for n in range(9)}
    assert [sample.trigger_id for sample in sampled(patterns, {"n": 3}).take(9)] == [0, 1, 2]


def test_a_report_has_a_limited_number_of_watches_and_paths() -> None:
    wide = parse_pattern({f"f{n}": [n] for n in range(30)})
    sampler = sampled({1: wide, 2: wide, 3: wide}, {"f5": 5})
    assert [sample.trigger_id for sample in sampler.take(2)] == [1, 2]
    (rest,) = sampler.take(2)
    assert (rest.trigger_id, len(rest.paths)) == (3, limits.MAX_REPORTED_PATHS)
    assert all(path.failed == 1 for path in rest.paths)


def test_later_samples_count_more() -> None:
    sampler = sampled({7: PAID}, *[{}] * limits.MAX_SAMPLES, *[{"status": "paid", "total": 6}] * 30)
    (sample,) = sampler.take(1)
    half = limits.MAX_SAMPLES // 2
    assert sample == PatternSample(7, half + 30, 30, (PathFailures("status", half), PathFailures("total", half)))


def test_long_events_and_patterns_with_many_fields_are_not_sampled() -> None:
    assert sampled({7: PAID}, {}, size=limits.MAX_EVENT_BYTES + 1).take(1) == []
    many = parse_pattern({f"f{n}": [n] for n in range(limits.MAX_FIELDS + 1)})
    assert [sample.trigger_id for sample in sampled({6: many, 7: PAID, 8: None}, {}).take(9)] == [7]


def test_an_event_with_too_many_elements_ends_its_sample() -> None:
    patterns: dict[int, EventPattern | None] = {n: parse_pattern({"a": [{"prefix": f"{n}"}], "b": [n]}) for n in range(50)}
    assert len(sampled(patterns, {"a": [0] * 900_000}).take(50)) < 50


def test_a_sample_leaves_the_process_most_of_its_time() -> None:
    budget = SampleBudget()
    budget.use(10.0, 10.002)
    assert budget.next == pytest.approx(10.2)
    budget.next = float("inf")
    blocked = PatternSampler(budget)
    blocked.sample({7: PAID}, {}, 0.0, size=10)
    assert blocked.take(1) == []
    assert blocked.due == 1.0


def watches_of(*triggers: dict[str, Any]) -> WatchSet:
    return WatchSet({number: WatchTrigger(upstream=Memory("orders"), **trigger) for number, trigger in enumerate(triggers, 1)})


def test_a_watch_set_samples_its_matches_with_the_metadata_of_messages() -> None:
    watches = watches_of({"match": {"@": {"key": ["UA"]}, "a": [1]}}, {}, {"match": {"a": [2]}})
    for second, key in enumerate(["UA", "DL", "DL"]):
        watches.sample(watches.match(Message(b'{"a": 1}', "0", second, key=key), "0", second), float(second))
    watches.sample(watches.match(RawEvent(b"not JSON", "0", 3), "0", 3), 3.0)
    first, third = watches.sampler.take(9)
    assert first == PatternSample(1, 3, 1, (PathFailures("@.key", 2), PathFailures("a", 0)))
    assert third == PatternSample(3, 3, 0, (PathFailures("a", 3),))


def test_a_watch_that_is_removed_or_changed_begins_anew() -> None:
    watches = watches_of({"match": {"a": [1]}})
    match = watches.match(RawEvent(b"{}", "0", 1), "0", 1)
    watches.sample(match, 0.0)
    watches.discard([1])
    assert watches.sampler.take(1) == []
    watches.add(1, WatchTrigger(upstream=Memory("orders"), match={"a": [1], "b": [2]}))
    watches.sample(match, 1.0)
    assert [(sample.samples, len(sample.paths)) for sample in watches.sampler.take(1)] == [(1, 2)]


async def test_a_heartbeat_reports_new_samples_of_all_streams_once() -> None:
    sink = Sink()
    manager = sink.manager = SharedStreamManager(sink=sink)
    feeds = {f"stream {n}": Feed([("x", {"id": 7, "status": "open"})]) for n in range(3)}
    for number, (key, feed) in enumerate(feeds.items(), 1):
        upstream = MemoryUpstream.of(feed, key)
        watches = {number: WatchTrigger(upstream=upstream, match={"status": ["paid"]}), -number: WatchTrigger(upstream=upstream)}
        manager.watch(triggers=watches, key=key)
    await asyncio.wait_for(until(lambda: len(sink.events) == len(feeds)), 30)
    beat = Heartbeat.model_validate_json(await heartbeat(manager, list(feeds)))
    assert sorted(sample.trigger_id for sample in beat.watches) == [1, 2, 3]
    assert [leaf.model_dump() for leaf in beat.watches[0].leaves] == [{"path": "status", "failed": 1}]
    assert Heartbeat.model_validate_json(await heartbeat(manager, list(feeds))).watches == []
    manager.confirm_persisted([event.seq for event in sink.events])
    await manager.stop_all()
