"""The cost of the status depends on live objects: its frame is bounded, and ended runs add nothing to its queries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as on
from sqlalchemy import insert

import headrace.api.admin.live_status
from headrace.api.admin.live_status import LiveStatus
from headrace.core.ledger.counters import StreamCounters
from headrace.store import Store
from headrace.store.control.balancing import UnassignedTriggers
from headrace.store.control.stream_reports import counter_columns
from headrace.store.queries.series import MAX_SERIES, OTHERS
from headrace.store.queries.status import MAX_TRIGGERS, overview
from headrace.store.tables.control import stream_reports, triggers
from headrace.store.tables.pipelines import runs
from headrace.store.tables.task_runs import task_runs
from headrace.wire.status.fitting import MAX_FRAME_BYTES
from headrace.wire.status.status import Status
from headrace.wire.task_runs import ClaimRuns
from support.processes.store import DATABASES, SECOND, START, holder, opened, registration

TRIGGERS = 2_000
STEPS = 100  # SQLite's instructions between two calls of a progress handler


def fill(store: Store, rows: list[tuple[Any, list[dict[str, Any]]]]) -> None:
    def work(connection: Any) -> int:
        for table, given in rows:
            connection.execute(insert(table), given)
        return 0

    store.prune(work)


def trigger(number: int, **other: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"project": "flights", "name": f"watch.{number:05}", "classpath": "a.B", "kwargs": "{}", "queue": "default"}
    given |= {"state": "running"}
    given |= {"failures": 0, "fired": 2, "rejected": 1, "epoch": 1, "declared": 0, "stream": f"s{number}", "job_id": 1, "failure": None}
    return given | other


def report(number: int, **other: Any) -> dict[str, Any]:
    told = json.dumps({"stream": f"s{number}", "state": "polling", "lanes": [{"lane": f"l{n}" * 50, "read": n} for n in range(100)]})
    counters = counter_columns(StreamCounters(read=3, advanced=3))
    values = {"job_id": 1, "stream": f"s{number}", "state": "polling", "outstanding": 0, "report": told, "updated": 1}
    return values | counters | other


def finished_run(number: int) -> dict[str, Any]:
    at = START + number * SECOND
    given = {"run_id": f"run{number}", "project": "flights", "pipeline": "p", "scope": "s", "batch": number, "attempt": 1}
    return given | {"state": "succeeded", "started": at, "finished": at, "events": 5, "rows": 5, "seqs": "[[1,5]]"}


def task_run(number: int, **other: Any) -> dict[str, Any]:
    at = START + number * SECOND
    given = {"run_id": f"task{number}", "project": "flights", "task": "t", "state": "succeeded", "attempt": 1, "step": 0, "epoch": 1}
    return given | {"next_kwargs": "{}", "head": 0, "created": at, "changed": at, "finished": at} | other


def crowded(store: Store) -> None:
    """Let there be many triggers, most of them well, some of them in trouble with long words."""
    job = holder(store, "first").job_id
    failure = json.dumps({"type": "ValueError", "message": "x" * 50_000, "traceback": []})
    listed = [trigger(n, job_id=job, state="parked" if n % 100 == 7 else "running") for n in range(TRIGGERS)]
    for one in listed:
        if one["state"] == "parked":
            one["failure"] = failure
    fill(store, [(triggers, listed), (stream_reports, [report(n, job_id=job, outstanding=n) for n in range(TRIGGERS)])])


async def first_frame(live: LiveStatus) -> bytes:
    frames = live.frames()
    try:
        return await anext(frames)
    finally:
        await frames.aclose()


@pytest.mark.parametrize("kind", DATABASES)
def test_a_frame_is_bounded_and_begins_with_alerts(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as store:
        crowded(store)
        frame = asyncio.run(first_frame(LiveStatus(store)))
    assert len(frame) < MAX_FRAME_BYTES + 100
    status = Status.model_validate_json(frame.partition(b"data: ")[2])
    assert (status.counts.triggers["parked"], status.counts.triggers["running"]) == (TRIGGERS // 100, TRIGGERS - TRIGGERS // 100 + 1)
    assert (status.counts.streams, status.totals.fired, status.totals.read) == (TRIGGERS, 2 * TRIGGERS, 3 * TRIGGERS)
    assert len(status.triggers) <= MAX_TRIGGERS
    assert [one.name for one in status.triggers if one.state == "parked"] == [f"watch.{n:05}" for n in range(7, TRIGGERS, 100)]
    assert {one.stream for one in status.streams} <= {f"s{n}" for n in range(TRIGGERS - 20, TRIGGERS)}, "what has the most outstanding"


@pytest.mark.parametrize("kind", DATABASES)
def test_triggers_with_problems_are_listed_before_the_others_in_a_full_status(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as store:
        crowded(store)
        fill(store, [(triggers, [trigger(TRIGGERS, backlog=3)]), (triggers, [trigger(TRIGGERS + 1, state="removed", failure="{}")])])
        with store._database.reading() as connection:
            shown = [one.name for one in overview(connection, store.now(), store.liveness).triggers]
    troubled = [f"watch.{n:05}" for n in [*range(7, TRIGGERS, 100), TRIGGERS]]
    others = ["first", *(f"watch.{n:05}" for n in range(MAX_TRIGGERS) if n != 7)]
    assert shown == sorted([*troubled, *others[: MAX_TRIGGERS - len(troubled)]])


def test_concurrent_readers_share_one_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headrace.api.admin.live_status, "TICK", 3_600.0)

    async def two(live: LiveStatus) -> tuple[bytes, bytes]:
        return await first_frame(live), await first_frame(live)

    with opened("sqlite", tmp_path) as store:
        one, other = asyncio.run(two(LiveStatus(store)))
    assert one is other


@pytest.mark.parametrize("kind", DATABASES)
def test_metrics_have_a_bounded_number_of_series_and_one_for_the_rest(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as store:
        crowded(store)
        text = asyncio.run(LiveStatus(store).metrics()).decode()
    fired = {line.split('"')[1]: float(line.split()[-1]) for line in text.splitlines() if line.startswith("headrace_trigger_fired_total{")}
    assert len(fired) == MAX_SERIES + 1
    assert fired[OTHERS] == 2 * (TRIGGERS - MAX_SERIES + 1)
    assert sum(fired.values()) == 2 * TRIGGERS
    assert 'headrace_triggers{state="parked"} 20.0' in text
    read = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("headrace_stream_read_total{")]
    assert (len(read), sum(read)) == (MAX_SERIES + 1, 3 * TRIGGERS)


@contextmanager
def counting(engine: Any) -> Iterator[list[int]]:
    """Count the instructions that SQLite runs on the connections of an engine, in STEPS."""
    seen = [0]

    def step() -> int:
        seen[0] += 1
        return 0

    def begin(connection: Any) -> None:
        connection.connection.set_progress_handler(step, STEPS)

    def end(connection: Any) -> None:
        connection.connection.set_progress_handler(None, STEPS)

    on.listen(engine, "begin", begin)
    on.listen(engine, "rollback", end)
    on.listen(engine, "commit", end)
    try:
        yield seen
    finally:
        on.remove(engine, "begin", begin)
        on.remove(engine, "rollback", end)
        on.remove(engine, "commit", end)


def cost_of_overview(store: Store) -> int:
    why = UnassignedTriggers()
    with store._database.reading() as connection:
        overview(connection, store.now(), store.liveness, why)
    with counting(store._database.readers) as seen, store._database.reading() as connection:
        overview(connection, store.now(), store.liveness, why)
    return seen[0]


def test_the_cost_of_the_status_does_not_grow_with_ended_runs(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        holder(store, "first")
        fill(store, [(runs, [finished_run(n) for n in range(50)]), (task_runs, [task_run(n) for n in range(50)])])
        before = cost_of_overview(store)
        history = range(50, 10_000)
        fill(store, [(runs, [finished_run(n) for n in history]), (task_runs, [task_run(n) for n in history])])
        after = cost_of_overview(store)
    assert before
    assert after <= before + 20, "in hundreds of instructions"


def test_a_claim_reads_only_the_runs_that_it_returns(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        worker = store.jobs.register(registration("worker")).id
        free = {"state": "scheduled", "finished": None}
        others = [task_run(n, task="other", **free) for n in range(5_000)]
        mine = [task_run(n, **free) for n in range(5_000, 10_000)]
        fill(store, [(task_runs, others + mine)])
        asked = ClaimRuns(capacity=3, tasks=["t", "none"])
        running = [run.run_id for run in store.task_runs.claim(worker, asked).runs]
        again = asked.model_copy(update={"running": running})
        with counting(store._database._writer._engine) as seen:
            claimed = store.task_runs.claim(worker, again).runs
        assert [run.run_id for run in claimed] == ["task5003", "task5004", "task5005"]
        assert seen[0] < 100, "in hundreds of instructions"
