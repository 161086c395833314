"""Advancing: in order within a lane, independent between lanes, bounded, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from headrace.core.ledger.receipts import Receipt, TriggerAnswers
from headrace.errors import StreamEnded, StreamMoved, UpstreamFenced
from headrace.streams.manager import SharedStreamManager
from headrace.streams.upstream import advancer
from headrace.triggers.stream_log import LogState
from support.sources.streams import KEY, Engine, Feed, Keeper, Runner, other_tasks, reads, settle, until


async def test_lanes_advance_in_order_and_independently() -> None:
    manager, feed = SharedStreamManager(), Feed([("x", 1), ("y", 2), ("x", 3), ("y", 4)])
    feed.hold["x"] = asyncio.Event()
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.of("y") == [2, 4])
    feed.feed(("x", 5), ("y", 6))
    await until(lambda: feed.of("y") == [2, 4, 6])
    assert feed.of("x") == []
    assert manager.statistics(KEY).outstanding == 3
    feed.hold["x"].set()
    await until(lambda: feed.of("x") == [1, 3, 5])
    assert feed.overlap == 2
    await runner.leave()


async def test_advances_are_bounded() -> None:
    manager, feed = SharedStreamManager(max_advances=2), Feed((lane, lane) for lane in range(9))
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: len(feed.advanced) == 9)
    assert feed.overlap == 2
    await runner.leave()


async def test_an_advance_that_raises_is_retried() -> None:
    manager, feed = SharedStreamManager(advance_backoff=(0.001, 0.001)), Feed(["a"])
    feed.failures[None] = 2
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: feed.advanced)
    assert not runner.task.done()
    await runner.leave()


async def test_an_advance_that_keeps_raising_ends_the_stream_while_other_lanes_finish() -> None:
    manager, feed = SharedStreamManager(advance_backoff=(0.001, 0.001), advance_attempts=2), Feed([("x", 1), ("y", 2)])
    feed.failures["x"] = 99
    feed.hold["y"] = asyncio.Event()
    runner = Runner(manager, 1, reads(feed)())
    error = await runner.error()
    assert isinstance(error, StreamEnded)
    assert "could not be advanced" in str(error.__cause__)
    assert not manager.keys()
    assert not feed.closed
    feed.hold["y"].set()
    await until(lambda: feed.closed)
    assert feed.of("y") == [2]
    assert feed.failures["x"] == 97
    await runner.leave()
    assert not other_tasks()


async def test_an_advance_of_a_fenced_reader_ends_the_stream_without_a_repetition() -> None:
    manager, feed = SharedStreamManager(advance_backoff=(0.001, 0.001), advance_attempts=99), Feed([("x", 1)])
    feed.failures["x"], feed.error = 99, UpstreamFenced()
    runner = Runner(manager, 1, reads(feed)())
    error = await runner.error()
    assert error is not None
    assert "could not be advanced, 1 times in a row: UpstreamFenced: Another reader" in str(error.__cause__)
    assert feed.failures["x"] == 98
    await runner.leave()


async def test_an_advance_whose_producer_has_moved_ends_the_stream_as_moved_and_counts_no_error() -> None:
    manager, feed = SharedStreamManager(advance_backoff=(0.001, 0.001), advance_attempts=99), Feed([("x", 1)])
    feed.failures["x"], feed.error = 99, StreamMoved("The producer begins again in another process.")
    runner = Runner(manager, 1, reads(feed)())
    error = await runner.error()
    assert error is not None
    assert isinstance(error.__cause__, StreamMoved)
    assert feed.failures["x"] == 98
    await runner.leave()


async def test_an_advance_that_hangs_is_cancelled_and_retried() -> None:
    manager, feed = (
        SharedStreamManager(advance_timeout=0.02, advance_backoff=(0.001, 0.001), advance_attempts=99),
        Feed([("x", 1), ("y", 2)]),
    )
    feed.hold["x"] = asyncio.Event()
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: manager.statistics(KEY).counters.advance_errors >= 2)
    [lane] = manager.statistics(KEY).lanes
    assert lane.lane == "x"
    assert "did not return within 0.02 seconds" in (lane.error or "")
    assert feed.of("y") == [2]
    feed.hold["x"].set()
    await until(lambda: feed.of("x") == [1])
    statistics = manager.statistics(KEY)
    assert (statistics.counters.advances, statistics.counters.resolved, statistics.in_flight) == (2, 2, 0)
    await runner.leave()


async def test_lanes_that_hang_do_not_delay_other_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advancer, "SLOW_SECONDS", 0.01)
    manager, feed = SharedStreamManager(max_advances=4), Feed((lane, 1) for lane in range(4))
    feed.hold = {lane: asyncio.Event() for lane in range(4)}
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: manager.statistics(KEY).in_flight == 4)
    feed.feed(("free", 2), ("free", 3))
    await until(lambda: feed.of("free") == [2, 3])
    assert manager.statistics(KEY).in_flight == 4
    for held in feed.hold.values():
        held.set()
    await until(lambda: len(feed.advanced) == 6)
    await runner.leave()


async def test_twenty_failed_advances_lose_no_raw_events() -> None:
    manager, feed = SharedStreamManager(advance_backoff=(0.0001, 0.001), advance_attempts=21), Feed(range(50))
    feed.failures[None] = 20
    runner = Runner(manager, 1, reads(feed)())
    await until(lambda: len(feed.advanced) == 50)
    assert feed.advanced == list(range(50))
    assert manager.statistics(KEY).counters.advance_errors == 20
    await runner.leave()


async def test_stopping_waits_for_a_hanging_producer_up_to_close_timeout() -> None:
    class Hangs(Feed):
        async def aclose(self) -> None:
            await super().aclose()
            await asyncio.Event().wait()

    manager, feed = SharedStreamManager(close_timeout=0.3), Hangs(["a"])
    feed.hold[None] = asyncio.Event()
    Runner(manager, 1, reads(feed)())
    await until(lambda: feed.running)
    await manager.stop_all()
    assert feed.advanced == []
    assert feed.closed == 1


class Recorder:
    """Remembers receipts; `gate` holds them up, `troubles` fails so many."""

    def __init__(self, **marks: int) -> None:
        self.at = marks
        self.receipts: list[Receipt] = []
        self.looked_up: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.troubles = 0

    async def recorded_offsets(self, stream: str, lanes: Sequence[str]) -> dict[str, int]:
        assert stream == KEY
        self.looked_up.append(list(lanes))
        return {lane: mark for lane, mark in self.at.items() if lane in lanes}

    async def count_receipts(self, stream: str) -> LogState:
        return LogState("a log", 0)

    async def record(self, receipt: Receipt) -> bool:
        await self.gate.wait()
        if self.troubles:
            self.troubles -= 1
            raise ConnectionError("the api is away")
        self.receipts.append(receipt)
        return True


async def test_custody_is_recorded_before_the_broker_is_advanced() -> None:
    recorder, keeper, feed = Recorder(x=1), Keeper(), Feed([("x", 1), ("x", 2), ("x", 3), ("y", 4)])
    manager = keeper.manager = SharedStreamManager(sink=keeper, recorder=recorder, advance_backoff=(0.001, 0.001))
    manager.register(trigger_ids=[1, 2], key=KEY)
    recorder.gate.clear()
    recorder.troubles = 1
    engine = Engine(manager, keeper, 1, reads(feed)(lambda raw: raw != 2))
    engine.start()
    await until(lambda: engine.events == [1, 3, 4])
    await settle()
    assert feed.advanced == []
    feed.failures["x"] = 2
    recorder.gate.set()
    await until(lambda: len(feed.advanced) == 4)
    by_lane = {receipt.lane: receipt for receipt in recorder.receipts}
    assert len(recorder.receipts) == 2, "once, however often the advance is tried; what was recorded before is left out"
    assert by_lane["x"] == Receipt(KEY, "x", 1, 3, 2, (1, 2), (TriggerAnswers(1, fired=1), TriggerAnswers(2, spilled=2)))
    assert by_lane["y"] == Receipt(KEY, "y", None, 4, 1, (1, 2), (TriggerAnswers(1, fired=1), TriggerAnswers(2, spilled=1)))
    feed.feed(("x", 5))
    await until(lambda: len(recorder.receipts) == 3)
    assert (recorder.receipts[2].after, recorder.receipts[2].last, recorder.receipts[2].read) == (3, 5, 1)
    await manager.stop_all()


async def test_receipts_cover_a_stream_without_positions_in_lanes_of_its_opening() -> None:
    class NoPositions(Feed):
        def get_position(self, broker_payload: Any) -> int | None:
            return None

    recorder = Recorder()
    for _ in range(2):
        await read_to_the_end(recorder, NoPositions([("x", 1), ("y", 2), ("x", 3)]))
    assert sorted((receipt.lane.partition("@")[0], receipt.read) for receipt in recorder.receipts) == [
        ("x", 2),
        ("x", 2),
        ("y", 1),
        ("y", 1),
    ]
    assert len({receipt.lane for receipt in recorder.receipts}) == 4


async def test_marks_are_requested_once_for_each_lane_and_in_batches() -> None:
    lanes = [f"lane {number}" for number in range(300)]
    recorder, keeper, feed = Recorder(), Keeper(), Feed((lane, position) for position in (1, 2) for lane in lanes)
    manager = keeper.manager = SharedStreamManager(sink=keeper, recorder=recorder)
    manager.register(trigger_ids=[1], key=KEY)
    engine = Engine(manager, keeper, 1, reads(feed)(lambda raw: True))
    engine.start()
    await until(lambda: len(feed.advanced) == 600)
    assert sorted(lane for lookup in recorder.looked_up for lane in lookup) == sorted(lanes)
    assert len(recorder.looked_up) < 60
    await manager.stop_all()


async def test_a_lane_whose_mark_cannot_be_read_is_not_advanced() -> None:
    class Refuses(Recorder):
        async def recorded_offsets(self, stream: str, lanes: Sequence[str]) -> dict[str, int]:
            raise ConnectionError("no")

    manager, feed = SharedStreamManager(recorder=Refuses(), advance_backoff=(0.001, 0.001), advance_attempts=2), Feed([("x", 1)])
    runner = Runner(manager, 1, reads(feed)())
    assert isinstance(await runner.error(), StreamEnded)
    assert not feed.advanced
    await runner.leave()


async def read_to_the_end(recorder: Recorder, feed: Feed) -> None:
    """Read what there is, and stop."""
    keeper, count = Keeper(), feed.queue.qsize()
    manager = keeper.manager = SharedStreamManager(sink=keeper, recorder=recorder)
    manager.register(trigger_ids=[1], key=KEY)
    engine = Engine(manager, keeper, 1, reads(feed)(lambda raw: True))
    engine.start()
    await until(lambda: len(feed.advanced) == count)
    await manager.stop_all()


@pytest.mark.parametrize(
    ("recorded", "committed", "after"),
    [(2, 5, 5), (2, None, 2), (2, 1, 2), (2, 6, 2), (2, 9, 2), (None, 5, None)],
    ids=["ahead of the recorder", "unknown", "behind the recorder", "of a raw event that comes", "after it", "of a lane without recorder"],
)
async def test_a_lane_committed_beyond_its_receipts_begins_with_a_gap(
    recorded: int | None, committed: int | None, after: int | None
) -> None:
    class Ahead(Feed):
        def get_position(self, broker_payload: Any) -> int:
            return 5 + (super().get_position(broker_payload) or 0)

        def get_committed(self, lane: Hashable) -> int | None:
            return committed

    recorder, feed = Recorder(**({} if recorded is None else {"x": recorded})), Ahead([("x", 6), ("x", 7)])
    await read_to_the_end(recorder, feed)
    assert (recorder.receipts[0].after, sum(receipt.read for receipt in recorder.receipts)) == (after, 2)


async def test_an_unavailable_committed_position_does_not_delay_the_lane() -> None:
    class Raises(Feed):
        def get_committed(self, lane: Hashable) -> int | None:
            raise ValueError("no")

    recorder, feed = Recorder(x=0), Raises([("x", 6)])
    await read_to_the_end(recorder, feed)
    assert recorder.receipts[0].after == 0
