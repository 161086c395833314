"""Prune receipts: idle lanes, subscriber sets, backlogs of removed triggers, triggers of ended task runs, and seeks.

Invariant: the totals of each stream stay the same. The counts of deleted rows are added to those of their stream.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from sqlalchemy import Connection, delete, exists, select, tuple_

from headrace.store.control.declarations import staged_declarations
from headrace.store.custody.backlog import removed_backlogs
from headrace.store.custody.lanes import idle_lanes
from headrace.store.custody.seeks import old_seeks
from headrace.store.custody.subscriber_sets import ENDED_RUNS, NONE, old_subscriber_sets
from headrace.store.dialects.statements import Upsert, in_list
from headrace.store.tables.control import triggers, watch_samples
from headrace.store.tables.custody import trigger_answers
from headrace.store.tables.task_runs import task_runs

_add = Upsert(trigger_answers, ("stream_id", "trigger_id"), lambda new: {name: trigger_answers.c[name] + new[name] for name in NONE})


def ended_waits(connection: Connection, before: int, limit: int) -> int:
    """Delete the triggers of ended task runs that no job runs and that have no backlog, at any age."""
    del before
    waits = exists().where(task_runs.c.run_id == triggers.c.run_id, task_runs.c.finished.is_(None))
    over = (triggers.c.run_id.is_not(None), triggers.c.state == "removed", ~waits)
    free = (triggers.c.job_id.is_(None), triggers.c.revoked_job_id.is_(None), triggers.c.backlog == 0)
    trigger_ids = list(connection.execute(select(triggers.c.id).where(*over, *free).order_by(triggers.c.id).limit(limit)).scalars())
    connection.execute(delete(triggers).where(in_list(triggers.c.id, "ids")), {"ids": trigger_ids})
    connection.execute(delete(watch_samples).where(in_list(watch_samples.c.trigger_id, "ids")), {"ids": trigger_ids})
    return len(trigger_ids)


def ended_answers(connection: Connection, before: int, limit: int) -> int:
    """Add up the answers of deleted triggers."""
    del before
    orphaned = (trigger_answers.c.trigger_id != ENDED_RUNS, ~exists().where(triggers.c.id == trigger_answers.c.trigger_id))
    rows = connection.execute(
        select(trigger_answers).where(*orphaned).order_by(trigger_answers.c.trigger_id, trigger_answers.c.stream_id).limit(limit)
    ).all()
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        sums[row.stream_id].update({name: getattr(row, name) for name in NONE})
    _add(connection, [{**NONE, **counts, "stream_id": stream, "trigger_id": ENDED_RUNS} for stream, counts in sums.items()])
    keys = [(row.stream_id, row.trigger_id) for row in rows]
    connection.execute(delete(trigger_answers).where(tuple_(trigger_answers.c.stream_id, trigger_answers.c.trigger_id).in_(keys)))
    return len(rows)


CUSTODY_SWEEPS = (staged_declarations, removed_backlogs, idle_lanes, ended_waits, old_subscriber_sets, ended_answers, old_seeks)
"""The sweeps over receipts in their order: answers are added up after their triggers are deleted."""
