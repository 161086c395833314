"""The contract of slices: no transaction of the writer exceeds the limit of rows and bytes of a slice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import Connection, Table, delete, func, insert, select, update

from headrace.core.ledger.counters import StreamCounters
from headrace.core.ordering.delivery import OrderedEvent
from headrace.store import Store
from headrace.store.control.declarations import delete_staged
from headrace.store.control.stream_reports import counter_columns
from headrace.store.custody import backlog, redrive
from headrace.store.custody.seeks import old_seeks
from headrace.store.db import slices
from headrace.store.dead_letters import pipelines, texts
from headrace.store.keyring import Keyring
from headrace.store.ordering.scopes import MAX_SLICE_ROWS, abandoned_scopes, give_up_scope, scope_named
from headrace.store.retention import retention
from headrace.store.retention.event_log import discarded_pipeline_dead_letters
from headrace.store.retention.pruner import Pruner
from headrace.store.secrets import rotation
from headrace.store.tables.control import jobs, staged_triggers, stream_reports, triggers
from headrace.store.tables.custody import dead_letter_actions, dead_letters, spills, stream_seeks
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.pipelines import pipeline_dead_letters as pipeline_letter_rows
from headrace.store.tables.pipelines import redeliveries, runs
from headrace.store.tables.task_runs import task_runs
from headrace.store.tables.webhooks import webhooks
from headrace.store.task_runs.earlier_events import SCOPE
from headrace.store.task_runs.sweep import BATCH_CLAIMS, BATCH_STEPS
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.pipeline_dead_letters import PipelineDeadLetterSelection
from headrace.wire.secrets import RotateSecrets
from headrace.wire.task_runs import AwaitedEvent, AwaitedTrigger, ClaimRuns, StartRun, WaitCondition
from support.processes.store import Holder, TurnedClock, event, holder, letter, opened, registration
from support.sources.custody import bury, keep, positions, settle, some, spill

DAY = 86_400
LARGE = "x" * 10_000
MOST = 7
"""Rows of one slice, where they are small."""

Sweep = Callable[[Connection, int, int], int]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two rows of LARGE fit into a slice, and not three."""
    monkeypatch.setattr(slices, "MAX_SLICE_BYTES", 25_000)


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "first", "second")


def fill(store: Store, table: Table, rows: list[dict[str, Any]]) -> None:
    store.prune(lambda connection: connection.execute(insert(table), rows).rowcount)


def count(store: Store, table: Table) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def rows_of_each_transaction(store: Store, sweep: Sweep) -> list[int]:
    """Sweep until nothing is left; return how many rows each transaction deleted."""
    found = []
    while rows := store.prune(lambda connection: sweep(connection, store.now(), MOST)):
        found.append(rows)
    return found


def run_rows(n: int, text: str) -> dict[str, Any]:
    facts = {"run_id": f"{n}", "project": "p", "pipeline": "d", "scope": "s", "batch": 1, "attempt": 1, "state": "failed"}
    return facts | {"started": n, "events": 1, "seqs": "[[1,1]]", "error": text}


def task_run_rows(n: int, text: str) -> dict[str, Any]:
    facts = {"run_id": f"{n}", "project": "p", "task": "t", "state": "succeeded", "attempt": 1, "step": 0, "epoch": 1, "head": 0}
    return facts | {"next_kwargs": "{}", "created": 0, "changed": 0, "finished": n, "result": text}


def letter_rows(n: int, text: str) -> dict[str, Any]:
    facts = {"id": f"{n}", "kind": "malformed", "reason": "r", "stream": "s", "triggers": "[]", "attempts": 1, "received": n}
    return facts | {"raw": text, "traceback": "[]", "state": "discarded", "acted": n, "number": n}


def pipeline_letter(n: int, text: str) -> dict[str, Any]:
    facts = {"id": f"{n}", "project": "p", "scope": "s", "pipeline": "d", "run_id": f"{n}", "batch": 1, "events": 1, "seqs": "[[1,1]]"}
    return facts | {"error": text, "attempts": 1, "state": "discarded", "received": n, "acted": n}


