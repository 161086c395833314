"""The part of the contract for cancellation: of an advance, of a wait for messages, and of an opening."""

from __future__ import annotations

import asyncio

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.testing.contract.broker import Broker
from headrace.testing.contract.case import contract_case
from headrace.testing.contract.reading import opened, others, reading, texts
from headrace.testing.pytest_import import pytest


class CancellationContract:
    """Calls of a producer that are cancelled at any step."""

    @contract_case("redelivery")
    async def test_a_cancelled_advance_can_be_repeated(self, broker: Broker) -> None:
        sent = [b'{"n":%d}' % number for number in range(10)]
        broker.send("a", sent)
        producer = broker.upstream().producer()
        async with reading(producer) as stream:
            items = await stream.take(10)
            batch = [AdvanceItem(payload, AdvanceOutcome(1, 0)) for _, payload in items[:6]]
            for steps in range(6):
                advance = asyncio.ensure_future(producer.advance(batch))
                for _ in range(steps):
                    await asyncio.sleep(0)
                advance.cancel()
                await asyncio.gather(advance, return_exceptions=True)
            await producer.advance(batch)
        async with reading(broker.upstream().producer()) as stream:
            assert texts(broker, await stream.take(4)) == others(sent, items[:6])

    @contract_case()
    async def test_a_reader_cancelled_during_a_wait_ends(self, broker: Broker) -> None:
        producer = broker.upstream().producer()
        async with opened(producer) as stream:
            broker.send("a", [b'{"n":0}'])
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await producer.aclose()
        async with reading(broker.upstream().producer()) as stream:
            await stream.take(1)

    @contract_case("redelivery")
    async def test_a_reader_cancelled_during_its_opening_does_not_lock_out_the_next(self, broker: Broker) -> None:
        broker.send("a", [b'{"n":0}'])
        for steps in range(8):
            async with reading(broker.upstream().producer()):
                for _ in range(steps):
                    await asyncio.sleep(0)
        async with reading(broker.upstream().producer()) as stream:
            await stream.take(1)
