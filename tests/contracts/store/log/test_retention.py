"""The contract of retention: only old and ended objects are pruned, in bounded slices, and the shown totals do not change."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from headrace.core.ledger.counters import StreamCounters
from headrace.errors import ApiRefused
from headrace.store import Store
from headrace.store.queries.status import Overview, overview
from headrace.store.retention.pruner import BATCH_ROWS, Pruner
from headrace.store.retention.retention import ended_jobs, pipeline_runs
from headrace.store.tables.control import jobs, stream_reports
from headrace.store.tables.custody import dead_letter_actions
from headrace.store.tables.pipelines import runs
from headrace.store.tables.task_runs import task_runs
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.streams import StreamReport
from headrace.wire.custody.dead_letters import DeadLetterSelection
from headrace.wire.pipelines.runs import RunReport
from headrace.wire.task_runs import ClaimRuns, FinishRun, StartRun
from support.processes.store import TurnedClock, declaration, event, holder, letter, registration

DAY = 86_400


def seen(store: Store) -> Overview:
    with store.reading() as connection:
        return overview(connection, store.now(), store.liveness)


def count(store: Store, table: Any) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def work(store: Store, name: str) -> None:
    """Let a triggerer, a worker and a pipeline do something of every kind, and end."""
    owner = holder(store, "first")
    counters = StreamCounters(read=5, advanced=4, ack_seconds=0.5)
    store.jobs.heartbeat(
        owner.job_id, Heartbeat(streams=[StreamReport(stream="folder", state="polling", counters=counters, outstanding=1)])
    )
    owner.append(event(name), dead_letters=[letter(name)])
    store.dead_letters.discard(DeadLetterSelection(ids=[name]))
    worker = store.jobs.register(registration("worker")).id
    store.task_runs.start("flights", StartRun(run_id=name, task="submit"))
    (claimed,) = store.task_runs.claim(worker, ClaimRuns(capacity=1, tasks=["submit"], running=[])).runs
    store.task_runs.finish(worker, name, FinishRun(epoch=claimed.epoch, state="succeeded", result="1"))
    pipeline = store.jobs.register(registration("pipeline")).id
    store.projects.declare(pipeline, "flights", declaration("first", pipelines=["delays"]))
    store.runs.report(pipeline, [report(store, f"{name}-1"), report(store, f"{name}-2", state="failed", rows=None)])
    for job in (owner.job_id, worker, pipeline):
        store.jobs.complete(job, CompleteJob(state="succeeded"))


def report(store: Store, run_id: str, **other: Any) -> RunReport:
    started = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=store.now())
    given = {"run_id": run_id, "pipeline": "delays", "scope": "flights", "batch": 1, "attempt": 1, "state": "succeeded", "rows": 40}
    return RunReport.model_validate(given | {"started": started, "finished": started, "events": 60, "seqs": [(1, 60)]} | other)


def test_old_ended_runs_and_jobs_are_pruned_and_totals_remain(store: Store, clock: TurnedClock) -> None:
    for name in ("a", "b"):
        work(store, name)
    store.task_runs.start("flights", StartRun(run_id="waits", task="never"))
    living = holder(store).job_id
    clock.turn(31 * DAY)
    store.jobs.heartbeat(living, Heartbeat())
    work(store, "c")
    before = seen(store)
    kept = {jobs: 4, task_runs: 2, runs: 2, dead_letter_actions: 1, stream_reports: 2}
    assert Pruner(store, 30).prune() == 6 + 2 + 4 + 2 + 2 + 2
    assert {table: count(store, table) for table in kept} == kept
    after = seen(store)
    assert after.totals == before.totals
    assert after.pipelines == before.pipelines
    assert after.streams == before.streams
    assert after.dead_letters == before.dead_letters
    assert store.task_runs.result("waits").state == "scheduled"
    with pytest.raises(ApiRefused) as refused:
        store.task_runs.result("a")
    assert refused.value.status == 404
    clock.turn(31 * DAY)
    store.jobs.heartbeat(living, Heartbeat())
    Pruner(store, 30).prune()
    assert seen(store).totals == before.totals
    assert [(job.id, job.state) for job in seen(store).jobs if job.state == "running"] == [(living, "running")]
    assert Pruner(store, 30).prune() == 0


def test_ids_of_pruned_jobs_are_not_reused(store: Store, clock: TurnedClock) -> None:
    work(store, "a")
    clock.turn(31 * DAY)
    with store.reading() as connection:
        last = connection.execute(select(func.max(jobs.c.id))).scalar_one()
    Pruner(store, 30).prune()
    assert store.jobs.register(registration()).id > last


def test_a_transaction_prunes_one_slice_and_a_round_prunes_all(store: Store, clock: TurnedClock) -> None:
    pipeline = store.jobs.register(registration("pipeline")).id
    store.projects.declare(pipeline, "flights", declaration("first", pipelines=["delays"]))
    store.runs.report(pipeline, [report(store, f"run-{n}") for n in range(BATCH_ROWS + 20)])
    clock.turn(DAY)
    before = seen(store)
    assert store.prune(lambda connection: pipeline_runs(connection, store.now(), 7)) == 7
    assert store.prune(lambda connection: ended_jobs(connection, store.now(), 7)) == 0
    assert Pruner(store, 0.5).prune() == BATCH_ROWS + 13
    assert (count(store, runs), seen(store).totals) == (0, before.totals)


def test_the_pruner_runs_in_the_background_unless_retention_is_unlimited(store: Store, clock: TurnedClock) -> None:
    work(store, "a")
    clock.turn(DAY)
    with Pruner(store, 0):
        assert count(store, task_runs) == 1
    gone = threading.Event()
    store.observe(lambda: gone.set() if count(store, task_runs) == 0 else None)
    with Pruner(store, 0.5):
        assert gone.wait(30)
