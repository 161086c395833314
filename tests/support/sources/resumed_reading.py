"""Read an upstream through shared streams as a triggerer does: open it again after each end, and record what is read and advanced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple, cast

from headrace.core.ledger.outcome import AdvanceItem
from headrace.core.values.text import hint_of
from headrace.errors import StreamError
from headrace.streams.manager import SharedStreamManager
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream
from support.sources.reading import until

REOPEN_SECONDS = 0.1


class Payload(NamedTuple):
    """A raw event's number, its lane, and the broker payload of the producer below."""

    number: int
    lane: Hashable
    inner: Any


class ObservedProducer(SharedStreamProducer):
    """A producer that tells its reading what it yields and what it has advanced."""

    def __init__(self, inner: SharedStreamProducer, reading: ResumedReading) -> None:
        self.inner = inner
        self.upstream = inner.upstream
        self._reading = reading
        self._last: dict[Hashable, int] = {}
        self._committed: dict[Hashable, int] = {}

    async def open_stream(self) -> AsyncIterator[tuple[Any, Payload]]:
        """Yield what the producer below yields."""
        async with aclosing(cast(Any, self.inner.open_stream())) as stream:
            async for raw, inner in stream:
                payload = Payload(int(raw.value["n"]), self.inner.get_advance_lane(inner), inner)
                self._observe(payload)
                yield raw, payload

    def _observe(self, payload: Payload) -> None:
        reading, position = self._reading, self.inner.get_position(payload.inner)
        if payload.number in reading.advanced:
            reading.faults.append(f"{payload.number} is delivered after its advance")
        if position is not None:
            if position <= self._last.get(payload.lane, -1):
                reading.faults.append(f"position {position} of {payload.lane} comes after {self._last[payload.lane]}")
            self._last[payload.lane] = position
        reading.delivered.append(payload.number)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Advance the producer below."""
        payloads: list[Payload] = [item.broker_payload for item in batch]
        items = [AdvanceItem(item.broker_payload.inner, item.outcome) for item in batch]
        self._reading.requested.update(payload.number for payload in payloads)
        disturb, self._reading.disturb_advance = self._reading.disturb_advance, None
        if disturb is None:
            await self.inner.advance(items)
        else:
            await disturb(lambda: self.inner.advance(items))
        self._reading.advanced.update(payload.number for payload in payloads)
        self._check_committed(payloads[0].lane)

    def _check_committed(self, lane: Hashable) -> None:
        committed = self.inner.get_committed(lane)
        if committed is not None and committed < self._committed.get(lane, committed):
            self._reading.faults.append(f"the committed position of {lane} goes back to {committed} from {self._committed[lane]}")
        if committed is not None:
            self._committed[lane] = committed

    def get_advance_lane(self, broker_payload: Payload) -> Hashable:
        """Return the lane of the producer below."""
        return broker_payload.lane

    def get_position(self, broker_payload: Payload) -> int | None:
        """Return the position of the producer below."""
        return self.inner.get_position(broker_payload.inner)

    def get_errors(self) -> Mapping[str, str]:
        """Return the errors of the producer below."""
        return self.inner.get_errors()

    async def aclose(self) -> None:
        """Close the producer below."""
        await self.inner.aclose()


class Accepts(BaseEventTrigger):
    """A trigger that fires on each raw event."""

    def __init__(self, key: str) -> None:
        self._key = key

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "support.sources.resumed_reading.Accepts", {"key": self._key}

    def shared_stream_key(self) -> str:
        return self._key

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        raise NotImplementedError

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in stream:
            yield TriggerEvent(raw)


class ResumedReading:
    """One reading over several openings. `faults` has what no broker may do, in words.

    The messages are objects with their number in `n`. `stored` has the numbers in the order in which a trigger's events were confirmed.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.delivered: list[int] = []
        self.stored: list[int] = []
        self.requested: set[int] = set()
        """The messages of which an advance was requested. `advanced` has those of which it succeeded."""
        self.advanced: set[int] = set()
        self.faults: list[str] = []
        self.ends: list[str] = []
        """The errors with which streams ended, as `headrace status` shows them."""
        self.errors: list[str] = []
        """What the producers reported with `get_errors`, each once."""
        self.is_storing = asyncio.Event()
        self.is_storing.set()
        self.pause_at: int | None = None
        """The number of stored events after which `is_storing` is cleared."""
        self.disturb_advance: Callable[[Callable[[], Any]], Any] | None = None
        """What the next call of `advance` awaits instead. It gets the call."""
        self._upstream = upstream
        self._key = upstream.stream_key()
        self._producer: SharedStreamProducer | None = None
        self._manager = SharedStreamManager(make_producer=lambda key, opener: self._make())

    @property
    def left_behind(self) -> int:
        """The number of tasks of producers that did not end when they were closed."""
        return self._manager.statistics(self._key).left_behind

    def found(self) -> str | None:
        """Return the last error of the stream or the producer, or None."""
        if self._producer is not None:
            self.errors += [text for text in self._producer.get_errors().values() if text not in self.errors]
        known = self.ends or self.errors
        return known[-1] if known else None

    async def advanced_up_to(self, total: int) -> None:
        """Wait until this many different messages are advanced, in a calm network."""
        await until(lambda: len(self.advanced) >= total)

    async def stored_up_to(self, total: int) -> None:
        """Wait until this many different messages are stored. The answer of an advance may be lost, so that none shows that it is done."""
        await until(lambda: len(set(self.stored)) >= total)

    async def run(self) -> None:
        """Read until it is cancelled."""
        while True:
            trigger = Accepts(self._key)
            try:
                stream = self._manager.subscribe(trigger_id=1, trigger=trigger, key=self._key)
                async for event in trigger.filter_shared_stream(stream):
                    await self.is_storing.wait()
                    self.stored.append(int(event.payload.value["n"]))
                    if len(self.stored) == self.pause_at:
                        self.is_storing.clear()
                    seq = self._manager.bind_pending_event(trigger_id=1, key=self._key)
                    if seq is not None:
                        self._manager.confirm_persisted([seq])
            except StreamError as error:
                self.ends.append(f"{error}{hint_of(error)}")
            await asyncio.sleep(REOPEN_SECONDS)

    async def stop(self) -> None:
        """Stop the stream, and wait until its producer is closed."""
        await self._manager.stop_all()

    def check(self, total: int, *, ordered: bool) -> None:
        """Compare all that happened with what the contract promises of `total` messages, sent in the order of their numbers."""
        assert not self.faults, self.faults[:5]
        assert set(self.stored) == set(range(total))
        if ordered:
            first = list(dict.fromkeys(self.stored))
            assert first == sorted(first)
        for end in self.ends:
            assert ": " in end or end.endswith("."), f"an end without a reason: {end!r}"

    def _make(self) -> SharedStreamProducer:
        self._producer = ObservedProducer(self._upstream.producer(), self)
        return self._producer


@asynccontextmanager
async def resumed_reading(upstream: Upstream) -> AsyncIterator[ResumedReading]:
    """Read an upstream until the block ends."""
    reading = ResumedReading(upstream)
    task = asyncio.create_task(reading.run())
    try:
        yield reading
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reading.stop()
