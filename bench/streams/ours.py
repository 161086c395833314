"""Headrace's side."""

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
    """Fires on the raw events whose `k` is `wants` (None: on all), without acks."""

    feed: ClassVar[Feed]

    def __init__(self, wants: int | None = None) -> None:
        super().__init__()
        self.wants = wants

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", {"wants": self.wants}

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        del kwargs
        return Fast.feed.bare()

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        wants = self.wants
        async for raw in stream:
            if wants is None or raw["k"] == wants:
                yield TriggerEvent(raw)


class Acked(Fast):
    """The same with acks."""

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        del kwargs
        return Producer(Fast.feed)


class Given(Upstream):
    """The upstream of the declared watches."""

    event_type = "bench"

    def stream_key(self) -> str:
        return KEY

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.Given", {}

    def producer(self) -> SharedStreamProducer:
        return Producer(Fast.feed)


class ConfirmAtOnce:
    """Takes what declared watches make, and says at once that it is durable."""

    manager: SharedStreamManager

    def matched(self, matched: Matched) -> None:
        self.manager.confirm_persisted((matched.seq,))

    def malformed(self, malformed: Malformed) -> None:
        raise SystemExit(malformed.reason)

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        raise SystemExit(f"The stream {key} of {len(trigger_ids)} watches ended: {error}") from error


class Headrace:
    """Ours. Filters get raw events that are parsed before the clock starts; declared watches get JSON text and parse it on the clock."""

    version = version("headrace")

    def feed(self, case: Case) -> Feed:
        count = case.subscribers
        if case.declared:
            Fast.feed = Feed(texts(count), case.events, lanes=case.lanes, samples=case.samples, fresh=_raw)
        else:
            Fast.feed = Feed(parsed(count), case.events, lanes=case.lanes, samples=case.samples)
        return Fast.feed

    def manager(self) -> SharedStreamManager:
        sink = ConfirmAtOnce()
        sink.manager = SharedStreamManager(sink=sink)
        return sink.manager

    def trigger(self, wants: int | None, *, acks: bool) -> Fast:
        return (Acked if acks else Fast)(wants)

    def declare(self, manager: SharedStreamManager, case: Case) -> None:
        watches = {
            number: WatchTrigger(upstream=Given(), match={"k": [number]} if case.selective else None, id="$.id")
            for number in range(case.subscribers)
        }
        manager.watch(triggers=watches, key=KEY)


def _raw(text: bytes, number: int) -> RawEvent:
    return RawEvent(text, "lane", number)
