"""A handler that is cancelled, or fails, while the database takes no writes."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace import CausalEvent, CausalOrdering, DeliveryPolicy
from headrace.errors import StorageBusy


@pytest.mark.parametrize(("ids", "is_offered"), [(("a",), True), (("a", "b"), True), (("a",), False)])
async def test_a_cancellation_is_raised_even_if_the_event_cannot_be_unclaimed(
    ids: tuple[str, ...], is_offered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.dialects.sqlite.BUSY_TIMEOUT_MS", 10)
    now = 1_800_000_000_000_000
    path, begun = tmp_path / "ordering.db", asyncio.Event()
    events = [CausalEvent(id=id, occurred=datetime(2026, 1, 1, tzinfo=UTC)) for id in ids]

    async def handle(event: CausalEvent) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def handle_offered() -> None:
        await ordering.offer(events)
        await ordering.handle_ready(handle)

    async def handle_first() -> None:
        async with ordering.preceding_event_confirmed(handle, events[0]):
            await handle(events[0])

    async with CausalOrdering("s", f"sqlite:///{path}", clock=lambda: now) as ordering:
        task = asyncio.create_task(handle_offered() if is_offered else handle_first())
        await begun.wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            other.execute("ROLLBACK")
        now += DeliveryPolicy().lease + 1
        handled: list[str] = []

        async def note(event: CausalEvent) -> None:
            handled.append(event.id)

        if is_offered:
            await ordering.handle_ready(note)
        else:
            async with ordering.preceding_event_confirmed(note, events[0]):
                await note(events[0])
        assert handled == list(ids)


async def test_an_event_whose_failure_cannot_be_stored_is_handled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.dialects.sqlite.BUSY_TIMEOUT_MS", 10)
    path, event = tmp_path / "ordering.db", CausalEvent(id="a", occurred=datetime(2026, 1, 1, tzinfo=UTC))

    async def handle(event: CausalEvent) -> None:
        raise AssertionError(event)

    async with CausalOrdering("s", f"sqlite:///{path}") as ordering:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:

            async def fail() -> None:
                async with ordering.preceding_event_confirmed(handle, event):
                    other.execute("BEGIN IMMEDIATE")
                    raise ValueError(event)

            with pytest.raises(StorageBusy):
                await fail()
            other.execute("ROLLBACK")
        async with ordering.preceding_event_confirmed(handle, event):
            pass
        assert await ordering.event_has_been_seen(event)
