"""Pruning of custody: idle lanes, merged subscriber sets, backlogs of removed triggers, triggers of ended task runs.

Its sums stay right: what is forgotten is added to the sums of its stream.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from sqlalchemy import Connection, delete, exists, select, tuple_

from headrace.store.control.declarations import staged_declarations
from headrace.store.custody.backlog import removed_backlogs
from headrace.store.custody.lanes import idle_lanes
from headrace.store.custody.subscriber_sets import ENDED_RUNS, NONE, old_subscriber_sets
from headrace.store.dialects.statements import Upsert, in_list
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import custody
from headrace.store.tables.task_runs import task_runs

_add = Upsert(custody, ("stream_id", "trigger_id"), lambda new: {name: custody.c[name] + new[name] for name in NONE})


def ended_waits(connection: Connection, before: int, most: int) -> int:
    """Forget the triggers of task runs that have ended, whatever their age, once no job runs them and they have no backlog."""
    del before
    waits = exists().where(task_runs.c.run_id == triggers.c.run_id, task_runs.c.finished.is_(None))
    over = (triggers.c.run_id.is_not(None), triggers.c.state == "removed", ~waits)
    free = (triggers.c.job_id.is_(None), triggers.c.revoked_job_id.is_(None), triggers.c.backlog == 0)
    found = list(connection.execute(select(triggers.c.id).where(*over, *free).order_by(triggers.c.id).limit(most)).scalars())
    connection.execute(delete(triggers).where(in_list(triggers.c.id, "ids")), {"ids": found})
    return len(found)


def ended_answers(connection: Connection, before: int, most: int) -> int:
    """Sum up the answers of triggers that are forgotten."""
    del before
    gone = (custody.c.trigger_id != ENDED_RUNS, ~exists().where(triggers.c.id == custody.c.trigger_id))
    rows = connection.execute(select(custody).where(*gone).order_by(custody.c.trigger_id, custody.c.stream_id).limit(most)).all()
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        sums[row.stream_id].update({name: getattr(row, name) for name in NONE})
    _add(connection, [{**NONE, **counts, "stream_id": stream, "trigger_id": ENDED_RUNS} for stream, counts in sums.items()])
    places = [(row.stream_id, row.trigger_id) for row in rows]
    connection.execute(delete(custody).where(tuple_(custody.c.stream_id, custody.c.trigger_id).in_(places)))
    return len(rows)


BOOKS = (staged_declarations, removed_backlogs, idle_lanes, ended_waits, old_subscriber_sets, ended_answers)
"""The sweeps of the ledger of custody, in this order: answers are summed up once their triggers are gone."""
