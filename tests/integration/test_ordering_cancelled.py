"""A handler that is cancelled while the database takes no writes."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace import CausalEvent, CausalOrdering


@pytest.mark.parametrize(("ids", "is_offered"), [(("a",), True), (("a", "b"), True), (("a",), False)])
async def test_a_cancellation_is_kept_where_an_event_cannot_be_given_back(
    ids: tuple[str, ...], is_offered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.store.sqlite.BUSY_TIMEOUT_MS", 10)
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

    async with CausalOrdering("s", f"sqlite:///{path}") as ordering:
        task = asyncio.create_task(handle_offered() if is_offered else handle_first())
        await begun.wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            other.execute("ROLLBACK")
