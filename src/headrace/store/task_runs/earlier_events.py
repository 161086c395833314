"""Find an event that arrived before its run began to wait for it, however many others arrived in between.

A reading transaction examines the log, `MAX_SCANNED_EVENTS` events at a time. The writer's transaction examines only the
events since then, so it is short. If the run waits with an event pattern, the payloads of the events that fit otherwise are
read and tested, some at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, select

from headrace.core.matching.payloads import Payload
from headrace.core.values.shards import whole_name
from headrace.store.db.database import Database
from headrace.store.dialects.statements import in_list
from headrace.store.ordering.payloads import payload_matches
from headrace.store.ordering.statements import slices
from headrace.store.tables.control import triggers
from headrace.store.tables.log import events, firings
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.task_runs import run_events, task_runs
from headrace.store.task_runs.wait_terms import Wait
from headrace.wire.task_runs import AwaitedEvent

SCOPE: Final = "task-runs"
MAX_SCANNED_EVENTS: Final = 5_000
"""Maximum number of events that one reading transaction examines."""

_read_to = select(ordering_scopes.c.head).where(ordering_scopes.c.name == SCOPE)
_fired = (
    select(firings.c.seq, triggers.c.project, triggers.c.name)
    .join(triggers, triggers.c.id == firings.c.trigger_id)
    .where(in_list(firings.c.seq, "seqs"))
)
_open = select(ordering_events.c.seq).where(in_list(ordering_events.c.seq, "seqs"))
_had = select(run_events.c.seq).where(in_list(run_events.c.seq, "seqs"))


class Looked(NamedTuple):
    """The position up to which the log was examined for a run, and the matching events.

    The last of them is available. Those before it are not handled yet.
    """

    to: int
    seqs: list[int]


def find_earlier_event(database: Database, run_id: str, awaited: AwaitedEvent) -> Looked | None:
    """Search for the awaited event among the log's events since the run was created.

    The search covers the events that the scope of task runs has read.
    Return None if the run does not exist.
    """
    with database.reading() as connection:
        run = connection.execute(select(task_runs.c.project, task_runs.c.head).where(task_runs.c.run_id == run_id)).one_or_none()
    if run is None:
        return None
    wait = Wait(run_id, run.project, awaited, run.head)
    looked = Looked(run.head, [])
    while True:
        with database.reading() as connection:
            read_to = connection.execute(_read_to).scalar_one_or_none() or 0
            if looked.to >= read_to:
                return looked
            end = min(looked.to + MAX_SCANNED_EVENTS, read_to)
            seqs = _fitting(connection, wait, looked.to, end)
            looked = Looked(end, [*looked.seqs, *seqs])
            if _free(connection, wait, seqs):
                return looked


def earlier_event(connection: Connection, wait: Wait, looked: Looked) -> Row[Any] | None:
    """Return the first handled event that the run waits for, one that follows none of the others, or None."""
    read_to = connection.execute(_read_to).scalar_one()
    seqs = looked.seqs
    free = _free(connection, wait, seqs)
    if not free:
        free = _free(connection, wait, _fitting(connection, wait, looked.to, read_to))
    if not free:
        return None
    first = connection.execute(select(events).where(events.c.seq == free[0])).one()
    above = {first.key}
    while first.leader_key is not None and first.leader_key not in above:
        leader = connection.execute(select(events).where(events.c.key == first.leader_key)).one_or_none()
        if leader is None or leader.seq > read_to or not _fits(connection, wait, leader) or not _free(connection, wait, [leader.seq]):
            break
        first = leader
        above.add(first.key)
    return first


def trigger_names(connection: Connection, seqs: Iterable[int]) -> dict[tuple[int, str], list[str]]:
    """Return the names of the triggers that fired on each event, by its seq and project."""
    named: dict[tuple[int, str], list[str]] = {}
    for some in slices(seqs):
        for row in connection.execute(_fired, {"seqs": list(some)}):
            named.setdefault((row.seq, row.project), []).append(whole_name(row.name))
    return named


def _fitting(connection: Connection, wait: Wait, after: int, to: int) -> list[int]:
    columns = [events.c[name] for name in ("seq", "id", "subject", "type")]
    conditions = [events.c[name] == value for name, value in wait.fields.items()]
    rows = connection.execute(select(*columns).where(events.c.seq > after, events.c.seq <= to, *conditions).order_by(events.c.seq)).all()
    fired = trigger_names(connection, [row.seq for row in rows])
    seqs = [row.seq for row in rows if wait.matches(row, fired.get((row.seq, wait.project), ()))]
    pattern = wait.payload_pattern
    return seqs if pattern is None else [seq for seq, matches in payload_matches(connection, pattern, seqs) if matches]


def _fits(connection: Connection, wait: Wait, event: Any) -> bool:
    names = trigger_names(connection, [event.seq]).get((event.seq, wait.project), ())
    pattern = wait.payload_pattern
    return wait.matches(event, names) and (pattern is None or pattern.matches(Payload(event.payload)))


def _free(connection: Connection, wait: Wait, seqs: Sequence[int]) -> list[int]:
    """Return the given events that the scope has handled and the run has not received."""
    taken: set[int] = set()
    mine = ordering_scopes.c.name == SCOPE
    scope = select(ordering_scopes.c.id).where(mine).scalar_subquery()
    for some in slices(seqs):
        parameters = {"seqs": list(some)}
        taken.update(connection.execute(_open.where(ordering_events.c.scope_id == scope), parameters).scalars())
        taken.update(connection.execute(_had.where(run_events.c.run_id == wait.run_id), parameters).scalars())
    return [seq for seq in seqs if seq not in taken]
