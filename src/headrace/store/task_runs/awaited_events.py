"""Read a page of the log, and select the events that a run may wait for.

A reading transaction compares the page with the waits that it sees. The writer's transaction compares only the waits that
began since: the numbers of waits rise, and a wait does not change.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, func, select

from headrace.store.ordering.log_feed import PAGE, Progress, fed, page_after
from headrace.store.ordering.payloads import PayloadBudget, stored_payloads
from headrace.store.ordering.transaction import EventFeed
from headrace.store.tables.task_runs import event_waits
from headrace.store.task_runs.earlier_events import trigger_names
from headrace.store.task_runs.wait_terms import Fired, Wait, WaitIndex, waits_for

MAX_WAIT_PARTS: Final = 10
"""Parts of at most `PAGE` waits with which a page is compared. If there are more waits, each event of the page is awaited."""

_newest = select(func.coalesce(func.max(event_waits.c.number), 0))


class AwaitedPage(NamedTuple):
    """A page of the log, and the seqs of the events that one of the waits up to the number `newest` may be for."""

    rows: Sequence[Any]
    progress: Progress
    fired: Fired
    newest: int
    awaited: Collection[int]

    def feed(self, connection: Connection) -> EventFeed:
        """Return the page in the form that the scope reads, in the transaction that advances the scope.

        So a run that began to wait before is included. An event that no run may wait for needs no handling.
        """
        later = waits_for(connection, self.rows, self.fired, PAGE, after=self.newest)
        waits = WaitIndex(later.waits, self.fired)
        return fed(self.rows, lambda row: row.seq not in self.awaited and later.last is None and not waits.have(row))


def read_awaited(connection: Connection, scope_id: int) -> AwaitedPage:
    """Return the next page of a scope. It is shorter if not all payloads that patterns test are within the budget."""
    rows = page_after(connection, scope_id)
    progress = Progress.of(rows)
    fired = trigger_names(connection, [row.seq for row in rows])
    newest = connection.execute(_newest).scalar_one()
    waits = _waits(connection, rows, fired)
    if waits is None:
        return AwaitedPage(rows, progress, fired, newest, {row.seq for row in rows})
    awaited, last = _awaited(connection, rows, WaitIndex(waits, fired))
    if rows and last < rows[-1].seq:
        rows = [row for row in rows if row.seq <= last]
        progress = Progress(moved=True, at_end=False)
    return AwaitedPage(rows, progress, fired, newest, awaited)


def _waits(connection: Connection, rows: Sequence[Any], fired: Fired) -> list[Wait] | None:
    """Return the waits that may be for an event of the page, or None if they are too many."""
    waits: list[Wait] = []
    after = 0
    for _ in range(MAX_WAIT_PARTS):
        part = waits_for(connection, rows, fired, PAGE, after=after)
        waits += part.waits
        if part.last is None:
            return waits
        after = part.last
    return None


def _awaited(connection: Connection, rows: Sequence[Any], waits: WaitIndex) -> tuple[set[int], int]:
    """Return the seqs of the events that one of the waits may be for, and the last seq that was compared."""
    budget, last = PayloadBudget(), 0
    awaited: set[int] = set()
    undecided: dict[int, Any] = {}
    for row in rows:
        if waits.have(row, ()):
            awaited.add(row.seq)
        elif waits.have(row):
            undecided[row.seq] = row
        last = row.seq
        if not budget.spend(0):
            break
    for seq, size, payload in stored_payloads(connection, list(undecided)):
        matched = waits.matched(payload)
        if matched is None or waits.have(undecided[seq], matched):
            awaited.add(seq)
        if not budget.spend(size) and seq != next(reversed(undecided)):
            return awaited, seq
    return awaited, last
