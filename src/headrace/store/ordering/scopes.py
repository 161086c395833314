"""Store scopes of the ordering: in the API server's database, or in a separate database of the user.

Invariant of a separate database: an event is in progress while its process holds its lock. A new event that need not
wait has no row while it is in progress. Its completion is recorded afterwards, and its followers are claimed in the
same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from secrets import randbits
from typing import Any, Final, TypeVar
from uuid import uuid4

from sqlalchemy import Connection, Table, delete, func, insert, literal_column, select, update
from typing_extensions import override

from headrace.core.ordering.handling import Claim, DeliveryPolicy, OrderedEvent, State, waits_for
from headrace.ports.ordering_store import RETENTION_MICROS, Followers
from headrace.store.db.slices import Slice, size_of
from headrace.store.db.writer import Unprepared
from headrace.store.dialects.driver import DriverConnection
from headrace.store.dialects.statements import DriverStatement, Runs, in_list, row_by_row
from headrace.store.ordering import statements as sql
from headrace.store.ordering.database import StandaloneDatabase
from headrace.store.ordering.replica import BUILDS, Replica
from headrace.store.ordering.sql_store import SqlOrdering, claimed
from headrace.store.ordering.steady_clock import OwnClock
from headrace.store.ordering.transaction import EventFeed, FedEvent, OrderingTransaction
from headrace.store.tables.ordering import ORDERING_TABLES, ordering_scopes

WEBHOOK_PREFIX: Final = "webhook:"
"""The prefix of the names of webhooks' scopes."""

T = TypeVar("T")
ABANDONED: Final = "abandoned:"
"""The prefix of the names of scopes whose rows are still to be deleted."""
ROWS_AT_ONCE: Final = 250
"""Maximum rows of abandoned scopes that one transaction deletes: each is in five indexes, at random places of three."""
FORGOTTEN_ROWS: Final = 1_000
"""Maximum handled events that one call deletes. A call follows whenever half as many were handled."""
FORGET_MICROS: Final = 60_000_000
"""Maximum µs between two deletions of old handled events, whatever their number."""

_ZEROES = ("clock", "head", "position", "lost", "late", "cycles", "handled", "held")


def scope_named(connection: Connection, name: str, lookback: int, *, head: int = 0) -> int:
    """Return the id of a scope, inserting it if it does not exist.

    A new scope has read the log up to `head`. The last given `lookback` (µs) applies.
    """
    scope_id: int | None = connection.execute(select(ordering_scopes.c.id).where(ordering_scopes.c.name == name)).scalar_one_or_none()
    if scope_id is None:
        # random, not 0: a copy of a previous scope with the same id must not match
        values = dict.fromkeys(_ZEROES, 0) | {"version": randbits(40), "name": name, "lookback": lookback, "head": head}
        return int(connection.execute(insert(ordering_scopes).values(**values).returning(ordering_scopes.c.id)).scalar_one())
    connection.execute(update(ordering_scopes).where(ordering_scopes.c.id == scope_id).values(lookback=lookback))
    return scope_id


def has_few_rows(connection: Connection, scope_id: int) -> bool:
    """Return whether one transaction may delete all rows of a scope."""
    row_by_row(connection)
    row_count = 0
    for table in ORDERING_TABLES:
        if table is not ordering_scopes:
            rows = select(literal_column("1")).where(table.c.scope_id == scope_id).limit(ROWS_AT_ONCE + 1).subquery()
            row_count += int(connection.execute(select(func.count()).select_from(rows)).scalar_one())
    return row_count <= ROWS_AT_ONCE


def forget_rows(connection: Connection, scope_id: int) -> None:
    """Delete all rows of a scope, except the scope itself."""
    for table in ORDERING_TABLES:
        if table is not ordering_scopes:
            connection.execute(delete(table).where(table.c.scope_id == scope_id))


