"""Store the ordering in SQL. The pure core decides and rows store its decisions.

Any number of processes share a scope.

Invariants:
- Every change is one transaction of the one writer. Changes are therefore serialized on both databases, and each
  event is claimed once.
- A copy of the core's ordering decides about waiting events. It is brought to the scope's version within the
  transaction. A rolled-back transaction discards its copy.
- The rows alone determine which events are ready, blocked or claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Final, Protocol, TypeVar
from uuid import uuid4

from typing_extensions import override

from headrace.core.ordering.delivery import Claim, DeliveryPolicy, OrderedEvent, ScopeCounters, State, WaitingEvent
from headrace.ports.ordering_store import EXPIRED_EVENTS, OrderingStore
from headrace.store.dialects.statements import DriverStatement, Runs, row_by_row
from headrace.store.ordering import clock_reset, releases
from headrace.store.ordering import statements as sql
from headrace.store.ordering.replica import BUILDS, Replica
from headrace.store.ordering.steady_clock import ScopeClock
from headrace.store.ordering.transaction import EventFeed, OrderingTransaction

T = TypeVar("T")
AHEAD_MICROS: Final = 5_000_000
"""Maximum µs that a scope's clock may be ahead. Beyond that, a wrong clock has advanced it, and it is set back."""


class Store(Protocol):
    """The methods of a database that `SqlOrdering` calls."""

    def reading(self) -> AbstractContextManager[Any]:
        """Yield a connection to one snapshot of the database."""
        ...

    def write(self, work: Callable[[Any], T]) -> T:
        """Run `work` in the writer's transaction and wait until it is durable."""
        ...