def action_rows(n: int, text: str) -> dict[str, Any]:
    return {"at": n, "who": "w", "action": "discard", "request": text, "count": 1}


def seek_rows(n: int, text: str) -> dict[str, Any]:
    return {"plan": f"{n}", "stream": "s", "state": "done", "target": "latest", "who": "w", "planned": n, "expires": n, "lanes": text}


SWEPT: list[tuple[Sweep, Table, Callable[[int, str], dict[str, Any]]]] = [
    (retention.pipeline_runs, runs, run_rows),
    (retention.ended_task_runs, task_runs, task_run_rows),
    (retention.discarded_dead_letters, dead_letters, letter_rows),
    (discarded_pipeline_dead_letters, pipeline_letter_rows, pipeline_letter),
    (retention.old_dead_letter_actions, dead_letter_actions, action_rows),
    (old_seeks, stream_seeks, seek_rows),
]


@pytest.mark.parametrize(("sweep", "table", "row"), SWEPT, ids=lambda one: getattr(one, "__name__", None))
def test_retention_is_bounded_in_rows_and_bytes(store: Store, sweep: Sweep, table: Table, row: Callable[[int, str], Any]) -> None:
    fill(store, table, [row(n, LARGE) for n in range(1, 6)] + [row(6, 5 * LARGE)] + [row(n, "x") for n in range(7, 27)])
    assert rows_of_each_transaction(store, sweep) == [2, 2, 1, 1, 7, 7, 6]
    assert count(store, table) == 0


def test_a_round_of_retention_continues_after_a_short_slice(store: Store, clock: TurnedClock) -> None:
    fill(store, runs, [run_rows(n, LARGE) for n in range(1, 8)])
    clock.turn(31 * DAY)
    Pruner(store, 30).prune()
    assert count(store, runs) == 0


def test_texts_of_dead_letters_are_deleted_in_slices(
    store: Store, owner: Holder, clock: TurnedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "MAX_PREVIEW_CHARS", 100)
    bury(owner, *(letter(f"l{n}", raw=LARGE) for n in range(5)))
    store.dead_letters.discard(some(select_all=True))
    clock.turn(1)
    assert rows_of_each_transaction(store, retention.discarded_dead_letters) == [2, 2, 1]
    bury(owner, *(letter(f"m{n}", raw=LARGE) for n in range(5)))
    monkeypatch.setattr(texts, "MAX_WHOLE_BYTES", 5_000)
    assert rows_of_each_transaction(store, texts.oversized_texts) == [2, 2, 1]


def test_reports_of_ended_jobs_are_summed_up_in_slices(store: Store) -> None:
    job = store.jobs.register(registration()).id
    store.jobs.complete(job, CompleteJob(state="succeeded"))
    store.jobs.register(registration())
    counters = counter_columns(StreamCounters(read=1, advanced=1, filtered=1))
    fill(
        store,
        stream_reports,
        [
            {"job_id": job, "stream": f"s{n:02}", "state": "ended", "report": "{}", "updated": 0, "outstanding": 1, **counters}
            for n in range(20)
        ],
    )
    store.prune(lambda connection: connection.execute(update(jobs).where(jobs.c.id == job).values(ended=1)).rowcount)
    assert rows_of_each_transaction(store, retention.ended_jobs) == [7, 7, 1], "two slices of reports, then the rest and their job"
    with store.reading() as connection:
        left = connection.execute(select(stream_reports.c.job_id, stream_reports.c.read)).all()
    assert left == [(retention.DELETED_JOBS, 1)] * 20


def backlog_of(store: Store, owner: Holder, sizes: list[int]) -> None:
    keep(owner, *(spill(n, 1, 2, raw="x" * size) for n, size in enumerate(sizes, 1)))


