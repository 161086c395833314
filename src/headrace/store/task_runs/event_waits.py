"""Events of the log that task runs wait for, in causal order.

A separate scope reads the log while any run waits.

Invariant: a run receives each event at most once, and each after the one that it follows. Events count from the
creation of the run, so that an answer quicker than the run's `defer` is not missed. The log is searched for
such an answer among the events that the scope has already handled. An event with many waiting runs stays
claimed until the last of them has received it, because other writers commit between two of its transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from secrets import randbits
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import Connection, exists, insert, select, update

from headrace.core import task_run
from headrace.core.matching.payloads import Payload
from headrace.core.ordering.delivery import Claim, DeliveryPolicy
from headrace.core.task_run import TaskRunState
from headrace.store.db.ages import AgeClock
from headrace.store.db.commit_signal import CommitSignal
from headrace.store.db.database import Database
from headrace.store.db.slices import Slice
from headrace.store.ordering.log_feed import LOOKBACK, Progress, expire
from headrace.store.ordering.payloads import PayloadBudget
from headrace.store.ordering.scopes import delete_scope_rows, fits_one_slice, give_up_scope, scope_named
from headrace.store.ordering.sql_store import SqlOrdering
from headrace.store.ordering.steady_clock import DatabaseAge
from headrace.store.tables.log import events
from headrace.store.tables.ordering import ordering_events, ordering_scopes
from headrace.store.tables.task_runs import event_waits, run_events
from headrace.store.task_runs.awaited_events import read_awaited
from headrace.store.task_runs.earlier_events import SCOPE, Looked, earlier_event, trigger_names
from headrace.store.task_runs.passing_over import is_behind, pass_over
from headrace.store.task_runs.rows import TaskRunRow, read, save
from headrace.store.task_runs.sweep import BATCH_STEPS
from headrace.store.task_runs.wait_terms import Candidates, Fired, Wait, WaitIndex, add_wait, waits_for
from headrace.wire.cloud_event import cloud_event
from headrace.wire.task_runs import AwaitedEvent

MAX_CLAIMS: Final = 500
MAX_EXAMINED_RUNS: Final = 500
"""Maximum number of runs that one transaction examines for an event."""
_LEASE: Final = 30_000_000


class Turn(NamedTuple):
    """The result of one turn of the scope: whether it read anything, and the events to hand over."""

    read: bool
    claims: list[Claim]


class EventWaits:
    """Hand events over to the task runs of one database.

    `commit_signal` is theirs: a transaction signals it when a run begins to wait or may resume.
    """

    def __init__(self, database: Database, commit_signal: CommitSignal, ages: AgeClock) -> None:
        self._database = database
        self._steady = DatabaseAge(ages)
        self._commit_signal = commit_signal
        self._ordering: SqlOrdering | None = None

    def take(self) -> Turn | None:
        """Read on in the log and claim the events that are ready. Return None if no run waits."""
        ordering = self._read_scope()
        if ordering is None:
            return None
        progress = self._read_on(ordering)
        now = self._database.now()
        due = ordering.next_due(now)
        if due is None or due > now:
            return Turn(progress.moved, [])
        expire(ordering, progress, now)
        return Turn(progress.moved, ordering.claim(MAX_CLAIMS, now))

    def deliver(self, claims: Sequence[Claim], proceed: Callable[[], bool] = lambda: True) -> int:
        """Resume the runs that wait for these events, in the order of the claims, and settle the claims.

        Return the number of resumed runs.
        Each transaction resumes a few runs. If `proceed` returns false between two of them, the remaining
        claims are released.
        """
        ordering, left, count = self._ordering, _Left(claims), 0
        if ordering is None:
            return 0
        while left.claims:
            if not proceed():
                ordering.give_back(left.claims, self._database.now())
                break
            more, left = self._database.write(partial(self._deliver_some, ordering=ordering, left=left))
            count += more
        return count

    def _deliver_some(self, connection: Connection, ordering: SqlOrdering, left: _Left) -> tuple[int, _Left]:
        """Resume a few runs. Return their number and the remaining claims.

        Invariant: the transaction that finds no more runs for an event settles it. So a run that begins to wait
        is found here, or finds the event handled.
        """
        mine = _still_claimed(connection, ordering.scope_id, left.claims)
        if not mine:
            return 0, _Left([])
        after = left.after if mine[0] == left.claims[0] else 0
        delivery = _Delivery.begin(connection, mine, after)
        done, after = delivery.fire(self._database, after)
        if delivery.count:
            self._commit_signal.signal(connection)
        now = self._database.now()
        ordering.settle_within(connection, mine[:done], now)
        ordering.renew_within(connection, mine[done:], now)
        return delivery.count, _Left(mine[done:], after)

    def _read_on(self, ordering: SqlOrdering) -> Progress:
        """Advance the scope in the log. An event that no run waits for is handled as soon as its leader is."""
        with self._database.reading() as connection:
            if not is_behind(connection, ordering.scope_id):  # an empty transaction would wake the other API servers
                return Progress.of([])
        moved = self._database.write(lambda connection: pass_over(connection, ordering.scope_id, self._database.now()))
        with self._database.reading() as connection:
            page = read_awaited(connection, ordering.scope_id)
        if not page.rows:
            return Progress(moved, at_end=True)
        ordering.take_from(page.feed, self._database.now())
        return page.progress

    def _read_scope(self) -> SqlOrdering | None:
        """Return the scope, or None if no run waits."""
        waits = select(exists(select(event_waits.c.run_id)))
        with self._database.reading() as connection:
            if not connection.execute(waits).scalar_one():
                return None
            scope_id = connection.execute(select(ordering_scopes.c.id).where(ordering_scopes.c.name == SCOPE)).scalar_one()
        if self._ordering is None or self._ordering.scope_id != scope_id:
            policy = DeliveryPolicy(lease=_LEASE)
            self._ordering = SqlOrdering(self._database, scope_id, policy=policy, by_age=False, logged=True, steady=self._steady)
        return self._ordering


class _Left(NamedTuple):
    """Claims with events to hand over. `after` is the last wait examined for the first of them."""

    claims: Sequence[Claim]
    after: int = 0


@dataclass(slots=True)
class _Delivery:
    """One transaction that hands events over to runs. `claims` are the claims that it examines."""

    connection: Connection
    claims: Sequence[Claim]
    rows: Mapping[int, Any]
    fired: Fired
    candidates: Candidates
    count: int = 0

    @classmethod
    def begin(cls, connection: Connection, claims: Sequence[Claim], after: int) -> Self:
        """Select claims to examine: the first alone if many runs may wait for it, or if an earlier transaction began it."""
        some = claims[:1] if after else claims[:BATCH_STEPS]
        query = select(events).where(events.c.seq.in_([claim.seq for claim in some]))
        rows = {row.seq: row for row in connection.execute(query)}
        fired = trigger_names(connection, rows)
        candidates = waits_for(connection, rows.values(), fired, MAX_EXAMINED_RUNS, after=after)
        if candidates.last is not None and len(some) > 1:
            some = some[:1]
            candidates = waits_for(connection, [rows[some[0].seq]], fired, MAX_EXAMINED_RUNS)
        return cls(connection, some, rows, fired, candidates)

    def fire(self, database: Database, after: int) -> tuple[int, int]:
        """Resume runs.

        Return the number of claims with all runs resumed, and the last wait examined for the next claim.
        """
        waits, had, taken = WaitIndex(self.candidates.waits, self.fired), _had(self.connection, self.rows), Slice(BATCH_STEPS)
        budget, spent = PayloadBudget(), False
        for done, claim in enumerate(self.claims):
            if spent:
                return done, after
            row = self.rows[claim.seq]
            event = cloud_event(row, claim.mark)
            payload = Payload(row.payload)
            matched = waits.matched(payload)
            for wait in waits.find(row, matched, had):
                pattern = wait.payload_pattern if matched is None else None  # it is too long for all patterns at once
                if pattern is not None:
                    if spent:
                        return done, after
                    spent = not budget.spend(len(event))
                    if not pattern.matches(payload):
                        after = wait.number
                        continue
                held = read(self.connection, [wait.run_id]).get(wait.run_id)
                if not taken.take(wait, len(event) + (0 if held is None else len(held.run.wait.kwargs.encode()))):
                    return done, after
                waits.remove(wait)
                after = wait.number
                if held is not None and held.run.state == "deferred":
                    save(self.connection, held, _fired(self.connection, held.run_id, held.run, row, event), database.now())
                    self.count += 1
            if self.candidates.last is not None:
                return done, self.candidates.last
            after = 0
            spent = waits.has_patterns and not budget.spend(len(event))
        return len(self.claims), 0


def await_event(
    connection: Connection, held: TaskRunRow, after: TaskRunState, awaited: AwaitedEvent, looked: Looked | None = None
) -> TaskRunState:
    """Make a run, whose state is `after`, wait for an event, and return its state.

    The run resumes immediately if the event has already arrived. `looked` is the result of the search in the
    log so far.
    """
    _begin(connection, held.head)
    event = earlier_event(connection, Wait(held.run_id, held.project, awaited, held.head), looked or Looked(held.head, []))
    if event is not None:
        return _fired(connection, held.run_id, after, event, cloud_event(event, None))
    add_wait(connection, held.run_id, held.project, awaited, held.head)
    return after


def _begin(connection: Connection, head: int) -> None:
    """Create the scope. If it did not read on while no run waited, it starts at the position where the run begins."""
    scope = scope_named(connection, SCOPE, LOOKBACK, head=head)
    no_run_waits = ~exists(select(event_waits.c.run_id))
    behind = update(ordering_scopes).where(ordering_scopes.c.id == scope, ordering_scopes.c.head < head, no_run_waits)
    if not connection.execute(behind.values(head=head, version=randbits(40))).rowcount:
        return
    if fits_one_slice(connection, scope):
        delete_scope_rows(connection, scope)
    else:  # retention deletes these in slices
        give_up_scope(connection, scope)
        scope_named(connection, SCOPE, LOOKBACK, head=head)


def _fired(connection: Connection, run_id: str, run: TaskRunState, row: Any, event: bytes) -> TaskRunState:
    connection.execute(insert(run_events).values(run_id=run_id, seq=row.seq))
    return task_run.fire(run, row.type, event.decode())


def _had(connection: Connection, seqs: Iterable[int]) -> set[tuple[str, int]]:
    """Return which runs have received which of these events."""
    query = select(run_events.c.run_id, run_events.c.seq).where(run_events.c.seq.in_(list(seqs)))
    return {(row.run_id, row.seq) for row in connection.execute(query)}


def _still_claimed(connection: Connection, scope: int, claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims that no other process has held since.

    Otherwise an event handed over there would be out of order here.
    """
    query = select(ordering_events.c.seq, ordering_events.c.claim).where(ordering_events.c.scope_id == scope)
    held = {row.seq: row.claim for row in connection.execute(query.where(ordering_events.c.seq.in_([claim.seq for claim in claims])))}
    return [claim for claim in claims if held.get(claim.seq) == claim.token]
