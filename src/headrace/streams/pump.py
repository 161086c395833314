"""Advances the broker: lane by lane, each lane's batches one after the other, several lanes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from headrace.core.ledger import Batch, Ledger
from headrace.errors import StreamError
from headrace.streams.policy import StreamPolicy
from headrace.triggers.producer import SharedStreamProducer

log = structlog.get_logger(__name__)


class Pump:
    """Gives the producer what the ledger has ready. A batch whose advance keeps failing is handed to `give_up`; its lane stands still then.

    `made_room` is called after each advance.
    """

    def __init__(
        self, ledger: Ledger, policy: StreamPolicy, *, give_up: Callable[[Exception], None], made_room: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._give_up = give_up
        self._made_room = made_room
        self._wake = asyncio.Event()
        self._in_flight = 0
        self._finishing = False

    def wake(self) -> None:
        """Let the pump look for what is ready."""
        self._wake.set()

    def finish(self) -> None:
        """Let `run` return when nothing is ready and nothing in flight."""
        self._finishing = True
        self._wake.set()

    async def run(self, producer: SharedStreamProducer) -> None:
        """Advance until `finish`."""
        async with asyncio.TaskGroup() as advances:
            while not (self._finishing and not self._in_flight and not self._ledger.ready):
                await self._wake.wait()
                self._wake.clear()
                while self._in_flight < self._policy.max_advances and (batch := self._ledger.take_ready()) is not None:
                    self._in_flight += 1
                    advances.create_task(self._advance(producer, batch), name="headrace advance")

    async def _advance(self, producer: SharedStreamProducer, batch: Batch) -> None:
        error: Exception | None = None
        for delay in (0.0, *self._policy.advance_backoff):
            if delay:
                await asyncio.sleep(delay)
            error = await self._try(producer, batch)
            if error is None:
                self._ledger.advanced(batch)
                self._made_room()
                break
        self._in_flight -= 1
        self._wake.set()
        if error is not None:
            lane, attempts = batch.lane.key, len(self._policy.advance_backoff) + 1
            failed = StreamError(f"Lane {lane!r} could not be advanced, {attempts} times in a row: {error}")
            failed.__cause__ = error
            self._give_up(failed)

    async def _try(self, producer: SharedStreamProducer, batch: Batch) -> Exception | None:
        try:
            await producer.advance(batch.items)
        except Exception as error:
            log.exception("Advance failed", lane=batch.lane.key, batch=len(batch.items))
            return error
        return None
