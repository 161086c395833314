"""Prefect's causal ordering, by its public names, in its own environment: python -m bench.ordering.peer memory|db EVENTS; prints JSON."""

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

from bench.ordering.case import shuffled


async def run(home: str, events: int) -> dict[str, Any]:
    """Offer all events as Prefect's own consumers do; return how fast it was, and how many were never handled."""
    ordering: Any = import_module("prefect.server.events.ordering")
    received: Any = import_module("prefect.server.events.schemas.events").ReceivedEvent
    causal = import_module(f"prefect.server.events.ordering.{home}").CausalOrdering("bench")
    if home == "db":
        await import_module("prefect.server.database").provide_database_interface().create_db()
    now = datetime.now(UTC)
    taken = [
        received(
            id=UUID(int=n + 1),
            occurred=now + timedelta(microseconds=n),
            event="leg",
            resource={"prefect.resource.id": "bench"},
            follows=None if follows is None else UUID(int=follows + 1),
        )
        for n, follows in shuffled(events)
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


def main() -> None:
    logging.disable(logging.CRITICAL)
    # What a library prints must not get into the answer.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        answers.write(json.dumps(asyncio.run(run(sys.argv[1], int(sys.argv[2])))) + "\n")


if __name__ == "__main__":
    main()
