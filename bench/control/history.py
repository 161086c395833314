"""Measure the status, `/metrics`, a claim and a removal with a long history and many triggers.

The benchmark inserts the rows into the tables directly, and measures the code of the store in this process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Table, event

from headrace.api.admin.live_status import LiveStatus
from headrace.core.ledger.counters import COUNTER_HELP
from headrace.store import Store, open_store
from headrace.store.dialects.statements import BulkInsert
from headrace.store.ordering.scopes import scope_named
from headrace.store.tables.control import stream_reports, triggers
from headrace.store.tables.ordering import ordering_events
from headrace.store.tables.pipelines import runs
from headrace.store.tables.task_runs import task_runs
from headrace.store.tables.webhooks import webhooks
from headrace.wire.control.jobs import RegisterJob
from headrace.wire.task_runs import ClaimRuns

TRIGGERS: Final = 10_000
RUNS: Final = 500_000
DELIVERIES: Final = 500_000
SECOND: Final = 1_000_000
DAYS: Final = 30
ROUNDS: Final = 10
PART: Final = 20_000


def measure(url: str) -> dict[str, Any]:
    """Return the figures of one empty database."""
    store = open_store(url)
    try:
        job = store.jobs.register(RegisterJob(registration_id=uuid4().hex, kind="worker", hostname="here", pid=1, project="bench")).id
        _fill(store, job)
        live = LiveStatus(store)
        claim = ClaimRuns(capacity=10, tasks=["t", "other"])
        with asyncio.Runner() as loop:  # one loop, as in the API server, so that thread starts are not measured
            frame, _ = loop.run(_frame(live)), loop.run(live.status())
            figures = {
                "frame, bytes": len(frame),
                "status, ms of processor": _median(lambda: loop.run(live.status())),
                "metrics, ms of processor": _median(lambda: loop.run(live.metrics())),
            }
        return {
            "triggers": TRIGGERS,
            "runs": RUNS,
            "task runs": RUNS,
            **figures,
            "claim of 10, ms of processor": _median(lambda: store.task_runs.claim(job, claim)),
            "removal of a webhook": _removal(store),
        }
    finally:
        store.close()


def _fill(store: Store, job: int) -> None:
    now = store.now()
    step = DAYS * 86_400 * SECOND // RUNS
    report = json.dumps({"stream": "s", "state": "polling", "lanes": [{"lane": "a", "read": 5, "advanced": 5}]})
    failed = {"type": "ValueError", "message": "x" * 300, "traceback": []}
    trigger = {"project": "bench", "classpath": "a.B", "kwargs": "{}", "queue": "default", "state": "running", "fired": 9, "rejected": 0}
    trigger |= {"epoch": 1, "declared": now, "job_id": job}
    counters = dict.fromkeys(COUNTER_HELP, 5)
    stream = {"job_id": job, "state": "polling", "report": report, "updated": now}
    stream |= {"read": 5, "advanced": 5, "counters": json.dumps(counters)}
    run = {"project": "bench", "pipeline": "p", "scope": "s", "attempt": 1, "state": "succeeded", "events": 5, "rows": 5, "seqs": "[[1,5]]"}
    task = {"project": "bench", "task": "t", "attempt": 0, "step": 0, "next_kwargs": "{}", "epoch": 0, "head": 0}
    _insert(
        store,
        triggers,
        [
            trigger | {"id": 1_000_000 + n, "name": f"w{n}", "stream": f"s{n}", "failure": json.dumps(failed) if n % 100 == 0 else None}
            for n in range(TRIGGERS)
        ],
    )
    _insert(store, stream_reports, [stream | {"stream": f"s{n}", "outstanding": n % 50} for n in range(TRIGGERS)])
    for start in range(0, RUNS, PART):
        numbers = range(start, start + PART)
        _insert(store, runs, [run | {"run_id": f"r{n}", "batch": n, "started": now - (RUNS - n) * step} for n in numbers])
        states = [("scheduled", None) if n % 2 else ("succeeded", now) for n in numbers]
        at = [now - (RUNS - n) * step for n in numbers]
        _insert(
            store,
            task_runs,
            [
                task | {"run_id": f"t{n}", "state": state, "finished": end, "created": when, "changed": when}
                for n, when, (state, end) in zip(numbers, at, states, strict=True)
            ],
        )


def _insert(store: Store, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    blank = {column.name: None if column.nullable else "" if column.type.python_type is str else 0 for column in table.columns}
    listed = [tuple((blank | row).values()) for row in rows]
    store.write(lambda connection: BulkInsert(table)(connection, listed))


async def _frame(live: LiveStatus) -> bytes:
    frames = live.frames()
    try:
        return await anext(frames)
    finally:
        await frames.aclose()


def _median(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = process_time()
        call()
        taken.append((process_time() - began) * 1_000)
    return round(sorted(taken)[ROUNDS // 2], 1)


def _removal(store: Store) -> dict[str, Any]:
    """Remove a webhook with many pending events; return the duration of the removal and of its longest transaction."""
    webhook = {"name": "mine", "url": "https://example", "types": "[]", "secret": "", "policy": "hold", "state": "paused"}
    counts = dict.fromkeys(("max_attempts", "timeout", "created", "changed", "delivered", "failed", "dead"), 0)

    def make(connection: Connection) -> int:
        scope = scope_named(connection, "webhook:mine", 1)
        connection.execute(webhooks.insert().values(**webhook, **counts, scope_id=scope))
        return scope

    scope = store.write(make)
    row = {"scope_id": scope, "source": "s", "occurred": 0, "since": 0, "late": False, "state": "ready", "due": 0, "attempts": 0}
    for start in range(0, DELIVERIES, PART):
        _insert(store, ordering_events, [row | {"seq": n, "id": f"{n}", "key": f"{n:020}".encode()} for n in range(start, start + PART)])
    held: list[float] = []
    began = 0.0

    def begin(_: Connection) -> None:
        nonlocal began
        began = perf_counter()

    engine = store._database._writer._engine  # noqa: SLF001  transactions do not report their duration
    event.listen(engine, "begin", begin)
    event.listen(engine, "commit", lambda _: held.append((perf_counter() - began) * 1_000))
    start_of_all = perf_counter()
    store.webhooks.remove("mine")
    return {
        "events": DELIVERIES,
        "seconds": round(perf_counter() - start_of_all, 1),
        "transactions": len(held),
        "longest transaction without its commit, ms": round(max(held), 1),
    }
