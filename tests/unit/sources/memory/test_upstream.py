"""Behaviour of the queue in memory beyond the source contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamEnded, UpstreamError, UsageError
from headrace.sources.memory.upstream import Memory
from headrace.testing.contract.reading import opened, reading


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    made = Memory(str(tmp_path))
    yield made
    made.clear()


def values(items: list[tuple[Any, Any]]) -> list[Any]:
    return [raw.value for raw, _ in items]


def test_a_memory_queue_is_identified_by_name_not_by_path(memory: Memory, tmp_path: Path) -> None:
    assert memory.relative_to(Path("/elsewhere")).stream_key() == f"memory:{tmp_path}"
    assert memory.serialize() == ("headrace.sources.memory.upstream.Memory", {"name": str(tmp_path), "lanes": None})


async def test_memory_queues_with_the_same_name_share_messages(memory: Memory, tmp_path: Path) -> None:
    sent = Memory(str(tmp_path)).send({"n": 1})
    async with reading(memory.producer()) as held:
        (raw, _), *_ = await held.take(1)
    assert (raw.value, raw.lane, raw.position, raw.delivery) == ({"n": 1}, *sent, 1)


async def test_a_memory_queue_has_at_most_one_reader(memory: Memory) -> None:
    memory.send(1)
    async with reading(memory.producer()) as held:
        await held.take(1)
        async with reading(memory.producer()) as second:
            with pytest.raises(UpstreamError, match="read already"):
                await second.take(1)
        memory.send(2)
        assert values(await held.take(1)) == [2]


async def test_lanes_are_chosen_by_key_by_name_or_round_robin(tmp_path: Path) -> None:
    memory = Memory(str(tmp_path), lanes=2)
    assert memory.send_many(range(4)) == 4
    assert memory.send(4, key="Ada").lane == memory.send(5, key="Ada").lane
    assert memory.send(6, lane="eu") == ("eu", 1)
    async with reading(memory.producer()) as held:
        items = await held.take(7)
    assert [raw.value for raw, _ in items if raw.lane == "eu"] == [6]
    assert {raw.lane for raw, _ in items} == {"0", "1", "eu"}
    assert {raw.key for raw, _ in items} == {None, "Ada"}
    with pytest.raises(UpstreamError, match="other lanes already"):
        Memory(str(tmp_path), lanes=3)
    memory.clear()


def test_an_invalid_send_stores_no_message(tmp_path: Path) -> None:
    memory = Memory(str(tmp_path), lanes=["eu"])
    with pytest.raises(UsageError):
        memory.send_many([1, b"2"])
    with pytest.raises(UsageError, match="no lane 'us'"):
        memory.send(1, lane="us")
    assert memory.send(1).position == 1
    memory.clear()


async def test_a_memory_queue_counts_deliveries_and_stores_rejected_messages(memory: Memory) -> None:
    memory.send_many(range(3))
    producer = memory.producer()
    async with reading(producer) as held:
        items = await held.take(3)
        outcomes = [AdvanceOutcome(0, 1), AdvanceOutcome(0, 0, rejected=1), AdvanceOutcome(1, 0)]
        await producer.advance([AdvanceItem(payload, outcome) for (_, payload), outcome in zip(items, outcomes, strict=True)])
        assert (producer.get_committed("0"), producer.get_lane_end("0"), producer.get_committed("1")) == (None, 3, None)
    assert [(letter.value, letter.position) for letter in memory.dead_letters()] == [(1, 2)]
    async with reading(memory.producer()) as held:
        again = await held.take(1)
        assert [(raw.value, raw.delivery) for raw, _ in again] == [(0, 2)]
        await held.advance(again)
        assert held.producer.get_committed("0") == 3


async def test_a_closed_producer_does_not_advance(memory: Memory) -> None:
    memory.send(1)
    producer = memory.producer()
    async with opened(producer) as stream:
        _, payload = await anext(stream)
    await producer.aclose()
    with pytest.raises(StreamEnded):
        await producer.advance([AdvanceItem(payload, AdvanceOutcome(1, 0))])


async def test_another_thread_can_send(memory: Memory) -> None:
    async with reading(memory.producer()) as held:
        for number in range(20):
            await asyncio.to_thread(memory.send, number)
            assert values(await held.take(1)) == [number]


def test_a_reader_with_a_closed_loop_does_not_block_senders(memory: Memory) -> None:
    async def read() -> None:
        stream = memory.producer().open_stream()
        await anext(stream)

    memory.send(1)
    asyncio.run(read())
    assert memory.send(2).position == 2