class SqlOrdering(OrderingStore):
    """One scope in a database.

    With `by_age`, events that are older than the lookback on arrival do not wait. With `logged`, the event log feeds
    the scope. The log detects duplicates and stores bodies, so the scope stores nothing about handled events. The
    clock `steady` measures waiting times. Without it, the wall clock does, passed as `now` in each call.
    """

    def __init__(
        self,
        database: Store,
        scope_id: int,
        *,
        policy: DeliveryPolicy | None = None,
        by_age: bool = True,
        logged: bool = False,
        steady: ScopeClock | None = None,
    ) -> None:
        self.policy = policy or DeliveryPolicy()
        self.scope_id = scope_id
        self._database = database
        self._by_age = by_age
        self._logged = logged
        self._steady = steady
        self._lock = Lock()
        self._replica: Replica | None = None

    @override
    def offer(self, events: Sequence[OrderedEvent], now: int) -> list[State]:
        self._turn(now, lambda turn: turn.offer(EventFeed.of(events)))
        return [state or "handled" for state in self.states([event.key for event in events])]

    def take(self, feed: EventFeed, now: int) -> None:
        """Add events without reading their new states. Events of a log come with their seqs."""
        self._turn(now, lambda turn: turn.offer(feed))

    def take_from(self, page: Callable[[Any], EventFeed], now: int) -> None:
        """Add the events that `page` returns within the transaction."""
        self._turn(now, lambda turn: turn.offer(page(turn.connection)))

    @override
    def expire(self, now: int) -> int:
        lost = some = self.expire_some(now)
        while some >= EXPIRED_EVENTS:
            some = self.expire_some(now)
            lost += some
        return lost

    @override
    def expire_some(self, now: int) -> int:
        return self._turn(now, lambda turn: turn.expire(EXPIRED_EVENTS))

    @override
    def claim(self, limit: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        return self._claimed(lambda connection: self._claim_some(connection, limit, now, after, only), now)

    def _claim_some(self, connection: Any, limit: int, now: int, after: Sequence[bytes] | None, only: bytes | None) -> list[Claim] | None:
        """Claim events as `claim` does. Return None if the scope's clock must be set back first."""
        moment = self._moment(connection, now)
        if moment is None:
            return None
        if only is not None:
            return self._claim(connection, sql.one, 1, moment, key=only)
        if after is not None:
            return self._claim(connection, sql.after, limit, moment, keys=after)
        return self._claim(connection, sql.due, limit, moment)

    def _claimed(self, work: Callable[[Any], list[Claim] | None], now: int) -> list[Claim]:
        """Return the claims of `work`. While it finds none, release events that earlier transactions left."""
        while not (claims := self._database.write(work)):
            if claims is None:  # first set the scope's clock back, and the moments that it stored
                if self._turn(now, lambda turn: turn.go_back(self.policy.lease)) and not self._goes_on():
                    return []
            elif not self._goes_on() or not self.release_some(now):
                return []
        return claims

    def _goes_on(self) -> bool:
        """Return whether the next call is a separate transaction."""
        return True

    @override
    def release_some(self, now: int) -> bool:
        with self._database.reading() as connection:
            scope = sql.scope_row(connection, self.scope_id)
        if scope.releasing:
            self._turn(now, lambda turn: turn.release(self.policy.lease))
        return bool(scope.releasing)

    @override
    def settle(self, claims: Sequence[Claim], now: int) -> int:
        return self._database.write(lambda connection: self.settle_within(connection, claims, now)) if claims else 0

    @override
    def renew(self, claims: Sequence[Claim], now: int) -> list[Claim]:
        return self._database.write(lambda connection: self.renew_within(connection, claims, now)) if claims else []

    def renew_within(self, connection: Runs, claims: Sequence[Claim], now: int) -> list[Claim]:
        """Renew the claims within the caller's transaction. Return the claims that are still held."""
        mine: set[int] = set()
        for token, some in _by_token(claims).items():
            for seqs in sql.slices(claim.seq for claim in some):
                parameters = {"scope": self.scope_id, "token": token, "lease": now + self.policy.lease}
                mine.update(sql.renew(connection, seqs=seqs, **parameters).scalars())
        return [claim for claim in claims if claim.seq in mine]

    @override
    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        return self._database.write(lambda connection: self._fail(connection, claim, now, error, retry_at))

    @override
    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        def work(connection: Runs) -> None:
            for token, mine in _by_token(claims).items():
                for seqs in sql.slices(claim.seq for claim in mine):
                    sql.give_back(connection, scope=self.scope_id, token=token, seqs=seqs, now=now)

        if claims:
            self._database.write(work)

    @override
    def redrive(self, keys: Sequence[bytes] | None, now: int) -> int:
        if keys is None:
            with self._database.reading() as connection:
                keys = list(sql.dead_keys(connection, scope=self.scope_id).scalars())
        return sum(self._redrive_some(some, now) for some in sql.slices(keys, releases.RELEASED_EVENTS))

    def _redrive_some(self, keys: Sequence[bytes], now: int) -> int:
        """Redrive some dead events in a separate transaction, because other writers wait for the lock meanwhile."""
        return self._database.write(lambda connection: sql.redrive(connection, scope=self.scope_id, now=now, keys=keys).rowcount)

    @override
    def mark_handled(self, key: bytes, now: int) -> bool:
        def change(turn: OrderingTransaction) -> bool:
            rows = sql.event_by_key(turn.connection, scope=self.scope_id, key=key).all()
            if not rows:
                return False
            seq, _, state, position, claim, due = rows[0]
            if state in {"claimed", "blocked"} and claim is not None and (due is None or due > turn.now):
                return False
            if state == "waiting":
                turn.remove(key)
            sql.remove(turn.connection, scope=self.scope_id, seq=seq)
            self._finish(turn.connection, [(key, position)], turn.now)
            self._unblock(turn.connection, {"": [key]}, turn.now)
            return True

        return self._turn(now, change)

    @override
    def states(self, keys: Sequence[bytes]) -> list[State | None]:
        with self._database.reading() as connection:
            known = sql.states(connection, self.scope_id, keys)
        return [known.get(key) for key in keys]

    @override
    def followers(self, key: bytes) -> list[OrderedEvent]:
        with self._database.reading() as connection:
            return [OrderedEvent(*row) for row in sql.followers(connection, scope=self.scope_id, key=key).all()]

    @override
    def ready(self, limit: int, now: int) -> list[tuple[OrderedEvent, str | None]]:
        with self._database.reading() as connection:
            rows = sql.ready(connection, scope=self.scope_id, limit=limit, now=now).all()
        return [(OrderedEvent(*row[:7]), row[7]) for row in rows]

    @override
    def waits(self, limit: int) -> list[WaitingEvent]:
        with self._database.reading() as connection:
            rows = sql.waits(connection, scope=self.scope_id, limit=limit).all()
            scope = sql.scope_row(connection, self.scope_id)
        ahead = 0 if self._steady is None else scope.clock - scope.age
        return [WaitingEvent(OrderedEvent(*row[:7]), row[7], row[8] + ahead) for row in rows]

    @override
    def counts(self) -> ScopeCounters:
        with self._database.reading() as connection:
            states = {row[0]: row[1] for row in sql.by_state(connection, scope=self.scope_id).all()}
            scope = sql.scope_row(connection, self.scope_id)
        return ScopeCounters(
            **{state: states.get(state, 0) for state in ("waiting", "blocked", "ready", "claimed")},
            dead=states.get("dead", 0) + states.get("skipped", 0),
            released=scope.position,
            **{name: getattr(scope, name) for name in ("handled", "lost", "late", "cycles", "held")},
        )

    @override
    def next_due(self, now: int | None = None) -> int | None:
        with self._database.reading() as connection:
            ((*columns, due, since),) = sql.next_due(connection, scope=self.scope_id).all()
        scope = sql.ScopeRow(*columns)
        moment = scope.clock if now is None else now
        if scope.releasing:
            return min(scope.clock, moment)
        if scope.clock > moment + AHEAD_MICROS and (due is not None or since is not None):
            return moment  # the caller sets the scope's clock back
        age = moment if self._steady is None else self._steady(scope, moment)
        expiry = None if since is None else moment + since + scope.lookback - age
        return min((each for each in (due, expiry) if each is not None), default=None)

    @override
    def close(self) -> None:
        """Do nothing: the opener of the database closes it."""

    def _turn(self, now: int, change: Callable[[OrderingTransaction], T], keys: Sequence[bytes] = ()) -> T:
        """Run `change` in a transaction with an up-to-date copy of the ordering.

        The states of `keys` are read together with the scope.
        """
        with self._lock:
            copies = [] if self._replica is None else [self._replica]
            self._replica = None
            builds = 0

            def work(connection: Runs) -> tuple[T, Replica] | None:
                # a copy is useless after its transaction is rolled back
                copy = copies.pop() if copies else None
                changed = self._change(connection, copy, now, change, keys, whole=builds == BUILDS)
                if changed is None and copy is not None:
                    copies.append(copy)
                return changed

            while (changed := self._database.write(work)) is None:
                builds += 1
                copies = self._caught_up(copies.pop() if copies else None)
            answer, self._replica = changed
            return answer

    def _caught_up(self, cached: Replica | None) -> list[Replica]:
        """Return an updated copy, made without the writers' lock, or nothing if other processes wrote too fast."""
        copy = Replica.caught_up(self._database.reading, self.scope_id, cached, by_age=self._by_age)
        return [] if copy is None else [copy]

    def _change(
        self,
        connection: Runs,
        cached: Replica | None,
        now: int,
        change: Callable[[OrderingTransaction], T],
        keys: Sequence[bytes],
        *,
        whole: bool,
    ) -> tuple[T, Replica] | None:
        """Run `change` with the copy `cached`. Return None if the copy is too far behind, unless `whole` is set."""
        options: dict[str, Any] = {
            "by_age": self._by_age,
            "logged": self._logged,
            "steady": self._steady,
            "limit": releases.RELEASED_EVENTS,
        }
        turn = OrderingTransaction.begin(connection, self.scope_id, cached, now, keys=keys, whole=whole, **options)
        if turn is None:
            return None
        if turn.scope.clock > now + AHEAD_MICROS:
            turn.turn_back(now, self.policy.lease)
        turn.keeps_time = abs(now - turn.scope.clock) > AHEAD_MICROS
        answer = change(turn)
        turn.end()
        return answer, turn.replica

    def _moment(self, connection: Runs, now: int) -> int | None:
        """Return the scope's time, and store it. Return None if its clock must be, or is being, set back."""
        scope = sql.scope_row(connection, self.scope_id)
        if scope.clock > now + AHEAD_MICROS or (scope.releasing and clock_reset.is_left(connection, self.scope_id)):
            return None
        if now > scope.clock + AHEAD_MICROS:
            sql.set_clock(connection, scope=self.scope_id, now=now, age=now if self._steady is None else self._steady(scope, now))
        return max(now, scope.clock)

    def _age(self, connection: Runs, now: int) -> int:
        """Return the time that measures waiting times and retention (µs)."""
        if self._steady is None:
            return now
        counted = self._steady.counted()
        return self._steady(sql.scope_row(connection, self.scope_id), now) if counted is None else counted

    def _claim(self, connection: Runs, statement: DriverStatement, limit: int, now: int, **parameters: Any) -> list[Claim]:
        token, lease = uuid4().hex, now + self.policy.lease
        row_by_row(connection)
        seqs = statement(connection, scope=self.scope_id, limit=limit, now=now, **parameters).scalars()
        claims: list[Claim] = []
        for some in sql.slices(seqs):
            claims += [claimed(row, token) for row in sql.take(connection, scope=self.scope_id, seqs=some, token=token, lease=lease).all()]
        return sorted(claims, key=lambda claim: claim.position)

    def _fail(self, connection: Runs, claim: Claim, now: int, error: str, retry_at: int | None, *, alone: int = 0) -> bool:
        """Retry a claim or mark it dead.

        The token proves ownership of the claim or, if `alone` is set, the lock does. Return False if the claim is
        lost.
        """
        becomes = self._becomes(retry_at)
        parameters = {"seq": claim.seq, "token": claim.token, "alone": alone, "becomes": becomes, "again": retry_at, "why": error}
        mine = bool(sql.put_off(connection, scope=self.scope_id, **parameters).all())
        if mine and becomes == "skipped":
            self._unblock(connection, {claim.token: [claim.event.key]}, now)
        return mine

    def _becomes(self, retry_at: int | None) -> State:
        return "ready" if retry_at is not None else "dead" if self.policy.dead == "hold" else "skipped"

    def settle_within(self, connection: Runs, claims: Sequence[Claim], now: int) -> int:
        """Settle the claims within the caller's transaction. Return how many were still held."""
        row_by_row(connection)
        done: dict[str, list[tuple[bytes, int]]] = {}
        for token, mine in _by_token(claims).items():
            settled = done[token] = []
            for seqs in sql.slices(claim.seq for claim in mine):
                settled += [(row[0], row[1]) for row in sql.settle(connection, scope=self.scope_id, token=token, seqs=seqs).all()]
        rows = [row for settled in done.values() for row in settled]
        self._finish(connection, rows, now)
        self._unblock(connection, {token: [key for key, _ in settled] for token, settled in done.items()}, now)
        return len(rows)

    def _finish(self, connection: Runs, done: Sequence[tuple[bytes, int | None]], now: int) -> None:
        if not self._logged:
            age = self._age(connection, now)
            sql.add_handled(connection, [(self.scope_id, key, position or 0, age) for key, position in done])
        if done:
            sql.count_handled(connection, scope=self.scope_id, count=len(done))

    def _unblock(self, connection: Runs, done: dict[str, list[bytes]], now: int) -> None:
        for token, keys in done.items():
            releases.unblock_followers(connection, self.scope_id, keys, now, token=token, lease=now + self.policy.lease)


def _by_token(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    by_token: dict[str, list[Claim]] = {}
    for claim in claims:
        by_token.setdefault(claim.token, []).append(claim)
    return by_token


def claimed(row: Sequence[Any], token: str) -> Claim:
    """Return the claim of a row that a claiming statement returned."""
    seq, source, id, follows, occurred, body, key, leader_key, position, mark, attempts = row
    return Claim(seq, OrderedEvent(source, id, follows, occurred, body, key, leader_key), position, mark, attempts, token)
