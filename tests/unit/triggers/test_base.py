from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.triggers.base import BaseEventTrigger, BaseTrigger, has_acks, stream_name
from headrace.triggers.event import TriggerEvent
from headrace.triggers.upstream import SharedStreamProducer


class Alone(BaseTrigger):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kwargs = kwargs

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.Alone", self.kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        yield TriggerEvent(1)


class Bare(BaseEventTrigger):
    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.Bare", {}


class Acks(Bare):
    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        raise LookupError


class Inherits(Acks):
    pass


async def test_a_trigger_without_a_shared_stream_runs() -> None:
    trigger = Alone(path="x")
    assert [event.payload async for event in trigger.run()] == [1]
    await trigger.cleanup()
    assert repr(trigger) == "<tests.Alone path='x'>"


def test_a_producer_factory_enables_acks() -> None:
    assert not has_acks(Bare)
    assert has_acks(Acks)
    assert has_acks(Inherits)


async def test_a_missing_method_raises_an_error_that_names_it() -> None:
    trigger = Bare()
    assert trigger.shared_stream_key() is None
    with pytest.raises(NotImplementedError, match="no run"):
        trigger.run()
    with pytest.raises(NotImplementedError, match="neither open_shared_stream"):
        Bare.open_shared_stream({})
    with pytest.raises(NotImplementedError, match="create_shared_stream_producer"):
        Bare.create_shared_stream_producer({})
    with pytest.raises(NotImplementedError, match="neither handle"):
        await trigger.handle("raw")


async def test_handle_must_return_an_answer() -> None:
    class Forgets(Bare):
        async def handle(self, raw: Any) -> Any:
            return None

    async def stream() -> AsyncIterator[Any]:
        yield 1

    with pytest.raises(TypeError, match=r"Forgets\.handle returned None"):
        _ = [event async for event in Forgets().filter_shared_stream(stream())]


def test_the_name_of_a_stream_is_valid_text() -> None:
    assert stream_name("kafka:orders") == "kafka:orders"
    assert stream_name(("kafka", "orders", 1)) == "('kafka', 'orders', 1)"
