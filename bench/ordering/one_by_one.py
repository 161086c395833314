"""Measure single events, as Prefect's consumers pass them: Headrace and Prefect in turn, in one run, on the same kinds of database.

Events have no leader, or are in chains: in order, shuffled within 500 events, or all shuffled. Durability differs: Prefect keeps its
record of seen events in process memory, and its SQLite is `synchronous=NORMAL`. Headrace's record is durable, and its SQLite is `FULL`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final

from bench.ordering.case import SHAPES, arrivals

from headrace import CausalEvent, CausalOrdering, EventArrivedEarly

ROOT: Final = Path(__file__).resolve().parents[2]
EVENTS: Final = {"memory": 5_000, "sqlite": 1_000, "postgresql": 1_000}
GOALS: Final = {
    "memory": dict.fromkeys(SHAPES, 0.8),
    "sqlite": {"chains in order": 1.0, "chains shuffled": 3.0, "all shuffled": 3.0},
    "postgresql": {"chains in order": 1.0, "chains shuffled": 3.0, "all shuffled": 3.0},
}


def measure(stores: Sequence[str], peer: Callable[..., dict[str, Any]], rounds: int = 3) -> dict[str, Any]:
    """Return events/s of both sides, as medians of `rounds` rounds in turn, and the ratios."""
    answer: dict[str, Any] = {"load": round(os.getloadavg()[0], 2)}
    for kind in stores:
        with _databases(kind) as (mine, other):
            answer[kind] = _beside(kind, peer, rounds, mine, other)
    return answer


def _beside(kind: str, peer: Callable[..., dict[str, Any]], rounds: int, mine: str, other: str | None) -> dict[str, Any]:
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(rounds):
        ours.append({shape: asyncio.run(run(kind, shape, EVENTS[kind], mine)) for shape in SHAPES})
        theirs.append(peer("memory" if kind == "memory" else "db", EVENTS[kind], "each", url=other))
    return {shape: _compared([one[shape] for one in ours], [one[shape] for one in theirs], GOALS[kind].get(shape)) for shape in SHAPES}


def _compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], goal: float | None) -> dict[str, Any]:
    fast, slow = (sorted(one["events/s"] for one in side)[len(side) // 2] for side in (ours, theirs))
    work = sorted(one["by processor"] for one in ours)[len(ours) // 2]
    figures = {"headrace, events/s": fast, "prefect, events/s": slow, "ratio": round(fast / slow, 2), "goal": goal}
    return {**figures, "headrace, by its processor time": work, "prefect, stuck": theirs[0]["stuck"]}


@contextmanager
def _databases(kind: str) -> Iterator[tuple[str, str | None]]:
    """Yield a URL for each side, if both need a server."""
    if kind != "postgresql":
        yield "", None
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from support.processes.postgres import Postgres

    server = Postgres(fsync=True)
    try:
        for name in ("headrace_bench", "prefect_bench"):
            server.admin("CREATE DATABASE {}", name)
        yield server.url("headrace_bench"), server.url("prefect_bench")
    finally:
        server.close()


async def run(kind: str, shape: str, events: int, url: str) -> dict[str, int]:
    """Pass events to the ordering one at a time; return events per second."""
    now = datetime.now(UTC)
    taken = [
        CausalEvent(id=f"{n}", occurred=now + timedelta(microseconds=n), follows=None if follows is None else f"{follows}")
        for n, follows in arrivals(shape, events)
    ]
    handled: set[str] = set()
    with TemporaryDirectory(prefix="bench-ordering-") as folder:
        store = {"memory": None, "sqlite": f"sqlite:///{Path(folder) / 'ordering.db'}", "postgresql": url}[kind]
        async with CausalOrdering(f"bench {shape} {now.timestamp()}", store) as ordering:

            async def handler(event: CausalEvent) -> None:
                async with ordering.preceding_event_confirmed(handler, event):
                    handled.add(event.id)

            began, worked = perf_counter(), process_time()
            for event in taken:
                try:
                    await handler(event)
                except EventArrivedEarly:
                    continue
            took, work = perf_counter() - began, process_time() - worked
    if len(handled) != events:
        raise RuntimeError(f"{events - len(handled)} events were not handled.")
    return {"events/s": round(events / took), "by processor": round(events / work)}