def give_up_scope(connection: Connection, scope_id: int) -> None:
    """Abandon a scope: its name becomes free, and `abandoned_scopes` deletes its rows."""
    connection.execute(update(ordering_scopes).where(ordering_scopes.c.id == scope_id).values(name=f"{ABANDONED}{scope_id}"))


def abandoned_scopes(connection: Connection, before: int, most: int) -> int:
    """Delete one slice of the rows of abandoned scopes, and the scopes without rows. Return how many were deleted.

    A slice has at most `most` rows, and at most ROWS_AT_ONCE.
    """
    del before  # abandoned scopes are unused, so their age does not matter
    row_by_row(connection)
    given_up = select(ordering_scopes.c.id).where(ordering_scopes.c.name.startswith(ABANDONED, autoescape=True)).limit(1)
    deleted, empty = Slice(min(most, ROWS_AT_ONCE)), 0
    while not deleted.full and (scope_id := connection.execute(given_up).scalar_one_or_none()) is not None:
        for table in ORDERING_TABLES:
            if "scope_id" in table.c:
                _delete_some(connection, table, scope_id, deleted)
        if not deleted.full:
            empty += connection.execute(delete(ordering_scopes).where(ordering_scopes.c.id == scope_id)).rowcount
    return len(deleted.rows) + empty


