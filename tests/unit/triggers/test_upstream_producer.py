from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from headrace.core.ledger.outcome import AdvanceItem
from headrace.triggers.upstream import SharedStreamProducer


class Least(SharedStreamProducer):
    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        yield 1, 1

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        return


async def test_a_producer_needs_only_open_stream_and_advance() -> None:
    producer = Least()
    assert producer.get_advance_lane("a") == producer.get_advance_lane("b")
    assert producer.get_position("a") is None
    assert producer.get_lane_end("lane") is None
    assert producer.get_committed("lane") is None
    await producer.aclose()
