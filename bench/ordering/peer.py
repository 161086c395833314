"""Measure Prefect's causal ordering through its public names, in its own environment, and print JSON.

Usage: python -m bench.ordering.peer memory|db EVENTS [each]. With `each`, it measures each shape of arrival.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.metadata import version
from time import perf_counter
from typing import Any
from uuid import UUID

from bench.ordering.case import SHAPES, arrivals, shuffled


async def run(store: str, events: int, shape: str | None) -> dict[str, Any]:
    """Offer all events as Prefect's consumers do; return events per second and the number of events that were not handled."""
    ordering: Any = import_module("prefect.server.events.ordering")
    received: Any = import_module("prefect.server.events.schemas.events").ReceivedEvent
    causal = import_module(f"prefect.server.events.ordering.{store}").CausalOrdering(f"bench {shape}")
    if store == "db":
        await import_module("prefect.server.database").provide_database_interface().create_db()
    now = datetime.now(UTC)
    first = 1 if shape is None else 1 + 1_000_000 * SHAPES.index(shape)
    taken = [
        received(
            id=UUID(int=first + n),
            occurred=now + timedelta(microseconds=n),
            event="leg",
            resource={"prefect.resource.id": "bench"},
            follows=None if follows is None else UUID(int=first + follows),
        )
        for n, follows in (shuffled(events) if shape is None else arrivals(shape, events))
    ]
    handled: set[UUID] = set()

    async def handler(event: Any, depth: int = 0) -> None:
        async with causal.preceding_event_confirmed(handler, event, depth):
            handled.add(event.id)

    began = perf_counter()
    for event in taken:
        try:
            await handler(event)
        except ordering.EventArrivedEarly:
            continue
    took = perf_counter() - began
    stuck = events - len(handled)
    return {"events": events, "events/s": round(len(handled) / took), "stuck": stuck, "version": version("prefect")}


async def measure(store: str, events: int, each: bool) -> dict[str, Any]:
    """Return the figures of one shape, or of each shape in one process, because the import of Prefect takes longer than a run."""
    return {shape: await run(store, events, shape) for shape in SHAPES} if each else await run(store, events, None)


def main() -> None:
    logging.disable(logging.CRITICAL)
    # Output of a library must not mix with the result.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answers.write(json.dumps(asyncio.run(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["each"]))) + "\n")


if __name__ == "__main__":
    main()
