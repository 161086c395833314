"""`CausalOrdering` over a database: the transactions per event, and several processes that are killed during handling."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headrace import CausalEvent, CausalOrdering, EventArrivedEarly
from headrace.store.dialects.driver import PostgresqlDriver, SqliteDriver
from support.processes.postgres import database_of
from support.processes.store import database_url

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "1"))
EVENTS = 60


def url_of(kind: str, folder: Path) -> str:
    return database_url(kind, folder) if kind == "sqlite" else database_of(folder, empty=True)


def event(number: int, follows: int | None) -> CausalEvent:
    return CausalEvent(id=f"{number}", follows=None if follows is None else f"{follows}", occurred=NOW)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_an_event_needs_one_transaction_or_two_after_a_wait(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SqliteDriver if kind == "sqlite" else PostgresqlDriver
    commits = count()
    commit = connection._commit

    def counted(self: Any) -> None:
        next(commits)
        commit(self)

    async with CausalOrdering("s", url_of(kind, tmp_path), by_age=False) as ordering:
        monkeypatch.setattr(connection, "_commit", counted)

        async def handle(event: CausalEvent) -> None:
            async with ordering.preceding_event_confirmed(handle, event):
                pass

        await handle(event(0, None))
        assert next(commits) == 1, "it has no leader and nobody waits for it"
        await handle(event(1, 0))
        assert next(commits) == 3, "its leader was handled"
        for early in (4, 3):
            with pytest.raises(EventArrivedEarly):
                await handle(event(early, early - 1))
        assert next(commits) == 6, "each is written down"
        await handle(event(2, 1))
        assert next(commits) == 10, "each of the three is settled, and what follows it claimed"
        assert await ordering.event_has_been_seen("4")


WORKER = """
import asyncio, sys
from headrace import CausalEvent, CausalOrdering, DeliveryPolicy
url, name = sys.argv[1:]
async def main() -> None:
    # a lease as short as this is over before most handlers are: what is in hand is safe by its lock
    async with CausalOrdering("s", url, by_age=False, policy=DeliveryPolicy(lease=1_000)) as ordering:
        async def handle(event: CausalEvent) -> None:
            print("begun", event.id, flush=True)
            await asyncio.sleep(0.005)
            print("done", event.id, flush=True)
        while (counts := await ordering.counts()).handled < int(name):
            if not await ordering.handle_ready(handle):
                await asyncio.sleep(0.01)
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_killed_processes_lose_no_event_and_repeat_at_most_one_each(kind: str, tmp_path: Path) -> None:
    """Processes, one of which is killed in a handler again and again: it repeats at most that one event each time."""
    url, chance = url_of(kind, tmp_path), random.Random(SEED)
    events = [event(n, n - 5 if n >= 5 else None) for n in range(EVENTS)]
    chance.shuffle(events)
    async with CausalOrdering("s", url, by_age=False) as ordering:
        await ordering.offer(events)
        told: list[list[str]] = []
        for _ in range(2):
            worker = start(url)
            assert worker.stdout is not None
            lines = [worker.stdout.readline().split() for _ in range(chance.randint(1, 12))]
            worker.send_signal(signal.SIGKILL)
            rest = worker.communicate()[0]
            told += [*lines, *(line.split() for line in rest.splitlines())]
        workers = [start(url) for _ in range(2)]
        for worker in workers:
            told += [line.split() for line in worker.communicate(timeout=60)[0].splitlines()]
            assert worker.returncode == 0
        assert (await ordering.counts()).handled == EVENTS
    done = Counter(line[1] for line in told if line[:1] == ["done"])
    assert set(done) == {f"{n}" for n in range(EVENTS)}
    assert sum(done.values()) - EVENTS <= 2, "each kill repeats one event at most"


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, url, f"{EVENTS}"], stdout=subprocess.PIPE, text=True)
