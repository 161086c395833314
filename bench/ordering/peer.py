"""Prefect's causal ordering, by its public names, in its own environment: python -m bench.ordering.peer memory|db EVENTS [each].

It prints JSON; with `each`, of each of the shapes of arrival.
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


async def run(home: str, events: int, shape: str | None) -> dict[str, Any]:
    """Offer all events as Prefect's own consumers do; return how fast it was, and how many were never handled."""
    ordering: Any = import_module("prefect.server.events.ordering")
    received: Any = import_module("prefect.server.events.schemas.events").ReceivedEvent
    causal = import_module(f"prefect.server.events.ordering.{home}").CausalOrdering(f"bench {shape}")
    if home == "db":
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


async def answered(home: str, events: int, each: bool) -> dict[str, Any]:
    """Return what one shape came to, or each of them: to import Prefect takes longer than to run it."""
    return {shape: await run(home, events, shape) for shape in SHAPES} if each else await run(home, events, None)


def main() -> None:
    logging.disable(logging.CRITICAL)
    # What a library prints must not get into the answer.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answers.write(json.dumps(asyncio.run(answered(sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["each"]))) + "\n")


if __name__ == "__main__":
    main()