def remove_triggers(store: Store) -> None:
    store.prune(lambda connection: connection.execute(update(triggers).values(state="removed", removed=0)).rowcount)


def test_the_backlog_of_removed_triggers_is_bounded_in_bytes_across_triggers(store: Store, owner: Holder) -> None:
    backlog_of(store, owner, [10_000] * 3 + [60_000] + [10] * 4)
    remove_triggers(store)
    assert rows_of_each_transaction(store, backlog.removed_backlogs) == [2, 1, 1, 6, 1, 1, 4]
    assert count(store, spills) == 0


def test_a_dropped_backlog_is_bounded_in_bytes(store: Store, owner: Holder) -> None:
    backlog_of(store, owner, [10_000] * 5)
    assert rows_of_each_transaction(store, lambda connection, now, most: backlog.drop(connection, 1, most, now)) == [2, 2, 1]
    assert count(store, spills) == 5, "the other trigger still wants them"
    assert store.backlog.drop(2) == 5
    assert count(store, spills) == 0


def commits(store: Store) -> list[int]:
    """Return a list that grows with each commit of the writer."""
    seen: list[int] = []
    store._database.observe_own(lambda: seen.append(1))
    return seen


def test_settling_is_bounded_in_bytes(store: Store, owner: Holder) -> None:
    backlog_of(store, owner, [10_000] * 5)
    seen = commits(store)
    settle(owner, "fired", trigger=1)
    assert len(seen) == 3
    assert (positions(owner, 1), positions(owner, 2)) == ([], [1, 2, 3, 4, 5])


@pytest.mark.parametrize("action", ["redrive", "discard"])
def test_dead_letters_are_changed_in_slices_and_recorded_as_one_action(store: Store, owner: Holder, action: str) -> None:
    bury(owner, *(letter(f"l{n}", raw=LARGE, stream="folder") for n in range(5)), letter("small", stream="folder"))
    seen = commits(store)
    act = store.dead_letters.redrive if action == "redrive" else store.dead_letters.discard
    done = act(some("l0", "l1", "l2", "none", "l3", "l4", "small"))
    assert (done.count, [one.id for one in done.skipped], done.remaining, len(seen)) == (6, ["none"], 0, 3)
    assert [one.count for one in store.dead_letters.actions(limit=9).actions] == [6]
    again = act(some("l0", "l4"))
    assert (again.count, len(again.skipped)) == (0, 2)


def test_many_small_dead_letters_are_redriven_in_slices(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive, "BATCH_DEAD_LETTERS", 4)
    bury(owner, *(letter(f"l{n}") for n in range(10)))
    seen = commits(store)
    done = store.dead_letters.redrive(some(select_all=True))
    assert (done.count, done.skipped, done.remaining, len(seen)) == (10, [], 0, 3)
    assert store.backlog.drop(1) == 10


def test_dead_letters_changed_concurrently_are_not_redriven_by_a_filter(
    store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "BATCH_DEAD_LETTERS", 2)
    bury(owner, *(letter(f"l{n}") for n in range(5)))
    chosen = redrive._chosen

    def choose(*given: Any) -> Any:
        found = chosen(*given)
        monkeypatch.setattr(redrive, "_chosen", chosen)
        store.dead_letters.discard(some("l3"))
        return found

    monkeypatch.setattr(redrive, "_chosen", choose)
    done = store.dead_letters.redrive(some(select_all=True))
    assert (done.count, done.skipped) == (4, [])


def test_large_dead_letters_of_pipelines_are_changed_in_slices(store: Store) -> None:
    fill(store, pipeline_letter_rows, [pipeline_letter(n, LARGE) | {"state": "open"} for n in range(1, 6)])
    seen = commits(store)
    assert store.pipeline_dead_letters.act("redrive", PipelineDeadLetterSelection(pipeline="d")).count == 5
    assert (len(seen), count(store, redeliveries)) == (3, 5)
    done = store.pipeline_dead_letters.act("discard", PipelineDeadLetterSelection(ids=["1", "2", "9"]))
    assert (done.count, done.unknown) == (0, ["9"])


