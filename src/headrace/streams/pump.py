"""Advances the broker: lane by lane, each lane's batches one after the other, several lanes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

import structlog

from headrace.core.custody import Custody
from headrace.core.ledger import Ledger
from headrace.core.obligation import Batch
from headrace.errors import StreamError
from headrace.streams.patience import Patience
from headrace.streams.policy import StreamPolicy
from headrace.streams.recorder import Recorder
from headrace.streams.trouble import lane_name
from headrace.triggers.producer import SharedStreamProducer

MAX_LANES = 500
"""Lanes whose marks are looked up in one call."""

log = structlog.get_logger(__name__)


class Pump:
    """Records the custody of what the ledger has ready, then gives it to the producer; a batch stays on the books until that succeeded.

    A batch whose advance keeps failing is handed to `give_up`; its lane stands still then. `made_room` is called after each advance.
    """

    def __init__(
        self,
        ledger: Ledger,
        policy: StreamPolicy,
        *,
        recorder: Recorder | None,
        give_up: Callable[[Exception], None],
        made_room: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._recorder = recorder
        self._give_up = give_up
        self._made_room = made_room
        self._patience = Patience(policy.close_timeout)
        self._wake = asyncio.Event()
        self._in_flight = 0
        self._unknown: dict[str, None] = {}
        self._learning = asyncio.Lock()
        self.custody: Custody | None = None

    @property
    def in_flight(self) -> int:
        """How many lanes are being advanced."""
        return self._in_flight

    def wake(self) -> None:
        """Let the pump look for what is ready."""
        self._wake.set()

    def finish(self) -> None:
        """Let `run` return when nothing is ready and nothing in flight; what fails is not tried again."""
        self._patience.end()
        self._wake.set()

    async def run(self, producer: SharedStreamProducer) -> None:
        """Advance until `finish`."""
        async with asyncio.TaskGroup() as advances:
            while not (self._patience.ended and not self._in_flight and not self._ledger.ready):
                await self._wake.wait()
                self._wake.clear()
                while self._in_flight < self._policy.max_advances and (batch := self._ledger.take_ready()) is not None:
                    self._in_flight += 1
                    advances.create_task(self._advance(producer, batch), name="headrace advance")

    async def _advance(self, producer: SharedStreamProducer, batch: Batch) -> None:
        policy, lane = self._policy, batch.lane
        recorded = False
        error: Exception | None = None
        for attempt in range(policy.advance_attempts):
            if attempt and not await self._patience.pause(*policy.advance_backoff, attempt):
                break
            try:
                if not recorded:
                    await self._record(batch)
                    recorded = True
                await self._once(producer, batch)
            except Exception as failure:
                self._ledger.counts.advance_errors += 1
                error = _told(failure, policy.advance_timeout)
                lane.error = f"{type(failure).__name__}: {error}"
                log.warning("Advance failed", lane=lane_name(lane.key), batch=len(batch.items), attempt=attempt + 1, error=lane.error)
            else:
                error = lane.error = None
                self._ledger.advanced(batch)
                self._made_room()
                break
        self._in_flight -= 1
        self._wake.set()
        if error is not None:
            failed = StreamError(f"Lane {lane.key!r} could not be advanced, {attempt + 1} times in a row: {error}")
            failed.__cause__ = error
            self._give_up(failed)

    async def _record(self, batch: Batch) -> None:
        if self._recorder is None or self.custody is None:
            return
        name = lane_name(batch.lane.key)
        if not self.custody.knows(name):
            await self._learn(self.custody, self._recorder, name)
        for receipt in self.custody.receipts(name, batch.entries):
            async with self._patience.timeout(None):
                await self._recorder.record(receipt)
            self.custody.recorded(receipt)

    async def _learn(self, custody: Custody, recorder: Recorder, lane: str) -> None:
        """Learn the mark of a lane, in one call with those of others that are about to be advanced."""
        self._unknown[lane] = None
        async with self._learning, self._patience.timeout(None):
            if custody.knows(lane):
                return
            ready = (lane_name(one.key) for one in islice(self._ledger.ready, MAX_LANES))
            wanted = [*self._unknown, *(name for name in ready if name not in self._unknown and not custody.knows(name))][:MAX_LANES]
            if lane not in wanted:
                wanted[-1] = lane
            custody.learn(wanted, await recorder.marks(custody.stream, wanted))
            for name in wanted:
                self._unknown.pop(name, None)

    async def _once(self, producer: SharedStreamProducer, batch: Batch) -> None:
        counts, clock = self._ledger.counts, self._policy.clock
        begun = clock()
        async with self._patience.timeout(self._policy.advance_timeout):
            await producer.advance(batch.items)
        counts.advances += 1
        counts.advance_seconds += clock() - begun


def _told(error: Exception, timeout: float) -> Exception:
    return TimeoutError(f"it did not return within {timeout:g} seconds") if isinstance(error, TimeoutError) and not str(error) else error
