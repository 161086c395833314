"""A process's copy of a scope's ordering, which the database keeps as rows: brought up to date by doing again what others did.

The law: every change of what waits is one step in the journal, with the version that it made. A copy of version v does the steps after v,
in order, as they were done elsewhere: the ordering depends on nothing else. Where they are no longer kept, it is built again from the rows.
A transaction does a few steps and reads a few rows. What is more is done without the writers' lock, from a snapshot: the steps that others
do meanwhile are read along with its pages, before they are forgotten.
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
from headrace.store.ordering import statements as sql
from headrace.store.ordering.clock_reset import Moments

STEPS_KEPT: Final = 256
"""So many steps are kept for those that were not there; who missed more reads the rows."""
STEPS_IN_LOCK: Final = 16
"""So many steps a transaction does again. Each releases or offers about 1,000 events at most."""
ROWS_IN_LOCK: Final = 1_000
"""Up to so many waiting events, and as many lost leaders, a transaction reads to build a copy."""
PAGE_ROWS: Final = 2_000
"""Rows that a copy is built of between two looks at the journal."""
BUILDS: Final = 3
"""So often a copy is brought up to date without the lock; after that, in the transaction, so that the wait has an end."""


class JournalEntry(msgspec.Struct, array_like=True, frozen=True):
    """What was done: events offered, one withdrawn, the clock set back, more of a tree released, or none of these: leaders given up."""

    now: int
    offered: list[Offered] = []
    withdrawn: bytes | None = None
    received: dict[int, int] = {}
    turned_back: bool = False
    most: int | None = None
    limit: int | None = None
    released: bool = False
    ahead: int = 0


Reading = Callable[[], AbstractContextManager[Any]]
"""Gives what reads one moment of the database."""
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
    def current(cls, connection: Runs, scope: sql.ScopeRow, kept: Self | None, *, by_age: bool, whole: bool = False) -> Self | None:
        """Return the copy at the version of the scope's row, made of `kept` where that is possible.

        None: that is more than a transaction should do, and `kept` is as it was; with `whole`, it is done all the same.
        """
        if kept is not None and kept.version != scope.version:
            behind = scope.version - kept.version
            if not whole and STEPS_IN_LOCK < behind <= STEPS_KEPT:
                return None
            steps = sql.steps_since(connection, scope=scope.id, since=kept.version, most=STEPS_KEPT).all()
            if len(steps) == behind:
                kept.do(steps)
            else:
                kept = None
        if kept is None:
            order = _built_in_lock(connection, scope, by_age=by_age, whole=whole)
            if order is None:
                return None
            kept = cls(scope.version, order)
        # what passed through while nothing waited for it is no step
        kept.order.position, kept.order.head = scope.position, scope.head
        kept.order.lookback = scope.lookback
        return kept

    @classmethod
    def caught_up(cls, reading: Reading, scope_id: int, kept: Self | None, *, by_age: bool) -> Self | None:
        """Return a copy that was up to date a moment ago, made of `kept` where that is possible, without the writers' lock.

        None: others forgot steps before it read them.
        """
        if kept is not None and kept.follow(reading, scope_id):
            return kept
        later: list[Sequence[Any]] = []
        with reading() as snapshot:
            scope = sql.scope_row(snapshot, scope_id)

            def look() -> None:
                since = later[-1][0] if later else scope.version
                with reading() as connection:
                    later.extend(sql.steps_since(connection, scope=scope_id, since=since, most=STEPS_KEPT).all())

            rows = [_rows(snapshot, query, scope_id, look) for query in (sql.WAITING, sql.GIVEN_UP)]
            built = cls(scope.version, _built(snapshot, scope, *rows, by_age=by_age))
        return built if built.do(later) and built.follow(reading, scope_id) else None

    def do(self, steps: Iterable[Sequence[Any]]) -> bool:
        """Do steps of the journal again; False if there is a gap."""
        for version, step in steps:
            if version != self.version + 1:
                return False
            _again(self.order, _decode(step))
            self.version = version
        return True

    def follow(self, reading: Reading, scope_id: int) -> bool:
        """Do what the journal has after this version; False if it does not go so far back."""
        with reading() as connection:
            version = sql.scope_row(connection, scope_id).version
            steps = sql.steps_since(connection, scope=scope_id, since=self.version, most=STEPS_KEPT).all()
        return self.do(steps) and self.version == version

    def advance(self, connection: Runs, scope: int, step: JournalEntry) -> None:
        """Write down the step that was just done."""
        self.version += 1
        sql.add_step(connection, scope=scope, version=self.version, step=_encode(step))
        if self.version % STEPS_KEPT == 0 or not len(self.order):
            sql.forget_steps(connection, scope=scope, until=self.version - (STEPS_KEPT if len(self.order) else 0))


def _again(order: CausalOrder, step: JournalEntry) -> None:
    if step.turned_back:
        order.turn_back(step.now)
    elif step.withdrawn is not None:
        order.withdraw(step.withdrawn, step.now, step.limit)
    elif step.released:
        order.release(step.now, step.limit or 1)
    elif step.offered:
        order.offer(step.offered, step.now, step.received, step.limit, step.ahead)
    else:
        order.expire(step.now, step.most, step.limit)


def _rows(snapshot: Any, query: str, scope_id: int, after_page: Callable[[], None]) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = []
    for page in driver_rows(snapshot, text(query).bindparams(scope=scope_id), PAGE_ROWS):
        rows += page
        after_page()
    return rows


def _built_in_lock(connection: Runs, scope: sql.ScopeRow, *, by_age: bool, whole: bool) -> CausalOrder | None:
    most = _ENDLESS if whole else ROWS_IN_LOCK + 1
    waits = sql.waiting_some(connection, scope=scope.id, most=most).all()
    given_up = sql.given_up_some(connection, scope=scope.id, most=most).all()
    if max(len(waits), len(given_up)) == most:
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
        releasing = dict(sql.releases(connection, scope=scope.id).all())
        for key, number, members in sql.cycles(connection, scope=scope.id).all():
            breaking[key] = (number, struct.unpack(f"<{len(members) // 8}q", members))
        moments = Moments(connection, scope.id)
        waits, given_up = moments.events(waits), moments.given_up(rows)
    blob = OrderingSnapshot((scope.position, scope.head, scope.lost, scope.late, scope.cycles), waits, [])
    return CausalOrder.rebuilt(blob, scope.lookback, by_age=by_age, given_up=given_up, releasing=releasing, breaking=breaking)
