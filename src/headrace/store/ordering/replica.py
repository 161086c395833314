"""Keep a process's copy of a scope's ordering up to date by replaying the journal of changes.

The database stores the ordering as rows. Invariant: every change of the waiting events is one step in the journal,
with the version that it created. A copy of version v replays the steps after v in order. The ordering depends on
nothing else. If those steps are already deleted, the copy is rebuilt from the rows. A transaction replays at
most STEPS_IN_LOCK steps and reads at most ROWS_IN_LOCK rows. Larger updates use a snapshot, without the writers'
lock. The steps of other processes are then read along with its pages, before they are deleted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Self

import msgspec
from sqlalchemy import text

from headrace.core.ordering.causal_order import CausalOrder, Offered
from headrace.core.ordering.snapshot import OrderingSnapshot, SnapshotEvent
from headrace.store.dialects.statements import Runs, driver_rows
from headrace.store.ordering import releases
from headrace.store.ordering import statements as sql
from headrace.store.ordering.clock_reset import Moments

MAX_JOURNAL_STEPS: Final = 256
"""Maximum steps that the journal stores for other processes. A copy that is further behind is rebuilt from the rows."""
STEPS_IN_LOCK: Final = 16
"""Maximum steps that one transaction replays. Each releases or offers at most about 1,000 events."""
ROWS_IN_LOCK: Final = 1_000
"""Maximum waiting events, and maximum lost leaders, that one transaction reads to build a copy."""
PAGE_ROWS: Final = 2_000
"""Rows that a build reads between two reads of the journal."""
BUILDS: Final = 3
"""Maximum updates of a copy without the lock. The next one runs in the transaction, so that the wait is bounded."""


class JournalEntry(msgspec.Struct, array_like=True, frozen=True):
    """One change: events offered, one removed, the clock set back, or more followers released.

    If none of these is set, leaders were given up.
    """

    now: int
    offered: list[Offered] = []
    removed: bytes | None = None
    received: dict[int, int] = {}
    turned_back: bool = False
    max_roots: int | None = None
    limit: int | None = None
    released: bool = False
    ahead: int = 0


Reading = Callable[[], AbstractContextManager[Any]]
"""A function that opens a connection to one snapshot of the database."""
_ENDLESS: Final = 2**62
_SEQ: Final = itemgetter(0)
_NUMBER_AND_KEY: Final = itemgetter(0, 1)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JournalEntry).decode


@dataclass(slots=True)
class Replica:
    """The ordering of one scope at one version."""

    version: int
    order: CausalOrder

    @classmethod
    def current(cls, connection: Runs, scope: sql.ScopeRow, cached: Self | None, *, by_age: bool, whole: bool = False) -> Self | None:
        """Return a copy at the version of the scope's row, made from `cached` if possible.

        Return None if that exceeds the work of one transaction. `cached` is then unchanged. With `whole`, never return
        None.
        """
        if cached is not None and cached.version != scope.version:
            behind = scope.version - cached.version
            if not whole and STEPS_IN_LOCK < behind <= MAX_JOURNAL_STEPS:
                return None
            steps = sql.steps_since(connection, scope=scope.id, since=cached.version, limit=MAX_JOURNAL_STEPS).all()
            if len(steps) == behind:
                cached.do(steps)
            else:
                cached = None
        if cached is None:
            order = _built_in_lock(connection, scope, by_age=by_age, whole=whole)
            if order is None:
                return None
            cached = cls(scope.version, order)
        # events that passed while nothing waited for them have no step in the journal
        cached.order.position, cached.order.head = scope.position, scope.head
        cached.order.lookback = scope.lookback
        return cached

    @classmethod
    def caught_up(cls, reading: Reading, scope_id: int, cached: Self | None, *, by_age: bool) -> Self | None:
        """Return a recent copy, made from `cached` if possible, without the writers' lock.

        Return None if other processes deleted steps before they were read.
        """
        if cached is not None and cached.follow(reading, scope_id):
            return cached
        later: list[Sequence[Any]] = []
        with reading() as snapshot:
            scope = sql.scope_row(snapshot, scope_id)

            def look() -> None:
                since = later[-1][0] if later else scope.version
                with reading() as connection:
                    later.extend(sql.steps_since(connection, scope=scope_id, since=since, limit=MAX_JOURNAL_STEPS).all())

            rows = [_rows(snapshot, query, scope_id, look) for query in (sql.WAITING, sql.GIVEN_UP)]
            built = cls(scope.version, _built(snapshot, scope, *rows, by_age=by_age))
        return built if built.do(later) and built.follow(reading, scope_id) else None

    def do(self, steps: Iterable[Sequence[Any]]) -> bool:
        """Replay steps of the journal. Return False if a version is missing."""
        for version, step in steps:
            if version != self.version + 1:
                return False
            _replay(self.order, _decode(step))
            self.version = version
        return True

    def follow(self, reading: Reading, scope_id: int) -> bool:
        """Replay the journal after this version. Return False if it does not reach back that far."""
        with reading() as connection:
            version = sql.scope_row(connection, scope_id).version
            steps = sql.steps_since(connection, scope=scope_id, since=self.version, limit=MAX_JOURNAL_STEPS).all()
        return self.do(steps) and self.version == version

    def advance(self, connection: Runs, scope: int, step: JournalEntry) -> None:
        """Append the last step to the journal."""
        self.version += 1
        sql.add_step(connection, scope=scope, version=self.version, step=_encode(step))
        if self.version % MAX_JOURNAL_STEPS == 0 or not len(self.order):
            sql.delete_steps(connection, scope=scope, until=self.version - (MAX_JOURNAL_STEPS if len(self.order) else 0))


def _replay(order: CausalOrder, step: JournalEntry) -> None:
    if step.turned_back:
        order.turn_back(step.now)
    elif step.removed is not None:
        order.remove(step.removed, step.now, step.limit)
    elif step.released:
        order.release(step.now, step.limit or 1)
    elif step.offered:
        order.offer(step.offered, step.now, step.received, step.limit, step.ahead)
    else:
        order.expire(step.now, step.max_roots, step.limit)


def _rows(snapshot: Any, query: str, scope_id: int, after_page: Callable[[], None]) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = []
    for page in driver_rows(snapshot, text(query).bindparams(scope=scope_id), PAGE_ROWS):
        rows += page
        after_page()
    return rows


def _built_in_lock(connection: Runs, scope: sql.ScopeRow, *, by_age: bool, whole: bool) -> CausalOrder | None:
    limit = _ENDLESS if whole else ROWS_IN_LOCK + 1
    waits = sql.waiting_some(connection, scope=scope.id, limit=limit).all()
    given_up = sql.given_up_some(connection, scope=scope.id, limit=limit).all()
    if max(len(waits), len(given_up)) == limit:
        return None
    return _built(connection, scope, waits, given_up, by_age=by_age)


def _built(
    connection: Runs, scope: sql.ScopeRow, waiting: Iterable[Sequence[Any]], lost: Iterable[Sequence[Any]], *, by_age: bool
) -> CausalOrder:
    waits = [
        SnapshotEvent(seq, key, leader, occurred, id, since, bool(late))
        for seq, key, leader, occurred, id, since, late in sorted(waiting, key=_SEQ)
    ]
    rows = [(number, key, at) for number, key, at in sorted(lost, key=_NUMBER_AND_KEY)]
    releasing: dict[bytes, int] = {}
    breaking: dict[bytes, tuple[int, Sequence[int]]] = {}
    given_up: Mapping[bytes, int] = {key: at for _, key, at in rows}
    if scope.releasing:
        releasing = dict(releases.waiting_releases(connection, scope=scope.id).all())
        for key, number, members in releases.cycles(connection, scope=scope.id).all():
            breaking[key] = (number, struct.unpack(f"<{len(members) // 8}q", members))
        moments = Moments(connection, scope.id)
        waits, given_up = moments.events(waits), moments.given_up(rows)
    blob = OrderingSnapshot((scope.position, scope.head, scope.lost, scope.late, scope.cycles), waits, [])
    return CausalOrder.rebuilt(blob, scope.lookback, by_age=by_age, given_up=given_up, releasing=releasing, breaking=breaking)
