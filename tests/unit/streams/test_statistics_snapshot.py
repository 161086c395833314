"""Statistics of a running stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.streams.manager import SharedStreamManager
from headrace.triggerer.runner.stream_reports import heartbeat
from support.sources.streams import KEY, Feed, Runner, reads, until


def seqs(runner: Runner) -> list[int]:
    return [seq for seq in runner.seqs if seq is not None]


async def test_statistics_have_the_progress_of_each_lane_and_its_blocking_subscriber() -> None:
    class Ends(Feed):
        def get_lane_end(self, lane: object) -> int | None:
            return 40 if lane == "x" else None

    now = 100.0
    manager = SharedStreamManager(clock=lambda: now)
    feed = Ends([("x", 1), ("x", 2), ("y", 3)])
    quick = Runner(manager, 1, reads(feed)(), confirm=False)
    assert manager.statistics(KEY).state == "starting"
    slow = manager.subscribe(trigger_id=7, trigger=reads(feed)(), key=KEY)
    await until(lambda: len(quick.events) == 3)
    now = 104.0
    statistics = manager.statistics(KEY)
    assert (statistics.state, statistics.counters.read, statistics.outstanding, statistics.lanes_open) == ("polling", 3, 3, 2)
    assert (statistics.oldest_unresolved, statistics.held_by) == (4.0, "trigger 7")
    assert [(lane.lane, lane.read, lane.end, lane.outstanding) for lane in statistics.lanes] == [("x", 2, 40, 2), ("y", 3, None, 1)]
    for _ in range(3):
        await anext(slow)
    assert manager.statistics(KEY).held_by == "the store"
    manager.confirm_persisted(seqs(quick)[:1])
    await until(lambda: feed.advanced == [1])
    assert manager.statistics(KEY).lanes[0].advanced == 1
    await manager.unsubscribe(7, KEY)
    await quick.leave()


async def test_a_lane_of_another_process_starts_at_the_committed_position_of_the_upstream() -> None:
    class Resumed(Feed):
        def get_lane_end(self, lane: object) -> int | None:
            return 60_000

        def get_committed(self, lane: object) -> int | None:
            return 59_990

    manager = SharedStreamManager()
    feed = Resumed([("x", 59_991)])
    slow = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(slow.events) == 1)
    assert [(lane.advanced, lane.end) for lane in manager.statistics(KEY).lanes] == [(59_990, 60_000)]
    await slow.leave()


async def test_thousands_of_short_lanes_leave_no_state() -> None:
    manager, feed = SharedStreamManager(), Feed((f"file-{number}", number) for number in range(3000))
    runner = Runner(manager, 1, reads(feed)(lambda raw: raw % 10 == 0))
    await until(lambda: len(feed.advanced) == 3000)
    statistics = manager.statistics(KEY)
    assert (statistics.lanes_open, statistics.outstanding, statistics.oldest_unresolved) == (0, 0, None)
    await runner.leave()


ODD = [1.5, "12-0", True, 2**63, b"1", ValueError("\udcff"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), RecursionError()]


@pytest.mark.parametrize("method", ["get_lane_end", "get_committed", "get_errors"])
@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
async def test_an_invalid_lane_position_is_reported_for_its_lane(method: str, odd: Any) -> None:
    """Streams B2, A3: what it raised, or what was no integer, ended the runner in its heartbeat."""

    def answer(lane: object = "odd\udcff") -> Any:
        if lane != "odd\udcff":
            return 40
        if isinstance(odd, BaseException):
            raise odd
        return odd

    manager, feed = SharedStreamManager(), Feed([("x", 1), ("odd\udcff", 2)])
    setattr(feed, method, answer)
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(runner.events) == 2)
    beat = json.loads(await heartbeat(manager, [KEY, "never\udcff seen"]))
    lanes = {lane["lane"]: lane for lane in beat["streams"][0]["lanes"]}
    assert lanes.pop("x")["error"] is None
    errors = [(lane["lane"], lane["error"]) for lane in lanes.values() if lane["error"] is not None]
    assert any(method in (*names,) or method in names[1] for names in errors)
    assert beat["streams"][1]["state"] == "ended"
    await runner.leave()


async def test_ten_thousand_lanes_are_surveyed_in_slices() -> None:
    class Counts(Feed):
        asked = 0

        def get_lane_end(self, lane: object) -> int | None:
            self.asked += 1
            return 10_000_000 if lane == 9_999 else None

    manager, feed = SharedStreamManager(max_outstanding=20_000), Counts((lane, lane) for lane in range(10_000))
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(runner.events) == 10_000)
    statistics = manager.statistics(KEY)
    assert (statistics.lanes_open, len(statistics.lanes)) == (10_000, 100)
    assert 0 < feed.asked <= 500
    for _ in range(10_000):
        if manager.statistics(KEY).lanes[0].end is not None:
            break
    assert feed.asked < 10_000 + 500, "each was asked once before any was asked again, but for a slice"
    assert manager.statistics(KEY).lanes[0].lane == "9999"
    assert len(json.loads(await heartbeat(manager, [KEY, *range(999)]))["streams"][0]["lanes"]) == 2
    await runner.leave()


async def test_lanes_with_upstream_errors_are_listed_first() -> None:
    class Odd(Feed):
        def get_errors(self) -> dict[str, str]:
            return {f"{number}.jsonl": "It is not a file." for number in range(500)}

    manager = SharedStreamManager()
    feed = Odd([(f"{number}", 1) for number in range(200)])
    quick = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(quick.events) == 200)
    lanes = manager.statistics(KEY).lanes
    assert (len(lanes), lanes[0].lane, lanes[0].error, lanes[0].read) == (100, "0.jsonl", "It is not a file.", None)
    assert sum(lane.error is not None for lane in lanes) == 20
    await quick.leave()


@pytest.mark.parametrize(("answer", "error"), [(7, None), (None, None), (True, "get_unread returned"), (-1, "get_unread returned")])
async def test_the_number_of_unread_messages_is_reported_or_the_reason_why_not(answer: Any, error: str | None) -> None:
    manager, feed = SharedStreamManager(), Feed([("x", 1)])
    setattr(feed, "get_unread", lambda: answer)  # noqa: B010  a method of the class
    runner = Runner(manager, 1, reads(feed)(), confirm=False)
    await until(lambda: len(runner.events) == 1)
    statistics = manager.statistics(KEY)
    assert statistics.unread == (answer if error is None else None)
    errors = [lane.error for lane in statistics.lanes if lane.lane == "get_unread"]
    assert (len(errors), bool(errors) and str(error) in str(errors[0])) == ((0, False) if error is None else (1, True))
    reported = json.loads(await heartbeat(manager, [KEY]))["streams"][0]["unread"]
    assert reported == statistics.unread
    await runner.leave()
