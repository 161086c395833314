"""The side of Headrace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from bench.streams.case import Case
from bench.streams.drive import KEY, parsed, texts
from bench.streams.feed import Feed

from headrace.core.ledger.outcome import AdvanceItem
from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import Malformed, Matched
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.event import TriggerEvent
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import SharedStreamProducer, Upstream
from headrace.triggers.watch import WatchTrigger


class Producer(SharedStreamProducer):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        return self._feed.pairs()

    def get_advance_lane(self, broker_payload: Any) -> int:
        return int(broker_payload % self._feed.lanes)

    def get_position(self, broker_payload: Any) -> int:
        return int(broker_payload)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        self._feed.advanced(len(batch))


class Fast(BaseEventTrigger):
    """Fires on raw events with this `k`, or on all if `k` is None, without acks."""

    feed: ClassVar[Feed]

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.k = k

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", {"k": self.k}

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        del kwargs
        return Fast.feed.bare()

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        k = self.k
        async for raw in stream:
            if k is None or raw["k"] == k:
                yield TriggerEvent(raw)


class Acked(Fast):
    """The same with acks."""

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        del kwargs
        return Producer(Fast.feed)


class BenchUpstream(Upstream):
    """The upstream of the declared watches."""

    event_type = "bench"

    def stream_key(self) -> str:
        return KEY

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.BenchUpstream", {}

    def producer(self) -> SharedStreamProducer:
        return Producer(Fast.feed)


class ConfirmingSink:
    """Confirms the events of declared watches immediately."""

    manager: SharedStreamManager

    def matched(self, matched: Matched) -> None:
        self.manager.confirm_persisted((matched.seq,))

    def malformed(self, malformed: Malformed) -> None:
        raise SystemExit(malformed.reason)

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        raise SystemExit(f"The stream {key} of {len(trigger_ids)} watches ended: {error}") from error


class Headrace:
    """Headrace. Filters get raw events that were parsed before the clock starts. Declared watches parse JSON text while it runs."""

    version = version("headrace")

    def feed(self, case: Case) -> Feed:
        count = case.subscribers
        if case.declared:
            Fast.feed = Feed(texts(count), case.events, lanes=case.lanes, samples=case.samples, fresh=_raw)
        else:
            Fast.feed = Feed(parsed(count), case.events, lanes=case.lanes, samples=case.samples)
        return Fast.feed

    def manager(self) -> SharedStreamManager:
        sink = ConfirmingSink()
        sink.manager = SharedStreamManager(sink=sink)
        return sink.manager

    def trigger(self, k: int | None, *, acks: bool) -> Fast:
        return (Acked if acks else Fast)(k)

    def declare(self, manager: SharedStreamManager, case: Case) -> None:
        watches = {
            number: WatchTrigger(upstream=BenchUpstream(), match={"k": [number]} if case.selective else None, id="$.id")
            for number in range(case.subscribers)
        }
        manager.watch(triggers=watches, key=KEY)


def _raw(text: bytes, number: int) -> RawEvent:
    return RawEvent(text, "lane", number)
