"""The side of Airflow, through its public names. Only the environment `.venv-bench` has Airflow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamManager, SharedStreamProducer
from bench.streams.case import Case
from bench.streams.drive import parsed
from bench.streams.feed import Feed


class Producer(SharedStreamProducer):
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def open_stream(self) -> AsyncIterator[tuple[Any, Any]]:
        return self._feed.pairs()

    def get_advance_lane(self, broker_payload: Any) -> int:
        return int(broker_payload % self._feed.lanes)

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

    def run(self) -> AsyncIterator[TriggerEvent]:
        raise NotImplementedError

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        del kwargs
        return Fast.feed.bare()

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        k = self.k
        async for raw in shared_stream:
            if k is None or raw["k"] == k:
                yield TriggerEvent(raw)


class Acked(Fast):
    """The same with acks."""

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        del kwargs
        return Producer(Fast.feed)


class Airflow:
    """Airflow. Its raw events are parsed before the clock starts."""

    version = version("apache-airflow-core")

    def feed(self, case: Case) -> Feed:
        Fast.feed = Feed(parsed(case.subscribers), case.events, lanes=case.lanes, samples=case.samples)
        return Fast.feed

    def manager(self) -> SharedStreamManager:
        return SharedStreamManager()

    def trigger(self, k: int | None, *, acks: bool) -> Fast:
        return (Acked if acks else Fast)(k)

    def declare(self, manager: Any, case: Case) -> None:
        raise NotImplementedError("The peer has no declared watches.")
