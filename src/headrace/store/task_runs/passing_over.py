"""Skip events that no task run waits for, without ordering them. These are usually the largest part of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, exists, or_, select, update

from headrace.core.values.shards import whole_name
from headrace.store.db.meta import log_end
from headrace.store.dialects.statements import in_list
from headrace.store.ordering.statements import slices
from headrace.store.tables.control import triggers
from headrace.store.tables.log import events, firings
from headrace.store.tables.ordering import ordering_events, ordering_given_up, ordering_scopes
from headrace.store.tables.task_runs import event_wait_terms
from headrace.store.task_runs.wait_terms import prefixes

MAX_SKIPPED_EVENTS: Final = 5_000
"""Maximum number of events that one transaction skips."""

_FIELDS: Final = ("id", "subject", "type")
_T = event_wait_terms.c
_S = ordering_scopes.c
_kinds = select(_T.kind).distinct()
_awaited_terms = select(_T.term).where(_T.kind == bindparam("kind"), in_list(_T.term, "terms")).distinct()
_orphan = and_(events.c.leader_key.is_not(None), events.c.leader_seq < 0)


def is_behind(connection: Connection, scope_id: int) -> bool:
    """Return whether the log has events that the scope has not read."""
    return bool(log_end(connection) > connection.execute(select(_S.head).where(_S.id == scope_id)).scalar_one())


def pass_over(connection: Connection, scope_id: int, now: int) -> bool:
    """Advance the scope to just before the first event that must be ordered. Return whether it advanced.

    Such an event is one that a run may wait for, or one whose leader did not arrive before it. While the scope
    holds an event, every event must be ordered.
    """
    held = select(exists().where(ordering_events.c.scope_id == scope_id))
    if connection.execute(held).scalar_one():
        return False
    mine = _S.id == scope_id
    head = connection.execute(select(_S.head).where(mine)).scalar_one()
    end = min(log_end(connection), head + MAX_SKIPPED_EVENTS)
    needed = or_(_orphan, *_awaited(connection, head, end), *_given_up(connection, scope_id))
    first = select(events.c.seq).where(events.c.seq > head, events.c.seq <= end, needed).order_by(events.c.seq).limit(1)
    first_seq = connection.execute(first).scalar_one_or_none()
    to = end if first_seq is None else first_seq - 1
    if to <= head:
        return False
    moved = {"head": to, "handled": _S.handled + (to - head), "clock": case((_S.clock < now, now), else_=_S.clock)}
    connection.execute(update(ordering_scopes).where(mine).values(**moved))
    return True


def _awaited(connection: Connection, after: int, to: int) -> list[ColumnElement[bool]]:
    """Return the conditions under which a run may wait for an event, one for each kind of term in use."""
    kinds = set(connection.execute(_kinds).scalars())
    conditions: list[ColumnElement[bool]] = [
        exists().where(_T.kind == kind, _T.term == events.c[kind]) for kind in _FIELDS if kind in kinds
    ]
    if kinds & {"name", "prefix"}:
        concerned = _concerned(connection, after, to)
        if concerned:
            conditions.append(exists().where(firings.c.seq == events.c.seq, firings.c.trigger_id.in_(concerned)))
    return conditions


def _concerned(connection: Connection, after: int, to: int) -> list[int]:
    """Return the triggers that fired in a range of the log and whose names a run waits for."""
    fired = select(firings.c.trigger_id).where(firings.c.seq > after, firings.c.seq <= to).distinct()
    rows = connection.execute(select(triggers.c.id, triggers.c.project, triggers.c.name).where(triggers.c.id.in_(fired)))
    names = {row.id: (row.project, whole_name(row.name)) for row in rows}
    named = _among(connection, "name", {f"{project}/{name}" for project, name in names.values()})
    begun = _among(connection, "prefix", {prefix for name in names.values() for prefix in prefixes(*name)})
    return [id for id, name in names.items() if "/".join(name) in named or not begun.isdisjoint(prefixes(*name))]


def _among(connection: Connection, kind: str, terms: Iterable[str]) -> set[str]:
    """Return the given terms for which a run waits."""
    return {term for some in slices(terms) for term in connection.execute(_awaited_terms, {"kind": kind, "terms": list(some)}).scalars()}


def _given_up(connection: Connection, scope_id: int) -> list[ColumnElement[bool]]:
    mine = ordering_given_up.c.scope_id == scope_id
    any_ = connection.execute(select(exists().where(mine))).scalar_one()
    return [exists().where(mine, ordering_given_up.c.key == events.c.key)] if any_ else []
