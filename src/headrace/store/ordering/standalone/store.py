"""Store one scope in a database that holds only ordering stores.

Invariant: an event is in progress while its process holds its lock. A new event that need not wait has no row while it
is in progress. Its completion is recorded afterwards, and its followers are claimed in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeVar
from uuid import uuid4

from typing_extensions import override

from headrace.core.ordering.delivery import Claim, DeliveryPolicy, OrderedEvent, State, waits_for
from headrace.ports.ordering_store import RETENTION_MICROS, Followers
from headrace.store.db.writer import Unprepared
from headrace.store.dialects.driver import DriverConnection
from headrace.store.dialects.statements import DriverStatement, Runs
from headrace.store.ordering import releases
from headrace.store.ordering import statements as sql
from headrace.store.ordering.replica import BUILDS, Replica
from headrace.store.ordering.scopes import scope_named
from headrace.store.ordering.sql_store import SqlOrdering, claimed
from headrace.store.ordering.standalone.database import StandaloneDatabase
from headrace.store.ordering.steady_clock import OwnClock
from headrace.store.ordering.transaction import EventFeed, FedEvent, OrderingTransaction

T = TypeVar("T")
MAX_PRUNED_ROWS: Final = 1_000
"""Maximum handled events that one call deletes. A call follows whenever half as many were handled."""
PRUNE_INTERVAL_MICROS: Final = 60_000_000
"""Maximum µs between two deletions of old handled events, whatever their number."""


class StandaloneOrderingStore(SqlOrdering):
    """A scope in a database that holds only ordering stores. Its tables are created on first use.

    Close it after use. Handled events are deleted after `retention` (µs).
    """

    def __init__(
        self,
        url: str,
        scope: str,
        lookback: int,
        *,
        policy: DeliveryPolicy | None = None,
        by_age: bool = True,
        retention: int = RETENTION_MICROS,
        ticks: Callable[[], int] | None = None,
    ) -> None:
        """Open the scope.

        The steady clock `ticks` (µs) measures waiting times and retention. Without it, `now` of each call does.

        Raises:
            SettingsError: The URL is invalid or not supported.
            ResourceError: The database cannot be opened or written.
        """
        self._own = StandaloneDatabase(url, lambda connection: scope_named(connection, scope, lookback))
        super().__init__(self._own, self._own.prepared, policy=policy, by_age=by_age, steady=None if ticks is None else OwnClock(ticks))
        self._own.when_undone(self._undone)
        self._locks = self._own.locks()
        self._salt = scope.encode()
        self._retention = max(retention, lookback)
        self._handled_since_prune = 0
        self._pruned_at = 0
        self._builds = 0  # updates of the copy for the current transaction

    @property
    def clock(self) -> Callable[[], int]:
        """The clock that all processes of this database use, in µs since the epoch."""
        return self._own.now

    def submit(self, method: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a method of this store as one work of the writer, with one hop to its thread and back."""
        return self._own.submit(lambda _: method(*arguments))

    @override
    def close(self) -> None:
        self._own.write(lambda _: self._locks.close())
        self._own.close()

    @override
    def expire_some(self, now: int) -> int:
        self._own.write(lambda connection: self._prune_handled(connection, now))
        return super().expire_some(now)

    @override
    def claim(self, limit: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        def work(connection: DriverConnection) -> list[Claim] | None:
            claims = self._claim_some(connection, limit, now, after, only)
            return claims and self._without_theirs(connection, claims)

        return self._claimed(work, now)

    @override
    def enter(self, event: OrderedEvent, now: int) -> Claim | State:
        return self._own.write(lambda connection: self._enter(connection, event, now))

    @override
    def finish(self, claim: Claim, now: int, limit: int) -> Followers | None:
        return self._own.write(lambda connection: self._finish_one(connection, claim, now, limit))

    @override
    def take_ready(self, limit: int, now: int) -> list[Claim]:
        def work(connection: DriverConnection) -> list[Claim] | None:
            moment = self._moment(connection, now)
            return None if moment is None else self._take(connection, sql.take_due, limit, moment)[0]

        return self._claimed(work, now)

    @override
    def _goes_on(self) -> bool:
        return not self._own.inside

    @override
    def release_some(self, now: int) -> bool:
        def work(connection: DriverConnection) -> bool:
            connection.peek()  # usually there is nothing to release, and this check takes no lock
            if releasing := bool(sql.scope_row(connection, self.scope_id).releasing):
                self._turn(now, lambda turn: turn.release(self.policy.lease))
            return releasing

        return self._own.write(work)

    @override
    def take_followers(self, key: bytes, limit: int, now: int) -> Followers:
        def work(connection: DriverConnection) -> Followers:
            followers = Followers(*self._take(connection, sql.take_followers, limit, now, key=key))
            return self._with_released(connection, followers, key, limit, now)

        return self._own.write(work)

    @override
    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        return self._own.write(lambda connection: self._fail_own(connection, claim, now, error, retry_at))

    @override
    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        def work(_: DriverConnection) -> None:
            new = [claim for claim in claims if not claim.seq]
            if new:
                self._turn(now, lambda turn: turn.offer(EventFeed([FedEvent(claim.event, known=True) for claim in new])))
            super(StandaloneOrderingStore, self).give_back([claim for claim in claims if claim.seq], now)
            self._locks.release(map(self._number, (claim.event.key for claim in claims)))

        if claims:
            self._own.write(work)

    @override
    def drop(self, claim: Claim) -> None:
        self._own.write(lambda _: self._locks.release([self._number(claim.event.key)]))

    @override
    def _turn(self, now: int, change: Callable[[OrderingTransaction], T], keys: Sequence[bytes] = ()) -> T:
        def work(connection: DriverConnection) -> T:
            replica, self._replica = self._replica, None
            changed = self._change(connection, replica, now, change, keys, whole=self._builds == BUILDS)
            if changed is None:
                raise Unprepared(partial(self._prepare, replica))
            self._builds = 0
            answer, self._replica = changed
            return answer

        return self._own.write(work)  # all works run in the writer's thread, so no lock is needed

    def _prepare(self, cached: Replica | None) -> None:
        """Update the copy outside of a transaction."""
        self._builds += 1
        self._replica = next(iter(self._caught_up(cached)), None)

    @override
    def _finish(self, connection: Runs, done: Sequence[tuple[bytes, int | None]], now: int) -> None:
        super()._finish(connection, done, now)
        self._prune_handled(connection, now, len(done))

    def _undone(self) -> None:
        """Discard the copy that a rolled-back transaction changed, and release the locks of that transaction."""
        self._replica = None
        self._locks.undo()

    def _number(self, key: bytes) -> int:
        return int.from_bytes(blake2b(key, key=self._salt[:64], digest_size=8).digest(), "big", signed=True)

    def _enter(self, connection: DriverConnection, event: OrderedEvent, now: int) -> Claim | State:
        number = self._number(event.key)
        denied = self._locks.ask([number])
        connection.peek()
        looked = sql.look(connection, scope=self.scope_id, key=event.key, leader=event.leader_key or b"")
        if denied():
            return "claimed"
        outcome = self._begun(looked.all()[0], event, now)
        if not isinstance(outcome, Claim):
            self._locks.release([number])
        return outcome

    def _begun(self, looked: Any, event: OrderedEvent, now: int) -> Claim | State:
        """Return a claim of the event, whose lock this process holds, or the state that prevents it."""
        state, handled, leader_state, leader_handled = looked
        if handled:
            return "handled"
        if state is None and (event.leader_key is None or leader_handled or leader_state == "skipped"):
            if self._locks.holds(self._number(event.key)):
                return Claim(0, event, 0, None, 1, "")
        elif state not in {None, "ready", "claimed"}:
            return state or "handled"
        if state is None:
            self._turn(now, lambda turn: turn.offer(EventFeed.of([event])), _keys_of(event))
            if self._replica is not None and self._replica.order.entry(event.key) is not None:
                return "waiting"
        claims = super().claim(1, now, only=event.key)
        return claims[0] if claims else self.states([event.key])[0] or "handled"

    def _finish_one(self, connection: DriverConnection, claim: Claim, now: int, limit: int) -> Followers | None:
        number = self._number(claim.event.key)
        alone = self._locks.holds(number)
        self._locks.release([number])
        key = claim.event.key
        if not claim.seq and sql.pass_through(connection, self.scope_id, key, self._age(connection, now)):
            self._prune_handled(connection, now, 1)
            return Followers([])
        row = self._written(connection, claim)
        if not row.seq:
            return self._settle_without_row(connection, claim.event, now, limit)
        settled = sql.settle_one(connection, self.scope_id, row.seq, self._age(connection, now), token=claim.token, alone=alone)
        claims, more = self._take(connection, sql.take_followers, limit, now, key=key)
        releasing = settled()
        if releasing is None:
            super().give_back(claims, now)
            self._locks.release(self._number(follower.event.key) for follower in claims)
            return None
        self._prune_handled(connection, now, 1)
        if more:
            self._unblock(connection, {"": [key]}, now)
        followers = Followers(claims, more)
        return self._with_released(connection, followers, key, limit, now) if releasing else followers

    def _with_released(self, connection: DriverConnection, followers: Followers, key: bytes, limit: int, now: int) -> Followers:
        """Add followers that are released only now.

        If no more followers are ready, release a slice of the rest and claim some of them. Otherwise return `followers`.
        """
        if followers.more or not releases.is_releasing(connection, self.scope_id, key):
            return followers
        self._turn(now, lambda turn: turn.release(self.policy.lease))
        claims, more = self._take(connection, sql.take_followers, limit - len(followers.claims), now, key=key)
        return Followers(followers.claims + claims, more or releases.is_releasing(connection, self.scope_id, key))

    def _written(self, connection: DriverConnection, claim: Claim) -> Claim:
        """Return the claim with the seq of its row, if a row was inserted meanwhile."""
        if claim.seq:
            return claim
        rows = sql.event_by_key(connection, scope=self.scope_id, key=claim.event.key).all()
        return claim._replace(seq=rows[0][0]) if rows else claim

    def _settle_without_row(self, connection: DriverConnection, event: OrderedEvent, now: int, limit: int) -> Followers | None:
        """Record an event without a row as handled, and release its followers.

        Return None if another process stored or handled the event meanwhile.
        """
        if self.states([event.key])[0] is not None:
            return None

        def change(turn: OrderingTransaction) -> tuple[int, bool]:
            position = turn.order.position + 1
            turn.offer(EventFeed([FedEvent(event, passes=True, known=True)]))
            return position, event.key in turn.order.releasing

        position, releasing = self._turn(now, change, _keys_of(event))
        sql.add_handled(connection, [(self.scope_id, event.key, position, self._age(connection, now))])
        claims, more = self._take(connection, sql.take_followers, limit, now, key=event.key)
        if more:
            self._unblock(connection, {"": [event.key]}, now)
        return Followers(claims, more or releasing)

    def _take(
        self, connection: DriverConnection, statement: DriverStatement, limit: int, now: int, **parameters: Any
    ) -> tuple[list[Claim], bool]:
        """Claim events and acquire their locks. Return the claims, and whether there may be more.

        An event in progress in another process stays there, with a new lease.
        """
        if limit < 1:
            return [], True
        token = uuid4().hex
        rows = statement(
            connection, scope=self.scope_id, limit=limit, now=now, token=token, lease=now + self.policy.lease, **parameters
        ).all()
        claims = {self._number(row[6]): claimed(row, token) for row in rows}
        theirs = [claims.pop(number).seq for number in self._locks.take(claims)] if claims else []
        if theirs:
            sql.take_back(connection, scope=self.scope_id, seqs=theirs)
        return sorted(claims.values(), key=lambda claim: claim.position), len(rows) >= limit

    def _without_theirs(self, connection: DriverConnection, claims: list[Claim]) -> list[Claim]:
        """Return the claims without events that other processes still handle, and without events that wait for those."""
        if not claims:
            return claims
        numbers = {self._number(claim.event.key): claim for claim in claims}
        denied = self._locks.take(numbers)
        self._locks.release(number for number in numbers if number not in denied)
        held = {numbers[number].event.key for number in denied}
        for claim in claims:
            if denied and waits_for(claim, held):
                held.add(claim.event.key)
        if held:
            theirs = [claim.seq for claim in claims if claim.event.key in held]
            sql.take_back(connection, scope=self.scope_id, seqs=theirs)
        return [claim for claim in claims if claim.event.key not in held]

    def _fail_own(self, connection: DriverConnection, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        number = self._number(claim.event.key)
        alone = self._locks.holds(number)
        self._locks.release([number])
        row = self._written(connection, claim)
        if row.seq:
            return self._fail(connection, row, now, error, retry_at, alone=int(alone))
        if self.states([claim.event.key])[0] is not None:
            return False
        self._turn(now, lambda turn: turn.offer(EventFeed([FedEvent(claim.event, known=True)])))
        parameters = {"becomes": self._becomes(retry_at), "again": retry_at, "why": error, "key": claim.event.key}
        sql.put_off_new(connection, scope=self.scope_id, **parameters)
        return True

    def _prune_handled(self, connection: Runs, now: int, handled: int = 0) -> None:
        """Delete some old handled events if it is time, after `handled` more were handled."""
        self._handled_since_prune += handled
        age = self._age(connection, now)
        if self._handled_since_prune * 2 < MAX_PRUNED_ROWS and age - self._pruned_at < PRUNE_INTERVAL_MICROS:
            return
        self._handled_since_prune, self._pruned_at = 0, age
        sql.delete_handled(connection, scope=self.scope_id, before=age - self._retention, limit=MAX_PRUNED_ROWS)


def _keys_of(event: OrderedEvent) -> list[bytes]:
    """Return the keys of an event and of its leader."""
    return [event.key] if event.leader_key is None else [event.key, event.leader_key]
