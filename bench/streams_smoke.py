"""How many raw events a second a shared stream takes, confirmed at once: python bench/streams_smoke.py

Two shapes: subscribers whose trivial filter fires on every raw event, and declared watches of which one in N wants each raw event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from time import perf_counter
from typing import Any, ClassVar

from headrace.core.outcome import AdvanceItem
from headrace.streams.hub import Malformed, Matched, SharedStreamManager
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.producer import SharedStreamProducer
from headrace.triggers.raw import RawEvent
from headrace.triggers.upstream import Upstream
from headrace.triggers.watch import WatchTrigger

KEY = "bench"


class Burst(SharedStreamProducer):
    """Yields all it has at once, and says when all is advanced."""

    def __init__(self, raws: list[Any]) -> None:
        self.raws = raws
        self.advanced = 0
        self.done = asyncio.Event()

    async def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        for position, raw in enumerate(self.raws):
            yield raw, position
        await asyncio.Event().wait()

    def get_position(self, broker_payload: Any) -> int:
        return int(broker_payload)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        self.advanced += len(batch)
        if self.advanced == len(self.raws):
            self.done.set()


class Everything(BaseEventTrigger):
    burst: ClassVar[Burst]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "bench.Everything", {}

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        del kwargs
        return cls.burst

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for raw in stream:
            yield TriggerEvent(raw)


class Given(Upstream):
    """An upstream in this process."""

    burst: ClassVar[Burst]
    event_type = "bench"

    def stream_key(self) -> str:
        return KEY

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Given", {}

    def producer(self) -> SharedStreamProducer:
        return self.burst


class ConfirmAtOnce:
    hub: SharedStreamManager

    def matched(self, matched: Matched) -> None:
        self.hub.confirm_persisted((matched.seq,))

    def malformed(self, malformed: Malformed) -> None:
        raise AssertionError(malformed.reason)

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        raise AssertionError(key, trigger_ids) from error


async def subscribers(count: int, events: int) -> float:
    """Return the seconds that `events` raw events took with `count` subscribers that want all of them."""
    Everything.burst = burst = Burst(list(range(events)))
    hub = SharedStreamManager()
    streams = [hub.subscribe(trigger_id=number, trigger=Everything(), key=KEY) for number in range(count)]

    async def run(number: int) -> None:
        async for _ in Everything().filter_shared_stream(streams[number]):
            seq = hub.bind_pending_event(trigger_id=number, key=KEY)
            if seq is not None:
                hub.confirm_persisted((seq,))

    begun = perf_counter()
    tasks = [asyncio.create_task(run(number)) for number in range(count)]
    await burst.done.wait()
    took = perf_counter() - begun
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await hub.stop_all()
    return took


async def watches(count: int, events: int) -> float:
    """Return the seconds that `events` raw events took with `count` declared watches, one of which wants each."""
    Given.burst = burst = Burst([RawEvent(b'{"id":%d,"k":%d,"pad":"%s"}' % (n, n % count, b"x" * 200), "lane", n) for n in range(events)])
    sink = ConfirmAtOnce()
    sink.hub = hub = SharedStreamManager(sink=sink)
    declared = {number: WatchTrigger(upstream=Given(), match={"k": [number]}, id="$.id") for number in range(count)}
    begun = perf_counter()
    hub.watch(triggers=declared, key=KEY)
    await burst.done.wait()
    took = perf_counter() - begun
    await hub.stop_all()
    return took


def main() -> None:
    for count, events in ((1, 200_000), (100, 3_000)):
        took = asyncio.run(subscribers(count, events))
        print(f"{count:>5} subscribers, all match   {events / took:>12,.0f} events/s  {took / events / count * 1e6:6.2f} us a delivery")
    for count in (1, 100, 1000):
        took = asyncio.run(watches(count, 200_000))
        print(f"{count:>5} watches, one matches     {200_000 / took:>12,.0f} events/s")


if __name__ == "__main__":
    main()
