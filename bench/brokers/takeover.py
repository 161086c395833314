"""Measure the time from `kill -9` of the triggerer that reads Kafka until the next triggerer has stored the next event.

Two triggerers are registered at one API server. The supervisor of the reader and all its processes are killed, some time after its last
heartbeat. Its lease ends `lease_seconds` after that heartbeat. After each takeover, one more triggerer is started. At the end, each message
must be exactly one event.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import psutil
from bench.api_process import api_process
from bench.brokers.broker import Broker
from bench.brokers.case import ONE
from bench.brokers.readers import triggerer

LEASES_SECONDS: Final = (5.0, 30.0)
"""The lengths of the leases. The second one is the default of Headrace."""
KILLS: Final = {5.0: 4, 30.0: 2}
GOAL_SECONDS: Final = 1.0
"""The most time after the end of the lease's length."""
RATE: Final = 200
EVENTS_BEFORE_KILL: Final = 500
LIMIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.01


async def measure(broker: Broker) -> dict[str, Any]:
    """Return the seconds of each takeover, by the length of the lease."""
    answer: dict[str, Any] = {}
    for number, lease in enumerate(LEASES_SECONDS):
        seconds = await _measure_lease(broker, f"bench_takeover_{number}", lease, KILLS[lease])
        reached = max(seconds) <= lease + GOAL_SECONDS
        answer[f"lease of {lease:g} s"] = {
            "lease_seconds": lease,
            "goal_seconds": lease + GOAL_SECONDS,
            "seconds": seconds,
            "reached": reached,
        }
    return answer


async def _measure_lease(broker: Broker, name: str, lease: float, kills: int) -> list[float]:
    await asyncio.to_thread(broker.create, name)
    seconds = []
    async with AsyncExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        api = await exits.enter_async_context(api_process(folder, job_timeout=str(lease)))
        database = exits.enter_context(closing(sqlite3.connect(f"file:{folder / 'headrace.db'}?mode=ro", uri=True)))
        for number in range(2):
            await exits.enter_async_context(triggerer(broker, ONE, name, folder, api, number=number))
        async with _sending(broker, name) as sent:
            for number in range(2, 2 + kills):
                await _more_events(database)
                await _until(lambda: len(_jobs(database)) == 2, "two triggerers are not registered")
                seconds.append(await _kill_reader(database))
                await exits.enter_async_context(triggerer(broker, ONE, name, folder, api, number=number))
        await _until(lambda: _count(database) >= sent[0], "messages are missing")
        _check_events(database, sent[0])
    await asyncio.to_thread(broker.drop, name)
    return seconds


async def _more_events(database: sqlite3.Connection) -> None:
    before = _count(database)
    await _until(lambda: _count(database) >= before + EVENTS_BEFORE_KILL, "no events are stored")


async def _kill_reader(database: sqlite3.Connection) -> float:
    """Kill the triggerer that has the stream. Return the seconds until an event is stored under the lease of another job."""
    ((old,),) = database.execute("SELECT DISTINCT job_id FROM triggers").fetchall()
    process = psutil.Process(_jobs(database)[old])
    processes = [process, *process.children(recursive=True)]
    killed = time.time_ns() // 1_000
    for one in processes:
        one.kill()
    await _until(lambda: _next_stored(database, old) is not None, "no other triggerer takes over")
    stored = _next_stored(database, old)
    return round(((stored or killed) - killed) / 1e6, 2)


def _jobs(database: sqlite3.Connection) -> dict[int, int]:
    """Return the process id of each running job."""
    return dict(database.execute("SELECT id, pid FROM jobs WHERE state = 'running'").fetchall())


def _count(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT count(*) FROM events").fetchone()[0])


def _next_stored(database: sqlite3.Connection, old: int) -> int | None:
    """Return the time at which the first event was stored under the lease of another job, in microseconds, or None."""
    query = "SELECT min(received) FROM events WHERE received >= (SELECT max(started) FROM triggers WHERE job_id <> ?)"
    stored = database.execute(query, (old,)).fetchone()[0]
    return None if stored is None else int(stored)


def _check_events(database: sqlite3.Connection, sent: int) -> None:
    ids = [int(id) for (id,) in database.execute("SELECT id FROM events").fetchall()]
    if sorted(ids) != list(range(sent)):
        raise SystemExit(
            f"Of {sent} messages, {len(set(range(sent)) - set(ids))} are lost and {len(ids) - len(set(ids))} are stored twice."
        )


async def _until(condition: Callable[[], bool], failure: str) -> None:
    limit = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > limit:
            raise SystemExit(f"The takeover cannot be measured: {failure} within {LIMIT_SECONDS:g} s.")
        await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def _sending(broker: Broker, name: str) -> AsyncIterator[list[int]]:
    """Send messages at a rate in a thread. Yield the number of messages so far, which is final after the end."""
    sent, over = [0], threading.Event()

    def send() -> None:
        with broker.sender(name) as sender:
            while not over.wait(1 / RATE):
                sender([sent[0]])
                sent[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        await asyncio.to_thread(thread.join)
