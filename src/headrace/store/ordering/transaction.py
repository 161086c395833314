"""Change a scope's waiting events in one transaction: write the core's offers, expiries and withdrawals as rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from headrace.core.ordering.causal_order import CausalOrder
from headrace.core.ordering.delivery import OfferBatch, OrderedEvent, ReleasedEvent, State, released_events
from headrace.store.dialects.statements import Runs, StatementResult, row_by_row
from headrace.store.ordering import clock_reset, releases
from headrace.store.ordering import statements as sql
from headrace.store.ordering.replica import JournalEntry, Replica
from headrace.store.ordering.steady_clock import ScopeClock
from headrace.store.ordering.wait_histogram import add_waits


class FedEvent(NamedTuple):
    """One event. `seq` is its place in the log.

    `passes` means that it needs no handling, and `known` that its leader has arrived.
    """

    event: OrderedEvent
    seq: int = 0
    passes: bool = False
    known: bool = False


@dataclass(frozen=True, slots=True)
class EventFeed:
    """Events to add to a scope. `head` is the seq of the log up to which they reach, or None outside a log."""

    events: Sequence[FedEvent]
    head: int | None = None

    @classmethod
    def of(cls, events: Iterable[OrderedEvent]) -> Self:
        """Return a feed of events that do not come from a log."""
        return cls([FedEvent(event) for event in events])


@dataclass(slots=True)
class OrderingTransaction:
    """The changes of one transaction to one scope.

    `now` is the wall time that decides what is due. It never decreases between transactions, unless the scope's clock
    is set back. `age` is the time of the scope's steady clock, which measures waiting times. If `steady` is None, it
    is the wall time. With `keeps_time`, the transaction stores both even if nothing else changes.
    """

    connection: Runs
    replica: Replica
    now: int
    age: int
    steady: ScopeClock | None
    scope: sql.ScopeRow
    logged: bool
    head: int
    limit: int
    waited: list[int] = field(default_factory=list)
    passed: int = 0
    steps: list[JournalEntry] = field(default_factory=list)
    left: dict[bytes, int] = field(default_factory=dict)
    cycles: frozenset[bytes] = frozenset()
    turned: bool = False
    read_keys: frozenset[bytes] = frozenset()
    read_states: Sequence[StatementResult] = ()
    keeps_time: bool = False

    @classmethod
    def begin(
        cls,
        connection: Runs,
        scope_id: int,
        cached: Replica | None,
        now: int,
        *,
        by_age: bool,
        logged: bool,
        steady: ScopeClock | None,
        limit: int,
        keys: Sequence[bytes] = (),
        whole: bool = False,
    ) -> Self | None:
        """Return a transaction with the current ordering.

        The states of `keys` are read together with the scope. The transaction releases about `limit` waiting events
        at most, and leaves the rest to `release`. Return None, without changes, if `cached` is too far behind (see
        `Replica.current`).
        """
        row_by_row(connection)
        read_states = sql.states_sent(connection, scope_id, keys, logged=logged)
        scope = sql.scope_row(connection, scope_id)
        replica = Replica.current(connection, scope, cached, by_age=by_age, whole=whole)
        if replica is None:
            return None
        held = dict(replica.order.releasing)
        latest = max(now, scope.clock)
        return cls(
            connection,
            replica,
            latest,
            latest if steady is None else steady(scope, now),
            steady,
            scope,
            logged,
            scope.head,
            limit,
            left=held,
            cycles=frozenset(replica.order.breaking),
            read_keys=frozenset(keys),
            read_states=read_states,
        )

    @property
    def order(self) -> CausalOrder:
        """The ordering."""
        return self.replica.order

    def offer(self, feed: EventFeed) -> None:
        """Add events. Ignore events of a log that the scope has already read."""
        events = [fed for fed in feed.events if not self.logged or fed.seq > self.head]
        offering = OfferBatch(self.order, self._known(events))
        taken: dict[int, FedEvent] = {}
        for fed in events:
            self.head = fed.seq if self.logged else self.head + 1
            if offering.add(self.head, fed.event, passes=fed.passes):
                taken[self.head] = fed
        if feed.head is not None:
            self.head = max(self.head, feed.head)
        if not taken:
            return
        late = [key for _, key, *_ in offering.offered if self.order.is_given_up(key)]
        lost = self.order.lost
        ahead = self.now - self.age
        released = offering.decide(self.age, self.limit, ahead)
        at = {event.seq: event for event in released}
        passed = set(offering.passed)
        sql.add_events(self.connection, [self._row(seq, fed, at.get(seq)) for seq, fed in taken.items() if fed.event.key not in passed])
        self._write_released(event for event in released if event.seq not in taken)
        self._count_passed(offering.passed)
        for keys in sql.slices(late):
            sql.delete_given_up(self.connection, scope=self.scope.id, keys=keys)
        self._give_up(lost)
        self.steps.append(JournalEntry(self.age, offering.offered, received=offering.received, limit=self.limit, ahead=ahead))

    def expire(self, max_roots: int) -> int:
        """Give up overdue leaders until `max_roots` events are released as lost. Return how many were."""
        due, first, before = self.order.next_expiry(), self.order.position + 1, self.order.lost
        if due is None or due > self.age:
            return 0
        released = released_events(self.order.expire(self.age, max_roots, self.limit), first)
        self._write_released(released)
        self._give_up(before)
        self.steps.append(JournalEntry(self.age, max_roots=max_roots, limit=self.limit))
        return self.order.lost - before

    def remove(self, key: bytes) -> None:
        """Record a waiting event as handled."""
        first = self.order.position + 1
        self._write_released(released_events(self.order.remove(key, self.age, self.limit), first))
        self.steps.append(JournalEntry(self.age, removed=key, limit=self.limit))

    def release(self, lease: int) -> None:
        """Continue the work of earlier transactions: set moments back after a clock reset, or release followers."""
        if self.go_back(lease) or releases.release_some(self.connection, self.scope.id, self.now, self.now + lease):
            return
        if not self.order.releasing and not self.order.breaking:
            return
        first = self.order.position + 1
        self._write_released(released_events(self.order.release(self.age, releases.RELEASED_EVENTS), first))
        self.steps.append(JournalEntry(self.age, limit=releases.RELEASED_EVENTS, released=True))

    def turn_back(self, now: int, lease: int) -> None:
        """Set the scope's clock back, because it is ahead of the wall clock."""
        self.now = now
        states: Sequence[str] = clock_reset.WALL
        if self.steady is None:
            self.age = now
            self.order.turn_back(now)
            self.steps.append(JournalEntry(now, turned_back=True))
            states = clock_reset.ALL
        clock_reset.begin(self.connection, self.scope.id, states, now, head=self.scope.head, lost=self.order.lost)
        self.go_back(lease)
        self.turned = True

    def go_back(self, lease: int) -> bool:
        """Set some moments back after a clock reset, unless this transaction began it. Return False if none are left."""
        if self.turned:
            return clock_reset.is_left(self.connection, self.scope.id)
        return clock_reset.go_on(self.connection, self.scope.id, lease)

    def end(self) -> None:
        """Store the changes."""
        self._write_releases()
        for step in self.steps:
            self.replica.advance(self.connection, self.scope.id, step)
        if self.steps or self.keeps_time or self.head != self.scope.head:
            order = self.order
            sql.end_turn(
                self.connection,
                scope=self.scope.id,
                version=self.replica.version,
                clock=self.now,
                age=self.age,
                head=self.head,
                position=order.position,
                lost=order.lost,
                late=order.late,
                cycles=order.cycles,
                waited=sum(self.waited),
                holds=add_waits(self.scope.holds, self.waited) if self.waited else self.scope.holds,
                passed=self.passed,
            )

    def _write_releases(self) -> None:
        """Store the work for later transactions: followers of released events, and members of cycles."""
        left, cycles = self.order.releasing, self.order.breaking
        if left == self.left and cycles.keys() == self.cycles:
            return
        scope = self.scope.id
        for state, keys in (("waiting", self.left.keys() - left.keys()), ("cycle", self.cycles - cycles.keys())):
            for some in sql.slices(keys):
                releases.end_releases(self.connection, scope=scope, state=state, keys=some)
        added: list[tuple[Any, ...]] = [
            (scope, key, "waiting", number, 0, "", None) for key, number in left.items() if key not in self.left
        ]
        for key in cycles.keys() - self.cycles:
            seqs = cycles[key].seqs
            added.append((scope, key, "cycle", cycles[key].number, 0, "", struct.pack(f"<{len(seqs)}q", *seqs)))
        releases.add_releases(self.connection, added)
        releases.set_releasing(self.connection, scope=scope)

    def _known(self, events: Sequence[FedEvent]) -> dict[bytes, State]:
        known: dict[bytes, State] = {}
        keys: list[bytes] = []
        for key in {key: None for fed in events for key in (fed.event.key, fed.event.leader_key) if key is not None}:
            if self.order.entry(key) is None:
                keys.append(key)
            else:  # the copy knows the waiting events
                known[key] = "waiting"
        known |= self._states(keys)
        mine = {fed.event.key for fed in events}
        for fed in events:  # the log records which leaders arrived: those without an entry here are handled
            if fed.known and fed.event.leader_key is not None and fed.event.leader_key not in mine:
                known.setdefault(fed.event.leader_key, "handled")
        return known

    def _states(self, keys: Sequence[bytes]) -> dict[bytes, State]:
        if not self.read_keys.issuperset(keys):
            return sql.states(self.connection, self.scope.id, keys, logged=self.logged)
        read_states, self.read_keys, self.read_states = self.read_states, frozenset(), ()  # a second step may find other states
        states: dict[bytes, State] = {row[0]: row[1] for answer in read_states for row in answer.all()}
        return {key: states[key] for key in keys if key in states}

    def _row(self, seq: int, fed: FedEvent, released: ReleasedEvent | None) -> tuple[Any, ...]:
        event = fed.event
        late, since = False, self.age
        state, due = "waiting", None
        if released is not None:
            self.waited.append(released.waited)
            state, due = ("blocked", None) if released.blocked else ("ready", self.now)
        else:
            entry = self.order.entry(fed.event.key)
            if entry is not None:
                late, since = entry.late, entry.since
        body = None if self.logged else event.body
        who = (event.source, event.id, event.follows, event.occurred, since, late)
        position_mark = (None, None) if released is None else (released.position, released.mark)
        return (self.scope.id, seq, fed.event.key, fed.event.leader_key, *who, state, *position_mark, due, 0, None, None, body)

    def _write_released(self, released: Iterable[ReleasedEvent]) -> None:
        rows = []
        for event in released:
            self.waited.append(event.waited)
            state, due = ("blocked", None) if event.blocked else ("ready", self.now)
            rows.append((state, due, event.position, event.mark, event.seq))
        sql.write_released(self.connection, self.scope.id, rows)
        if self.scope.releasing:
            for seqs in sql.slices(row[-1] for row in rows):
                releases.unblock_released(self.connection, scope=self.scope.id, seqs=seqs, now=self.now)

    def _count_passed(self, keys: Sequence[bytes]) -> None:
        self.passed += len(keys)
        releases.unblock_followers(self.connection, self.scope.id, keys, self.now, token="", lease=self.now)

    def _give_up(self, lost: int) -> None:
        """Store the leaders that the last step gave up or removed. Before it, `lost` were lost."""
        for keys in sql.slices(self.order.pruned):
            sql.delete_given_up(self.connection, scope=self.scope.id, keys=keys)
        rows = [(self.scope.id, key, at, number) for number, (key, at) in enumerate(self.order.gave.items(), lost + 1)]
        sql.add_given_up(self.connection, rows)