def test_many_dead_letters_of_pipelines_are_changed_in_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "BATCH_DEAD_LETTERS", 4)
    fill(store, pipeline_letter_rows, [pipeline_letter(n, "x") | {"state": "open"} for n in range(1, 10)])
    seen = commits(store)
    assert store.pipeline_dead_letters.act("discard", PipelineDeadLetterSelection(pipeline="d", limit=9)).count == 9
    assert len(seen) == 3


def webhook(store: Store, states: list[str], **other: Any) -> None:
    """Make a webhook that holds events in these states."""
    facts = {"url": "https://example", "types": "[]", "secret": "", "policy": "hold", "max_attempts": 8, "timeout": 1, "created": 0}
    totals = {"delivered": 0, "failed": 0, "dead": 0, "changed": 0}

    def work(connection: Connection) -> int:
        scope = scope_named(connection, "webhook:large", 1)
        connection.execute(insert(webhooks).values(name="large", state="paused", scope_id=scope, **facts, **totals))
        shared = {"scope_id": scope, "source": "tests", "occurred": 0, "since": 0, "late": False, "attempts": 8} | other
        rows = [
            {"seq": n, "position": n, "id": f"{n}", "key": OrderedEvent.of("tests", f"{n}", None, 0).key, "state": state, **shared}
            for n, state in enumerate(states, 1)
        ]
        return connection.execute(insert(ordering_events), rows).rowcount

    store.prune(work)


def give_up(store: Store) -> None:
    def work(connection: Connection) -> None:
        give_up_scope(connection, connection.execute(select(webhooks.c.scope_id)).scalar_one())
        connection.execute(delete(webhooks))

    store.write(work)


def test_rows_of_a_removed_webhook_are_bounded_in_rows_and_bytes(store: Store) -> None:
    webhook(store, ["dead"] * 5, error=LARGE)
    give_up(store)
    assert rows_of_each_transaction(store, abandoned_scopes) == [2, 2, 2], "the last row goes with its scope"
    webhook(store, ["ready"] * (MAX_SLICE_ROWS + 10))
    give_up(store)
    assert store.prune(lambda connection: abandoned_scopes(connection, 0, 10_000)) == MAX_SLICE_ROWS


def test_pages_of_a_declaration_are_deleted_in_slices(store: Store) -> None:
    facts = {"declaration": "d", "project": "p", "classpath": "c", "queue": "q", "priority": 0, "staged": 0}
    fill(store, staged_triggers, [facts | {"name": f"t{n}", "kwargs": LARGE} for n in range(5)])
    assert rows_of_each_transaction(store, lambda connection, now, most: delete_staged(connection, "d", most)) == [2, 2, 1]


def test_secrets_are_encrypted_again_in_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    sealed = Keyring([old]).encrypt("{}" + " " * 7_000)
    facts = {"project": "p", "classpath": "c", "queue": "q", "state": "removed", "declared": 0}
    facts |= dict.fromkeys(("failures", "fired", "rejected", "epoch"), 0)
    fill(store, triggers, [facts | {"name": f"t{n}", "kwargs": sealed} for n in range(5)])
    monkeypatch.setattr(store._database, "keyring", Keyring([new, old]))
    rotated, after = [], None
    while after is None or after.startswith("trigger:"):
        batch = store.rotation.batch(RotateSecrets(after=after))
        rotated.append(batch.rotated)
        after = batch.after or ""
    assert rotated == [2, 2, 1]
    monkeypatch.setattr(rotation, "BATCH_ROWS", 3)
    assert store.rotation.batch(RotateSecrets()).current == 2, "a second time there is nothing to do"


