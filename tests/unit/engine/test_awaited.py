"""A trigger that a task run waits for: one event, whatever happens, and cleaned up only when nothing waits on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from headrace.core.deferral import RUN_FAILED, RUN_SKIPPED, RUN_SUCCEEDED
from headrace.engine.current import Running
from headrace.engine.firing import Firing
from headrace.engine.outbox import Outbox
from headrace.streams.backlog import Answer, BacklogEntry
from headrace.streams.hub import SharedStreamManager
from headrace.triggers.base import BaseTrigger
from headrace.triggers.event import RunFailed, RunSkipped, RunSucceeded, TriggerEvent
from headrace.wire.events import EventItem


class Yielding(BaseTrigger):
    """Yields these, then returns; knows whether it was closed and how often it was cleaned up."""

    def __init__(self, *events: TriggerEvent) -> None:
        super().__init__()
        self.events = events
        self.closed = False
        self.cleaned = 0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "some.Yielding", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            for event in self.events:
                yield event
                await asyncio.sleep(0)
        finally:
            self.closed = True

    async def cleanup(self) -> None:
        self.cleaned += 1


class NoBacklog:
    async def fetch(self, after: int, limit: int) -> list[BacklogEntry]:
        return []

    async def settle(self, settled: Sequence[tuple[int, Answer]]) -> None:
        return


def firing(trigger: BaseTrigger, outbox: Outbox, run_id: str | None = "run") -> Firing:
    return Firing(Running(1, "run:one/1", "trigger-1.log"), trigger, SharedStreamManager(), outbox, NoBacklog(), run_id=run_id)


async def fired(trigger: BaseTrigger, run_id: str | None = "run") -> list[EventItem]:
    outbox = Outbox()
    one = firing(trigger, outbox, run_id)
    one.subscribe()
    await one.run()
    taken = await outbox.take(10, 10_000)
    return [pending.item for pending in taken if isinstance(pending.item, EventItem)]


async def test_the_first_event_is_all_that_is_sent() -> None:
    trigger = Yielding(TriggerEvent({"n": 1}), TriggerEvent({"n": 2}))
    (item,) = await fired(trigger)
    assert msgspec.json.decode(item.payload) == {"n": 1}
    assert trigger.closed
    assert len(await fired(Yielding(*trigger.events), run_id=None)) == 2, "one of a project goes on"


@pytest.mark.parametrize(
    ("event", "type"), [(RunSucceeded({"rows": 1}), RUN_SUCCEEDED), (RunFailed("no"), RUN_FAILED), (RunSkipped(), RUN_SKIPPED)]
)
async def test_a_terminal_event_bears_its_type(event: TriggerEvent, type: str) -> None:
    (item,) = await fired(Yielding(event))
    assert (item.type, msgspec.json.decode(item.payload)) == (type, event.payload)


@pytest.mark.parametrize(("events", "why"), [((), "ended without firing"), ((TriggerEvent(object()),), "cannot be written as JSON")])
async def test_the_run_fails_where_there_is_nothing_to_go_on_with(events: tuple[TriggerEvent, ...], why: str) -> None:
    (item,) = await fired(Yielding(*events))
    assert item.type == RUN_FAILED
    assert why in item.payload


@pytest.mark.parametrize(("run_id", "dropped", "cleaned"), [("run", False, 0), ("run", True, 1), (None, False, 1)])
async def test_it_is_cleaned_up_only_when_nothing_waits_on_it(run_id: str | None, dropped: bool, cleaned: int) -> None:
    trigger = Yielding()
    await firing(trigger, Outbox(), run_id).cleanup(dropped=dropped)
    assert trigger.cleaned == cleaned
