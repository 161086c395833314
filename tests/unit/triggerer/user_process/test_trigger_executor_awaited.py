"""A trigger that a task run waits for sends one event, and is cleaned up only when no task run waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from headrace.core.task_run import RUN_FAILED, RUN_SKIPPED, RUN_SUCCEEDED
from headrace.triggerer.user_process import trigger_executor
from headrace.triggers.base import BaseTrigger
from headrace.triggers.event import RunFailed, RunSkipped, RunSucceeded, TriggerEvent
from headrace.wire.control.triggers import RunTrigger
from headrace.wire.custody.events import EventItem
from unit.triggerer.runner.test_runner import Api, running, until


class Yielding(BaseTrigger):
    """Yields these, then returns; knows whether it was closed and how often it was cleaned up."""

    def __init__(self, *events: TriggerEvent, ends: bool = True) -> None:
        super().__init__()
        self.events = events
        self.ends = ends
        self.closed = False
        self.cleaned = 0

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "some.Yielding", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            for event in self.events:
                yield event
                await asyncio.sleep(0)
            if not self.ends:
                await asyncio.Event().wait()
        finally:
            self.closed = True

    async def cleanup(self) -> None:
        self.cleaned += 1


async def fired(trigger: Yielding, run_id: str | None = "run", *, dropped: bool = False) -> list[EventItem]:
    """Let the trigger run to its end and be stopped; return what was stored."""
    api = Api()
    workload = RunTrigger(
        trigger_id=1,
        name="run:one/1",
        classpath="odd_triggers.Alone",
        kwargs={},
        stream=None,
        queue="q",
        epoch=1,
        log_name="",
        run_id=run_id,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trigger_executor, "load_trigger", lambda _: trigger)
        async with running(api, workload) as runner:
            await until(lambda: len(api.events) >= (1 if run_id else len(trigger.events)))
            await runner.stop([1], dropped=[1] if dropped else [])
    return [*api.events.values()]


async def test_only_the_first_event_is_sent() -> None:
    trigger = Yielding(TriggerEvent({"n": 1}), TriggerEvent({"n": 2}))
    (item,) = await fired(trigger)
    assert msgspec.json.decode(item.payload) == {"n": 1}
    assert trigger.closed
    assert len(await fired(Yielding(*trigger.events), run_id=None)) == 2, "one of a project goes on"


@pytest.mark.parametrize(
    ("event", "type"), [(RunSucceeded({"rows": 1}), RUN_SUCCEEDED), (RunFailed("no"), RUN_FAILED), (RunSkipped(), RUN_SKIPPED)]
)
async def test_a_terminal_event_has_its_type(event: TriggerEvent, type: str) -> None:
    (item,) = await fired(Yielding(event))
    assert (item.type, msgspec.json.decode(item.payload)) == (type, event.payload)


@pytest.mark.parametrize(("events", "why"), [((), "ended without firing"), ((TriggerEvent(object()),), "cannot be written as JSON")])
async def test_the_task_run_fails_if_the_trigger_does_not_fire(events: tuple[TriggerEvent, ...], why: str) -> None:
    (item,) = await fired(Yielding(*events))
    assert item.type == RUN_FAILED
    assert why in item.payload


@pytest.mark.parametrize(("run_id", "dropped", "cleaned"), [("run", False, 0), ("run", True, 1), (None, False, 1)])
async def test_cleanup_runs_only_when_no_task_run_waits(run_id: str | None, dropped: bool, cleaned: int) -> None:
    trigger = Yielding(TriggerEvent(1), ends=False)
    await fired(trigger, run_id, dropped=dropped)
    assert trigger.cleaned == cleaned