def start(store: Store, number: int, text: str = "", timeout: float | None = None) -> None:
    waiting = None if timeout is None else WaitCondition(trigger=AwaitedTrigger(classpath="a.B", kwargs={}), timeout=timeout)
    store.task_runs.start("flights", StartRun(run_id=f"r{number:04}", task="t", kwargs=f'{{"a":"{text}"}}', waiting=waiting))


def states_of_runs(store: Store) -> dict[str, int]:
    with store.reading() as connection:
        found = connection.execute(select(task_runs.c.state, func.count()).group_by(task_runs.c.state))
        return {row[0]: row[1] for row in found}


def sweep_all(store: Store) -> list[int]:
    """Sweep the task runs until nothing is due; return how many runs have failed after each transaction."""
    failed = []
    while store.task_runs.sweep() == 0:
        failed.append(states_of_runs(store).get("failed", 0))
    return [*failed, states_of_runs(store).get("failed", 0)]


def test_concurrent_timeouts_end_runs_in_slices(store: Store, clock: TurnedClock) -> None:
    many = 2 * BATCH_STEPS + 5
    for number in range(many):
        start(store, number, timeout=60)
    clock.turn(61)
    assert sweep_all(store)[:3] == [BATCH_STEPS, 2 * BATCH_STEPS, many]


def test_claims_of_runs_with_large_arguments_are_bounded_in_bytes(store: Store) -> None:
    for number in range(5):
        start(store, number, LARGE)
    worker = store.jobs.register(registration("worker")).id
    claimed: list[list[str]] = []
    for _ in range(3):
        claim = ClaimRuns(capacity=10, tasks=["t"], running=[run_id for claimed_runs in claimed for run_id in claimed_runs])
        claimed.append([run.run_id for run in store.task_runs.claim(worker, claim).runs])
    assert claimed == [["r0000", "r0001"], ["r0002", "r0003"], ["r0004"]]
    assert BATCH_CLAIMS < 1_000, "a worker may ask for so many"


def test_retention_deletes_many_rows_of_a_restarted_task_run_scope(store: Store, owner: Holder) -> None:
    def wait(run_id: str) -> None:
        store.task_runs.start("flights", StartRun(run_id=run_id, task="t", waiting=WaitCondition(event=AwaitedEvent(on=["*"]))))

    def scope() -> int:
        with store.reading() as connection:
            return int(connection.execute(select(ordering_scopes.c.id).where(ordering_scopes.c.name == SCOPE)).scalar_one())

    wait("first")
    first = scope()
    shared = {"scope_id": first, "source": "tests", "occurred": 0, "since": 0, "late": False, "state": "waiting", "attempts": 0}
    many = range(MAX_SLICE_ROWS + 1)
    fill(store, ordering_events, [{"seq": n, "id": f"{n}", "key": OrderedEvent.of("tests", f"{n}", None, 0).key, **shared} for n in many])
    store.task_runs.cancel("first")
    owner.append(event("a"))
    wait("second")
    assert (scope() != first, count(store, ordering_events)) == (True, len(many)), "no transaction deletes them all"
    Pruner(store, 30).prune()
    assert count(store, ordering_events) == 0
    second = scope()
    store.task_runs.cancel("second")
    owner.append(event("b"))
    wait("third")
    assert scope() == second, "few rows go at once"


def test_sqlite_does_not_rewrite_deleted_pages(tmp_path: Path) -> None:
    size = 4 * 1024 * 1024
    with opened("sqlite", tmp_path) as store:
        fill(store, runs, [run_rows(1, "x" * size)])
        with store.reading() as connection:
            connection.exec_driver_sql("PRAGMA query_only = OFF")
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql("PRAGMA query_only = ON")
            connection.exec_driver_sql("BEGIN")
        assert (tmp_path / "headrace.db-wal").stat().st_size == 0
        assert rows_of_each_transaction(store, retention.pipeline_runs) == [1]
        assert 0 < (tmp_path / "headrace.db-wal").stat().st_size < size // 8