def _delete_some(connection: Connection, table: Table, scope_id: int, deleted: Slice) -> None:
    """Delete rows of a scope while the slice has room."""
    column = next(each for each in table.primary_key.columns if each is not table.c.scope_id)
    mine = table.c.scope_id == scope_id
    size = size_of(*(table.c[name] for name in ("body", "error", "step", "members") if name in table.c))
    some = [row[0] for row in deleted.add(connection, select(column, size).where(mine))]
    if some:
        connection.execute(delete(table).where(mine, in_list(column, "some")), {"some": some})


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
        self._since_forgotten = 0
        self._forgot_at = 0
        self._builds = 0  # updates of the copy for the current transaction

    @property
    def clock(self) -> Callable[[], int]:
        """The clock that all processes of this database use, in µs since the epoch."""
        return self._own.now

    def submit(self, method: Callable[..., T], *given: Any) -> Future[T]:
        """Run a method of this store as one work of the writer, with one hop to its thread and back."""
        return self._own.submit(lambda _: method(*given))

    @override
    def close(self) -> None:
        self._own.write(lambda _: self._locks.close())
        self._own.close()

    @override
    def expire_some(self, now: int) -> int:
        self._own.write(lambda connection: self._forget_old(connection, now))
        return super().expire_some(now)

    @override
    def claim(self, most: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        def work(connection: DriverConnection) -> list[Claim] | None:
            claims = self._claim_some(connection, most, now, after, only)
            return claims and self._without_theirs(connection, claims)

        return self._claimed(work, now)

    @override
    def enter(self, event: OrderedEvent, now: int) -> Claim | State:
        return self._own.write(lambda connection: self._enter(connection, event, now))

    @override
    def finish(self, claim: Claim, now: int, most: int) -> Followers | None:
        return self._own.write(lambda connection: self._finish_one(connection, claim, now, most))

    @override
    def take_ready(self, most: int, now: int) -> list[Claim]:
        def work(connection: DriverConnection) -> list[Claim] | None:
            moment = self._moment(connection, now)
            return None if moment is None else self._take(connection, sql.take_due, most, moment)[0]

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
    def take_followers(self, key: bytes, most: int, now: int) -> Followers:
        def work(connection: DriverConnection) -> Followers:
            followers = Followers(*self._take(connection, sql.take_followers, most, now, key=key))
            return self._with_released(connection, followers, key, most, now)

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

    def _prepare(self, kept: Replica | None) -> None:
        """Update the copy outside of a transaction."""
        self._builds += 1
        self._replica = next(iter(self._caught_up(kept)), None)

    @override
    def _finish(self, connection: Runs, done: Sequence[tuple[bytes, int | None]], now: int) -> None:
        super()._finish(connection, done, now)
        self._forget_old(connection, now, len(done))

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

    def _finish_one(self, connection: DriverConnection, claim: Claim, now: int, most: int) -> Followers | None:
        number = self._number(claim.event.key)
        alone = self._locks.holds(number)
        self._locks.release([number])
        key = claim.event.key
        if not claim.seq and sql.pass_through(connection, self.scope_id, key, self._age(connection, now)):
            self._forget_old(connection, now, 1)
            return Followers([])
        row = self._written(connection, claim)
        if not row.seq:
            return self._pass_on(connection, claim.event, now, most)
        settled = sql.settle_one(connection, self.scope_id, row.seq, self._age(connection, now), token=claim.token, alone=alone)
        claims, more = self._take(connection, sql.take_followers, most, now, key=key)
        releasing = settled()
        if releasing is None:
            super().give_back(claims, now)
            self._locks.release(self._number(follower.event.key) for follower in claims)
            return None
        self._forget_old(connection, now, 1)
        if more:
            self._unblock(connection, {"": [key]}, now)
        followers = Followers(claims, more)
        return self._with_released(connection, followers, key, most, now) if releasing else followers

    def _with_released(self, connection: DriverConnection, found: Followers, key: bytes, most: int, now: int) -> Followers:
        """Add followers that are released only now.

        If no more followers are ready, release a slice of the rest and claim some of them. Otherwise return `found`.
        """
        if found.more or not sql.is_releasing(connection, self.scope_id, key):
            return found
        self._turn(now, lambda turn: turn.release(self.policy.lease))
        claims, more = self._take(connection, sql.take_followers, most - len(found.claims), now, key=key)
        return Followers(found.claims + claims, more or sql.is_releasing(connection, self.scope_id, key))

    def _written(self, connection: DriverConnection, claim: Claim) -> Claim:
        """Return the claim with the seq of its row, if a row was inserted meanwhile."""
        if claim.seq:
            return claim
        rows = sql.event_by_key(connection, scope=self.scope_id, key=claim.event.key).all()
        return claim._replace(seq=rows[0][0]) if rows else claim

    def _pass_on(self, connection: DriverConnection, event: OrderedEvent, now: int, most: int) -> Followers | None:
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
        claims, more = self._take(connection, sql.take_followers, most, now, key=event.key)
        if more:
            self._unblock(connection, {"": [event.key]}, now)
        return Followers(claims, more or releasing)

    def _take(
        self, connection: DriverConnection, statement: DriverStatement, most: int, now: int, **given: Any
    ) -> tuple[list[Claim], bool]:
        """Claim events and acquire their locks. Return the claims, and whether there may be more.

        An event in progress in another process stays there, with a new lease.
        """
        if most < 1:
            return [], True
        token = uuid4().hex
        rows = statement(connection, scope=self.scope_id, most=most, now=now, token=token, lease=now + self.policy.lease, **given).all()
        claims = {self._number(row[6]): claimed(row, token) for row in rows}
        theirs = [claims.pop(number).seq for number in self._locks.take(claims)] if claims else []
        if theirs:
            sql.take_back(connection, scope=self.scope_id, seqs=theirs)
        return sorted(claims.values(), key=lambda claim: claim.position), len(rows) >= most

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

    def _forget_old(self, connection: Runs, now: int, handled: int = 0) -> None:
        """Delete some old handled events if it is time, after `handled` more were handled."""
        self._since_forgotten += handled
        age = self._age(connection, now)
        if self._since_forgotten * 2 < FORGOTTEN_ROWS and age - self._forgot_at < FORGET_MICROS:
            return
        self._since_forgotten, self._forgot_at = 0, age
        sql.forget_handled(connection, scope=self.scope_id, before=age - self._retention, most=FORGOTTEN_ROWS)


def _keys_of(event: OrderedEvent) -> list[bytes]:
    """Return the keys of an event and of its leader."""
    return [event.key] if event.leader_key is None else [event.key, event.leader_key]
