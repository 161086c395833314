"""One event at a time, as Prefect's consumers hand them over: ours and Prefect's in turns, in one run, on the same kinds of database.

Events without a leader; chains in order; the same chains shuffled among 500 others; all of them shuffled together. Levels of durability
differ: what Prefect has seen is its process' memory and its SQLite is `synchronous=NORMAL`; ours is durable and `FULL`.
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


def measure(homes: Sequence[str], peer: Callable[..., dict[str, Any]], rounds: int = 3) -> dict[str, Any]:
    """Return events/s of both sides, medians of `rounds` in which they take turns, and the ratios."""
    answer: dict[str, Any] = {"load": round(os.getloadavg()[0], 2)}
    for home in homes:
        with _databases(home) as (mine, other):
            answer[home] = _beside(home, peer, rounds, mine, other)
    return answer


def _beside(home: str, peer: Callable[..., dict[str, Any]], rounds: int, mine: str, other: str | None) -> dict[str, Any]:
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for _ in range(rounds):
        ours.append({shape: asyncio.run(run(home, shape, EVENTS[home], mine)) for shape in SHAPES})
        theirs.append(peer("memory" if home == "memory" else "db", EVENTS[home], "each", url=other))
    return {shape: _compared([one[shape] for one in ours], [one[shape] for one in theirs], GOALS[home].get(shape)) for shape in SHAPES}


def _compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], goal: float | None) -> dict[str, Any]:
    fast, slow = (sorted(one["events/s"] for one in side)[len(side) // 2] for side in (ours, theirs))
    work = sorted(one["by processor"] for one in ours)[len(ours) // 2]
    told = {"headrace, events/s": fast, "prefect, events/s": slow, "ratio": round(fast / slow, 2), "goal": goal}
    return {**told, "headrace, by its processor time": work, "prefect, stuck": theirs[0]["stuck"]}


@contextmanager
def _databases(home: str) -> Iterator[tuple[str, str | None]]:
    """Give an URL for each side where both need a server."""
    if home != "postgresql":
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


async def run(home: str, shape: str, events: int, url: str) -> dict[str, int]:
    """Hand events over one at a time; return how fast it was."""
    now = datetime.now(UTC)
    taken = [
        CausalEvent(id=f"{n}", occurred=now + timedelta(microseconds=n), follows=None if follows is None else f"{follows}")
        for n, follows in arrivals(shape, events)
    ]
    handled: set[str] = set()
    with TemporaryDirectory(prefix="bench-ordering-") as folder:
        store = {"memory": None, "sqlite": f"sqlite:///{Path(folder) / 'ordering.db'}", "postgresql": url}[home]
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
