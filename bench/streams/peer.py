"""Airflow's side, by its public names. Only the environment in .venv-bench has it."""

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
    """Fires on the raw events whose `k` is `wants` (None: on all), without acks."""

    feed: ClassVar[Feed]

    def __init__(self, wants: int | None = None) -> None:
        super().__init__()
        self.wants = wants

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.{type(self).__name__}", {"wants": self.wants}

    def run(self) -> AsyncIterator[TriggerEvent]:
        raise NotImplementedError

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        del kwargs
        return Fast.feed.bare()

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        wants = self.wants
        async for raw in shared_stream:
            if wants is None or raw["k"] == wants:
                yield TriggerEvent(raw)


class Acked(Fast):
    """The same with acks."""

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        del kwargs
        return Producer(Fast.feed)


class Airflow:
    """The peer. Its raw events are parsed before the clock starts."""

    version = version("apache-airflow-core")

    def feed(self, case: Case) -> Feed:
        Fast.feed = Feed(parsed(case.subscribers), case.events, lanes=case.lanes, samples=case.samples)
        return Fast.feed

    def manager(self) -> SharedStreamManager:
        return SharedStreamManager()

    def trigger(self, wants: int | None, *, acks: bool) -> Fast:
        return (Acked if acks else Fast)(wants)

    def declare(self, manager: Any, case: Case) -> None:
        raise NotImplementedError("The peer has no declared watches.")
