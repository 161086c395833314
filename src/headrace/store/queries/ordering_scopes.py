"""What people are shown of the scopes in the SQL home, of webhooks and of task runs: how far each is, what waits in it and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, exists, func, literal, select

from headrace.core.values.moments import moment
from headrace.store.db.ages import wall_of
from headrace.store.log.extent import came_after
from headrace.store.ordering.scopes import WEBHOOK_PREFIX
from headrace.store.ordering.wait_histogram import told
from headrace.store.queries.scopes import SHOWN
from headrace.store.tables.log import events
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.task_runs import event_waits
from headrace.store.tables.webhooks import webhooks
from headrace.wire.pipelines.scopes import LeaderIs, ScopeKind, ScopeStatus, Wait, WaitPage, telling

LOOKED_AT: Final = 100
"""Among so many of those that wait a status looks for those to name."""
COUNTED: Final = 10_000
"""So many waiting events are counted at most: a status must not cost what an endpoint that is down leaves behind."""

_E = ordering_events.c

_at_work = ordering_scopes.c.id.in_(select(webhooks.c.scope_id)) | exists(select(event_waits.c.run_id))
_scope_count = select(func.count()).select_from(ordering_scopes).where(_at_work)


def sql_scopes(connection: Connection, top: int, *, limit: int | None = None) -> list[ScopeStatus]:
    """Return the scopes by name, with a `limit` those that are furthest behind; `top` is the head of the log.

    That of task runs is one of them only while a run waits for an event.
    """
    chosen = select(ordering_scopes.c.id).where(_at_work).order_by(ordering_scopes.c.head, ordering_scopes.c.name).limit(limit)
    found = connection.execute(select(ordering_scopes).where(ordering_scopes.c.id.in_(chosen)).order_by(ordering_scopes.c.name))
    return [_status(connection, row, top) for row in found.all()]


def sql_scope_count(connection: Connection) -> int:
    """Return how many scopes there are, that of task runs only while a run waits for an event."""
    return int(connection.execute(_scope_count).scalar_one())


def waits_in_sql(connection: Connection, scope: str, now: int, *, after: int, limit: int) -> WaitPage | None:
    """Return what waits in a scope, with seq > after; None where there is no such scope."""
    row = connection.execute(select(ordering_scopes).where(ordering_scopes.c.name == scope)).one_or_none()
    if row is None:
        return None
    waits = _waits(connection, row, select(_E.seq).where(*_those(row.id), _E.seq > after).order_by(_E.seq), limit + 1)
    shown = waits[:limit]
    return WaitPage(
        scope=scope,
        kind=_kind(row),
        at=moment(now),
        waiting=_count(connection, row.id),
        waits=shown,
        after=shown[-1].seq if len(waits) > limit else None,
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
        holds=told(scope.holds),
        hold_seconds=scope.held / 1_000_000,
        needs=came_after(connection, scope.head),
        waiting_since=min((wait.since for wait in waits), default=None),
        waits=telling(waits, SHOWN),
    )


def _kind(scope: Row[Any]) -> ScopeKind:
    return "webhook" if scope.name.startswith(WEBHOOK_PREFIX) else "task-runs"


def _those(scope_id: int) -> tuple[ColumnElement[bool], ...]:
    """Return which events of a scope wait: none of them is due, by which an index finds them."""
    return _E.scope_id == scope_id, _E.due.is_(None), _E.state.in_(["waiting", "blocked"])


def _count(connection: Connection, scope_id: int) -> int:
    some = select(literal(1)).where(*_those(scope_id)).limit(COUNTED).subquery()
    return int(connection.execute(select(func.count()).select_from(some)).scalar_one())


def _waits(connection: Connection, scope: Row[Any], chosen: Select[int], limit: int) -> list[Wait]:
    """Return the first of the `chosen` seqs that wait. What was released and is blocked still waits since it came."""
    shown = select(ordering_events, events.c.subject, wall_of(_E.since).label("came"))
    first = shown.join(events, events.c.seq == _E.seq).where(_E.scope_id == scope.id)
    rows = connection.execute(first.where(_E.seq.in_(chosen)).order_by(_E.seq).limit(limit)).all()
    states = _states(connection, scope.id, [row.leader_key for row in rows if row.leader_key is not None])
    return [_wait(row, _leader(row, states), scope.lookback) for row in rows if row.follows is not None]


def _states(connection: Connection, scope_id: int, keys: Sequence[bytes]) -> dict[bytes, str]:
    found = select(_E.key, _E.state).where(_E.scope_id == scope_id, _E.key.in_(keys))
    return {row.key: row.state for row in connection.execute(found)} if keys else {}


def _leader(row: Row[Any], states: dict[bytes, str]) -> LeaderIs:
    state = states.get(row.leader_key)
    if state == "dead":
        return "dead"
    if state in {"waiting", "blocked"}:
        return "waiting"
    return "missing" if row.state == "waiting" else "underway"


def _wait(row: Row[Any], leader: LeaderIs, lookback: int) -> Wait:
    lost_at = moment(row.came + lookback) if leader == "missing" else None
    known = {name: getattr(row, name) for name in ("seq", "id", "source", "subject", "follows")}
    return Wait(**known, leader=leader, since=moment(row.came), lost_at=lost_at)
