"""What the tests of all brokers send, wait for and answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import StreamError, UpstreamFenced
from headrace.testing.contract.reading import Reading
from headrace.triggers.upstream import SharedStreamProducer
from support.sources.kit import PATIENCE

ACKED = AdvanceOutcome(1, 0)
FAILED = AdvanceOutcome(0, 1)


def numbers(start: int, stop: int) -> list[bytes]:
    """Return messages with the numbers from `start` to before `stop`."""
    return [b'{"n":%d}' % number for number in range(start, stop)]


def numbers_of(pairs: Sequence[tuple[Any, Any]]) -> list[int]:
    """Return the numbers of raw events."""
    return [raw.value["n"] for raw, _ in pairs]


def items_of(pairs: Sequence[tuple[Any, Any]], failed: Sequence[int] = ()) -> list[AdvanceItem]:
    """Return the answers to raw events: all are acked, except the numbers in `failed`."""
    return [AdvanceItem(payload, FAILED if failed and raw.value["n"] in failed else ACKED) for raw, payload in pairs]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that does not block."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


async def until_in_thread(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that blocks."""
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)


async def advance_until_done(stream: Reading, items: Sequence[tuple[Any, Any]]) -> None:
    """Advance past items of one lane, again after each error that may pass, as the advancer does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await stream.producer.advance(items_of(items))
                return
            except UpstreamFenced:
                raise
            except StreamError:
                await asyncio.sleep(0.1)


async def cancel_reader(producer: SharedStreamProducer, steps: int, pause: float) -> None:
    """Read and advance, and cancel that after `steps` turns of the loop, each second one with a pause in seconds. Cancel the close too."""

    async def visit() -> None:
        async for raw, payload in producer.open_stream():
            await producer.advance(items_of([(raw, payload)]))

    task = asyncio.create_task(visit())
    for _ in range(steps):
        await asyncio.sleep(pause if steps % 2 else 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    closing = asyncio.create_task(producer.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)


async def take_to(stream: Reading, last: int) -> list[int]:
    """Return the numbers of the next raw events up to the one of the number `last`."""
    taken = numbers_of(await stream.take(1))
    while taken[-1] != last:
        taken += numbers_of(await stream.take(1))
    return taken
