"""Scopes with their ordering state in the SQL store, of webhooks and of task runs: progress and waiting events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, exists, func, literal, select

from headrace.core.values.moments import moment
from headrace.store.db.ages import wall_of
from headrace.store.log.extent import received_after
from headrace.store.ordering.scopes import WEBHOOK_PREFIX
from headrace.store.ordering.wait_histogram import as_buckets
from headrace.store.queries.scopes import MAX_STATUS_WAITS
from headrace.store.tables.log import events
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.task_runs import event_waits
from headrace.store.tables.webhooks import webhooks
from headrace.wire.pipelines.scopes import (
    EventInScope,
    EventState,
    FollowerWait,
    LeaderState,
    ScopeKind,
    ScopeStatus,
    WaitPage,
    select_waits,
)

LOOKED_AT: Final = 100
"""Maximum number of waiting events that a status examines to choose which ones to list."""
COUNTED: Final = 10_000
"""Maximum number of waiting events that a status counts.

Its cost must not grow with the backlog of an endpoint that is down.
"""

_E = ordering_events.c
_EVENT_STATES: Final[dict[str, EventState]] = {
    "waiting": "waiting",
    "blocked": "waiting",
    "ready": "in_progress",
    "claimed": "in_progress",
    "dead": "dead",
}

_at_work = ordering_scopes.c.id.in_(select(webhooks.c.scope_id)) | exists(select(event_waits.c.run_id))
_scope_count = select(func.count()).select_from(ordering_scopes).where(_at_work)


def sql_scopes(connection: Connection, top: int, *, limit: int | None = None) -> list[ScopeStatus]:
    """Return the scopes by name, or with a `limit` the ones with the largest lag. `top` is the head of the log.

    The scope of task runs is included only while a run waits for an event.
    """
    chosen = select(ordering_scopes.c.id).where(_at_work).order_by(ordering_scopes.c.head, ordering_scopes.c.name).limit(limit)
    rows = connection.execute(select(ordering_scopes).where(ordering_scopes.c.id.in_(chosen)).order_by(ordering_scopes.c.name))
    return [_status(connection, row, top) for row in rows.all()]


def sql_scope_count(connection: Connection) -> int:
    """Return the number of scopes. The scope of task runs counts only while a run waits for an event."""
    return int(connection.execute(_scope_count).scalar_one())


def waits_in_sql(connection: Connection, scope: str, now: int, *, after: int, limit: int) -> WaitPage | None:
    """Return the waiting events of a scope with seq > after, or None if the scope does not exist."""
    row = connection.execute(select(ordering_scopes).where(ordering_scopes.c.name == scope)).one_or_none()
    if row is None:
        return None
    waits = _waits(connection, row, select(_E.seq).where(*_those(row.id), _E.seq > after).order_by(_E.seq), limit + 1)
    page = waits[:limit]
    return WaitPage(
        scope=scope,
        kind=_kind(row),
        at=moment(now),
        waiting=_count(connection, row.id),
        waits=page,
        after=page[-1].seq if len(waits) > limit else None,
    )


def event_in_sql_scopes(connection: Connection, seq: int, now: int) -> list[EventInScope]:
    """Return the event `seq` of the log in each scope that has not handled it yet. Handled events leave no row."""
    held = select(ordering_scopes, _E.state, _E.mark, _E.position.label("event_position")).join(
        ordering_events, _E.scope_id == ordering_scopes.c.id
    )
    rows = connection.execute(held.where(_E.seq == seq, _at_work).order_by(ordering_scopes.c.name)).all()
    return [_event_in(connection, row, seq, now) for row in rows]


def _event_in(connection: Connection, row: Row[Any], seq: int, now: int) -> EventInScope:
    state = _EVENT_STATES[row.state]
    waits = _waits(connection, row, select(literal(seq)), 1) if state == "waiting" else []
    return EventInScope(
        scope=row.name,
        kind=_kind(row),
        state=state,
        at=moment(now),
        position=row.event_position,
        mark=row.mark,
        wait=waits[0] if waits else None,
    )


def _status(connection: Connection, scope: Row[Any], top: int) -> ScopeStatus:
    waiting = _count(connection, scope.id)
    chosen = select(_E.seq).where(*_those(scope.id)).limit(COUNTED)
    waits = _waits(connection, scope, chosen, LOOKED_AT) if waiting else []
    return ScopeStatus(
        scope=scope.name,
        kind=_kind(scope),
        cursor=scope.head,
        lag=max(0, top - scope.head),
        waiting=waiting,
        ordered=scope.position,
        lost=scope.lost,
        late=scope.late,
        cycles=scope.cycles,
        batch=0,
        updated=moment(scope.clock),
        holds=as_buckets(scope.holds),
        hold_seconds=scope.held / 1_000_000,
        needs=received_after(connection, scope.head),
        waiting_since=min((wait.since for wait in waits), default=None),
        waits=select_waits(waits, MAX_STATUS_WAITS),
    )


def _kind(scope: Row[Any]) -> ScopeKind:
    return "webhook" if scope.name.startswith(WEBHOOK_PREFIX) else "task-runs"


def _those(scope_id: int) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the waiting events of a scope. None of them is due, which lets an index find them."""
    return _E.scope_id == scope_id, _E.due.is_(None), _E.state.in_(["waiting", "blocked"])


def _count(connection: Connection, scope_id: int) -> int:
    some = select(literal(1)).where(*_those(scope_id)).limit(COUNTED).subquery()
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def _waits(connection: Connection, scope: Row[Any], chosen: Select[int], limit: int) -> list[FollowerWait]:
    """Return the first of the `chosen` seqs that wait. A released but blocked event waits since its arrival."""
    query = select(ordering_events, events.c.subject, wall_of(_E.since).label("came"))
    first = query.join(events, events.c.seq == _E.seq).where(_E.scope_id == scope.id)
    rows = connection.execute(first.where(_E.seq.in_(chosen)).order_by(_E.seq).limit(limit)).all()
    states = _states(connection, scope.id, [row.leader_key for row in rows if row.leader_key is not None])
    return [_wait(row, _leader(row, states), scope.lookback) for row in rows if row.follows is not None]


def _states(connection: Connection, scope_id: int, keys: Sequence[bytes]) -> dict[bytes, str]:
    query = select(_E.key, _E.state).where(_E.scope_id == scope_id, _E.key.in_(keys))
    return {row.key: row.state for row in connection.execute(query)} if keys else {}


def _leader(row: Row[Any], states: dict[bytes, str]) -> LeaderState:
    state = states.get(row.leader_key)
    if state == "dead":
        return "dead"
    if state in {"waiting", "blocked"}:
        return "waiting"
    return "missing" if row.state == "waiting" else "in_progress"


def _wait(row: Row[Any], leader: LeaderState, lookback: int) -> FollowerWait:
    lost_at = moment(row.came + lookback) if leader == "missing" else None
    known = {name: getattr(row, name) for name in ("seq", "id", "source", "subject", "follows")}
    return FollowerWait(**known, leader=leader, since=moment(row.came), lost_at=lost_at)
