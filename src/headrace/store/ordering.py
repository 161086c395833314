"""The SQL home of the ordering: the pure core decides, rows keep what it decided, and any number of processes share a scope.

The law: every change is one transaction of the one writer, so changes follow one another on both databases, and a claim is given once.
What waits is decided by a copy of the core's ordering, brought up to the scope's version within the transaction; a transaction that is
not kept leaves no copy behind. What is ready, blocked or claimed is told from the rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, Row, func, select
from typing_extensions import override

from headrace.core.handling import Caused, Claim, Counts, HandlingPolicy, State, Wait
from headrace.ports.ordering import OrderingHome
from headrace.store import ordering_statements as sql
from headrace.store.database import Database
from headrace.store.dialects import Plain, row_by_row
from headrace.store.ordering_replica import Replica
from headrace.store.ordering_tables import ordering_events, ordering_scopes
from headrace.store.ordering_turn import Feed, Turn

T = TypeVar("T")
_E: Final = ordering_events.c


class SqlOrdering(OrderingHome):
    """One scope in a database. With `by_age`, events that are older than the lookback when they come do not wait.

    With `logged`, the scope is fed from the log: that knows duplicates and keeps bodies, so nothing is kept of what was handled.
    """

    def __init__(
        self, database: Database, scope_id: int, *, policy: HandlingPolicy | None = None, by_age: bool = True, logged: bool = False
    ) -> None:
        self.policy = policy or HandlingPolicy()
        self.scope_id = scope_id
        self._database = database
        self._by_age = by_age
        self._logged = logged
        self._lock = Lock()
        self._replica: Replica | None = None

    @override
    def offer(self, events: Sequence[Caused], now: int) -> list[State]:
        self._turn(now, lambda turn: turn.offer(Feed.of(events)))
        return [state or "handled" for state in self.states([event.key for event in events])]

    def take(self, feed: Feed, now: int) -> None:
        """Take events without asking what becomes of them; those of a log with their seqs."""
        self._turn(now, lambda turn: turn.offer(feed))

    def take_from(self, page: Callable[[Connection], Feed], now: int) -> None:
        """Take the events that `page` gives within the transaction."""
        self._turn(now, lambda turn: turn.offer(page(turn.connection)))

    @override
    def expire(self, now: int) -> int:
        return self._turn(now, lambda turn: turn.expire())

    @override
    def claim(self, most: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        if only is not None:
            return self._database.write(lambda connection: self._claim(connection, sql.one, 1, now, key=only))
        if after is not None:
            return self._database.write(lambda connection: self._claim(connection, sql.after, most, now, keys=after))
        return self._database.write(lambda connection: self._claim(connection, sql.due, most, now))

    @override
    def settle(self, claims: Sequence[Claim], now: int) -> int:
        return self._database.write(lambda connection: self._settle(connection, claims, now)) if claims else 0

    @override
    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        becomes = "ready" if retry_at is not None else "dead" if self.policy.dead == "hold" else "skipped"

        def work(connection: Connection) -> bool:
            given = {"place": claim.seq, "token": claim.token, "becomes": becomes, "again": retry_at, "why": error}
            mine = bool(connection.execute(sql.put_off, {"scope": self.scope_id, **given}).rowcount)
            if mine and becomes == "skipped":
                self._unblock(connection, {claim.token: [claim.event.key]}, now)
            return mine

        return self._database.write(work)

    @override
    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        def work(connection: Connection) -> None:
            for token, mine in _by_token(claims).items():
                for seqs in sql.slices(claim.seq for claim in mine):
                    sql.give_back(connection, scope=self.scope_id, token=token, seqs=seqs, now=now)

        if claims:
            self._database.write(work)

    @override
    def redrive(self, keys: Sequence[bytes] | None, now: int) -> int:
        def work(connection: Connection) -> int:
            if keys is None:
                return sql.redrive(connection, scope=self.scope_id, now=now).rowcount
            return sum(sql.redrive_some(connection, scope=self.scope_id, now=now, keys=some).rowcount for some in sql.slices(keys))

        return self._database.write(work)

    @override
    def forget(self, key: bytes, now: int) -> bool:
        def change(turn: Turn) -> bool:
            found = select(ordering_events).where(_E.scope_id == self.scope_id, _E.key == key)
            row = turn.connection.execute(found).one_or_none()
            if row is None or (row.state in {"claimed", "blocked"} and row.claim is not None and (row.due is None or row.due > turn.now)):
                return False
            if row.state == "waiting":
                turn.withdraw(key)
            turn.connection.execute(sql.remove, {"scope": self.scope_id, "place": row.seq})
            self._finish(turn.connection, [(key, row.position)], turn.now)
            self._unblock(turn.connection, {"": [key]}, turn.now)
            return True

        return self._turn(now, change)

    @override
    def states(self, keys: Sequence[bytes]) -> list[State | None]:
        with self._database.reading() as connection:
            known = sql.states(connection, self.scope_id, keys)
        return [known.get(key) for key in keys]

    @override
    def followers(self, key: bytes) -> list[Caused]:
        which = (_E.scope_id == self.scope_id, _E.leader_key == key, _E.state.in_(["waiting", "blocked"]))
        with self._database.reading() as connection:
            return [_event(row) for row in connection.execute(select(ordering_events).where(*which).order_by(_E.occurred, _E.id))]

    @override
    def waits(self, limit: int) -> list[Wait]:
        which = (_E.scope_id == self.scope_id, _E.state.in_(["waiting", "blocked"]))
        with self._database.reading() as connection:
            rows = connection.execute(select(ordering_events).where(*which).order_by(_E.seq).limit(limit))
            return [Wait(_event(row), row.state, row.since) for row in rows]

    @override
    def counts(self) -> Counts:
        by_state = select(_E.state, func.count()).where(_E.scope_id == self.scope_id).group_by(_E.state)
        with self._database.reading() as connection:
            states = {row[0]: row[1] for row in connection.execute(by_state)}
            scope = connection.execute(sql.scope_row, {"scope": self.scope_id}).one()
        return Counts(
            **{state: states.get(state, 0) for state in ("waiting", "blocked", "ready", "claimed")},
            dead=states.get("dead", 0) + states.get("skipped", 0),
            released=scope.position,
            **{name: getattr(scope, name) for name in ("handled", "lost", "late", "cycles", "held")},
        )

    @override
    def next_due(self) -> int | None:
        first = select(func.min(_E.due)).where(_E.scope_id == self.scope_id)
        oldest = select(func.min(_E.since)).where(_E.scope_id == self.scope_id, _E.state == "waiting")
        with self._database.reading() as connection:
            due = connection.execute(first).scalar_one()
            since = connection.execute(oldest).scalar_one()
            lookback = connection.execute(sql.scope_row, {"scope": self.scope_id}).one().lookback
        return min((moment for moment in (due, None if since is None else since + lookback) if moment is not None), default=None)

    @override
    def close(self) -> None:
        """Keep everything: the database is its opener's to close."""

    def _turn(self, now: int, change: Callable[[Turn], T]) -> T:
        """Run `change` in a transaction with a copy of the ordering that is up to date there."""
        with self._lock:
            kept = [] if self._replica is None else [self._replica]
            self._replica = None

            def work(connection: Connection) -> tuple[T, Replica]:
                # a copy that has seen a transaction which was not kept is worth nothing
                before = kept.pop() if kept else None
                turn = Turn.begin(connection, self.scope_id, before, now, by_age=self._by_age, logged=self._logged)
                answer = change(turn)
                turn.end()
                return answer, turn.replica

            answer, self._replica = self._database.write(work)
            return answer

    def _claim(self, connection: Connection, statement: Plain, most: int, now: int, **given: Any) -> list[Claim]:
        token, lease = uuid4().hex, now + self.policy.lease
        row_by_row(connection)
        seqs = statement(connection, scope=self.scope_id, most=most, now=now, **given).scalars()
        claims: list[Claim] = []
        for some in sql.slices(seqs):
            claims += [_claimed(row, token) for row in sql.take(connection, scope=self.scope_id, seqs=some, token=token, lease=lease).all()]
        return sorted(claims, key=lambda claim: claim.position)

    def _settle(self, connection: Connection, claims: Sequence[Claim], now: int) -> int:
        row_by_row(connection)
        done: dict[str, list[tuple[bytes, int]]] = {}
        for token, mine in _by_token(claims).items():
            found = done[token] = []
            for seqs in sql.slices(claim.seq for claim in mine):
                found += [(row[0], row[1]) for row in sql.settle(connection, scope=self.scope_id, token=token, seqs=seqs).all()]
        rows = [row for found in done.values() for row in found]
        self._finish(connection, rows, now)
        self._unblock(connection, {token: [key for key, _ in found] for token, found in done.items()}, now)
        return len(rows)

    def _finish(self, connection: Connection, done: Sequence[tuple[bytes, int | None]], now: int) -> None:
        if not self._logged:
            sql.add_handled(connection, [(self.scope_id, key, position or 0, now) for key, position in done])
        if done:
            connection.execute(sql.write_scope.values(handled=ordering_scopes.c.handled + len(done)), {"scope": self.scope_id})

    def _unblock(self, connection: Connection, done: dict[str, list[bytes]], now: int) -> None:
        for token, keys in done.items():
            sql.unblock_followers(connection, self.scope_id, keys, now, token=token, lease=now + self.policy.lease)


def _by_token(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.token, []).append(claim)
    return found


def _event(row: Any) -> Caused:
    return Caused(row.source, row.id, row.follows, row.occurred, row.body, row.key, row.leader_key)


def _claimed(row: Row[*tuple[Any, ...]], token: str) -> Claim:
    seq, source, id, follows, occurred, body, key, leader_key, position, mark, attempts = row
    return Claim(seq, Caused(source, id, follows, occurred, body, key, leader_key), position, mark, attempts, token)
