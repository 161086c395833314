"""What every upstream with acks must do. An adapter for a new broker goes into `BROKERS` and passes, or is not done.

A crash is a producer that is closed without having advanced: none may keep anything that it has not made durable by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from headrace.core.outcome import AdvanceItem, AdvanceOutcome
from headrace.sources.directory import Directory
from headrace.triggers.producer import SharedStreamProducer
from source_kit import opened, reading

ACKED = AdvanceOutcome(1, 0)


class Broker(Protocol):
    """The far side, as a test drives it."""

    def put(self, lane: str, messages: Sequence[bytes]) -> None:
        """Put messages at the end of a lane."""

    def producer(self) -> SharedStreamProducer:
        """Return a new producer that reads all lanes."""


class FolderBroker:
    """A folder; a lane is a file, which is put in by rename, and appended to when more comes."""

    def __init__(self, tmp_path: Path) -> None:
        self._folder = tmp_path / "feed"
        self._folder.mkdir()

    def put(self, lane: str, messages: Sequence[bytes]) -> None:
        data = b"".join(message + b"\n" for message in messages)
        path = self._folder / f"{lane}.jsonl"
        if path.exists():
            with path.open("ab") as file:
                file.write(data)
        else:
            part = path.with_suffix(".part")
            part.write_bytes(data)
            part.rename(path)

    def producer(self) -> SharedStreamProducer:
        return Directory(self._folder).producer()


BROKERS: list[Callable[[Path], Broker]] = [FolderBroker]


@pytest.fixture(params=BROKERS, ids=lambda kind: kind.__name__)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Broker:
    made: Broker = request.param(tmp_path)
    return made


def messages(count: int, start: int = 0) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, start + count)]


async def test_a_lane_comes_in_order_and_its_positions_rise(broker: Broker) -> None:
    broker.put("a", messages(2_000))
    async with reading(broker.producer()) as held:
        items = await held.take(2_000)
        positions = [held.producer.get_position(payload) or 0 for _, payload in items]
    assert [raw.data for raw, _ in items] == messages(2_000)
    assert positions == sorted(set(positions))
    assert len({raw.lane for raw, _ in items}) == 1


async def test_each_lane_keeps_its_order_whatever_the_others_do(broker: Broker) -> None:
    for lane in "abc":
        broker.put(lane, messages(100))
    async with reading(broker.producer()) as held:
        items = await held.take(300)
        lanes = {held.producer.get_advance_lane(payload) for _, payload in items}
    assert len(lanes) == 3
    for one in lanes:
        assert [raw.data for raw, payload in items if held.producer.get_advance_lane(payload) == one] == messages(100)


async def test_what_comes_later_is_read_without_asking(broker: Broker) -> None:
    async with reading(broker.producer()) as held:
        broker.put("a", messages(3))
        assert [raw.data for raw, _ in await held.take(3)] == messages(3)
        broker.put("b", messages(3, start=3))
        assert [raw.data for raw, _ in await held.take(3)] == messages(3, start=3)


async def test_what_was_not_advanced_comes_again_after_a_crash(broker: Broker) -> None:
    broker.put("a", messages(50))
    async with reading(broker.producer()) as held:
        first = await held.take(50)
    async with reading(broker.producer()) as held:
        again = await held.take(50)
    assert [(raw.data, raw.lane, raw.position) for raw, _ in again] == [(raw.data, raw.lane, raw.position) for raw, _ in first]


async def test_what_was_advanced_does_not_come_again(broker: Broker) -> None:
    broker.put("a", messages(50))
    async with reading(broker.producer()) as held:
        await held.advance((await held.take(50))[:30])
    async with reading(broker.producer()) as held:
        items = await held.take(20)
        assert [raw.data for raw, _ in items] == messages(20, start=30)
        await held.advance(items)
    broker.put("b", messages(1, start=99))
    async with reading(broker.producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == messages(1, start=99)


async def test_lanes_advance_apart(broker: Broker) -> None:
    broker.put("a", messages(10))
    broker.put("b", messages(10))
    async with reading(broker.producer()) as held:
        items = await held.take(20)
        ahead = items[-1][0].lane
        await held.advance(item for item in items if item[0].lane == ahead)
    async with reading(broker.producer()) as held:
        again = await held.take(10)
    assert {raw.lane for raw, _ in again} == {raw.lane for raw, _ in items} - {ahead}


async def test_advances_of_many_lanes_at_once_are_all_kept(broker: Broker) -> None:
    for number in range(20):
        broker.put(f"lane{number:02}", messages(5))
    async with reading(broker.producer()) as held:
        items = await held.take(100)
        lanes: dict[str, list[AdvanceItem]] = {}
        for raw, payload in items:
            lanes.setdefault(raw.lane, []).append(AdvanceItem(payload, ACKED))
        await asyncio.gather(*(held.producer.advance(batch[:3]) for batch in lanes.values()))
    async with reading(broker.producer()) as held:
        again = await held.take(40)
    assert {raw.lane: [one.data for one, _ in again if one.lane == raw.lane] for raw, _ in again} == dict.fromkeys(
        lanes, messages(2, start=3)
    )


async def test_advancing_twice_changes_nothing(broker: Broker) -> None:
    broker.put("a", messages(10))
    async with reading(broker.producer()) as held:
        items = await held.take(10)
        await held.advance(items[:6])
        await held.advance(items[:6])
        await held.advance(items[:2])
    async with reading(broker.producer()) as held:
        assert [raw.data for raw, _ in await held.take(4)] == messages(4, start=6)


async def test_what_failed_comes_again(broker: Broker) -> None:
    broker.put("a", messages(10))
    producer = broker.producer()
    async with reading(producer) as held:
        items = await held.take(10)
        outcomes = [AdvanceOutcome(0, 1) if raw.data == b'{"n":4}' else ACKED for raw, _ in items]
        await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items, outcomes, strict=True)][:7])
        await held.advance(items[7:])
    async with reading(broker.producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == messages(1, start=4)


async def test_what_was_rejected_does_not_come_again(broker: Broker) -> None:
    broker.put("a", messages(10))
    producer = broker.producer()
    async with reading(producer) as held:
        items = await held.take(10)
        await producer.advance([AdvanceItem(payload, AdvanceOutcome(0, 0, rejected=1)) for _, payload in items[:5]])
    async with reading(broker.producer()) as held:
        assert [raw.data for raw, _ in await held.take(1)] == messages(1, start=5)


async def test_a_stream_that_is_stopped_may_still_be_advanced(broker: Broker) -> None:
    broker.put("a", messages(5))
    producer = broker.producer()
    async with opened(producer) as stream:
        items = [await anext(stream) for _ in range(5)]
    await producer.advance([AdvanceItem(payload, ACKED) for _, payload in items[:3]])
    await producer.aclose()
    async with reading(broker.producer()) as held:
        assert [raw.data for raw, _ in await held.take(2)] == messages(2, start=3)


async def test_closing_leaves_no_task_and_lets_the_next_one_in(broker: Broker) -> None:
    before = asyncio.all_tasks()
    for _ in range(3):
        async with reading(broker.producer()) as held:
            broker.put("a", messages(1))
            await held.take(1)
        assert asyncio.all_tasks() == before


async def test_closing_what_was_never_opened_is_quiet(broker: Broker) -> None:
    await broker.producer().aclose()


async def test_a_slow_consumer_gets_everything_in_order(broker: Broker) -> None:
    broker.put("a", messages(500))
    producer = broker.producer()
    async with opened(producer) as stream:
        seen = []
        for number in range(700):
            raw, payload = await anext(stream)
            seen.append(raw.data)
            await producer.advance([AdvanceItem(payload, ACKED)])
            if number == 300:
                broker.put("a", messages(200, start=500))
    await producer.aclose()
    assert seen == messages(700)
