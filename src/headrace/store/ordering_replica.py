"""A process's copy of a scope's ordering, which the database keeps as rows: brought up to date by doing again what others did.

The law: every change of what waits is one step in the journal, with the version that it made. A copy of version v does the steps after v,
in order, as they were done elsewhere: the ordering depends on nothing else. Where they are no longer kept, it is built anew from the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import msgspec

from headrace.core.ordering import CausalOrder, Offered
from headrace.core.ordering_blob import OrderingBlob, Waiting
from headrace.store import ordering_statements as sql
from headrace.store.dialects import Runs

STEPS_KEPT: Final = 256
"""So many steps are kept for those that were not there; who missed more reads the rows."""


class Step(msgspec.Struct, array_like=True, frozen=True):
    """What was done: events offered, one withdrawn, the clock set back, more of a tree released, or none of these: leaders given up."""

    now: int
    offered: list[Offered] = []
    withdrawn: bytes | None = None
    received: dict[int, int] = {}
    turned_back: bool = False
    most: int | None = None
    limit: int | None = None
    released: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Step).decode


@dataclass(slots=True)
class Replica:
    """The ordering of one scope at one version."""

    version: int
    order: CausalOrder

    @classmethod
    def current(cls, connection: Runs, scope: sql.Scope, kept: Self | None, *, by_age: bool) -> Self:
        """Return the copy at the version of the scope's row, made of `kept` where that is possible."""
        if kept is None:
            kept = cls(scope.version, _built(connection, scope, by_age=by_age))
        elif kept.version != scope.version:
            steps = sql.steps_since(connection, scope=scope.id, since=kept.version).all()
            if len(steps) == scope.version - kept.version:
                for _, step in steps:
                    _again(kept.order, _decode(step))
                kept.version = scope.version
            else:
                kept = cls(scope.version, _built(connection, scope, by_age=by_age))
        # what passed through while nothing waited for it is no step
        kept.order.position, kept.order.head = scope.position, scope.head
        kept.order.lookback = scope.lookback
        return kept

    def advance(self, connection: Runs, scope: int, step: Step) -> None:
        """Write down the step that was just done."""
        self.version += 1
        sql.add_step(connection, scope=scope, version=self.version, step=_encode(step))
        if self.version % STEPS_KEPT == 0 or not len(self.order):
            sql.forget_steps(connection, scope=scope, until=self.version - (STEPS_KEPT if len(self.order) else 0))


def _again(order: CausalOrder, step: Step) -> None:
    if step.turned_back:
        order.turn_back(step.now)
    elif step.withdrawn is not None:
        order.withdraw(step.withdrawn, step.now, step.limit)
    elif step.released:
        order.release(step.now, step.limit or 1)
    elif step.offered:
        order.offer(step.offered, step.now, step.received, step.limit)
    else:
        order.expire(step.now, step.most, step.limit)


def _built(connection: Runs, scope: sql.Scope, *, by_age: bool) -> CausalOrder:
    waits = [
        Waiting(seq, key, leader, occurred, id, since, bool(late))
        for seq, key, leader, occurred, id, since, late in sql.waiting(connection, scope=scope.id).all()
    ]
    given_up: dict[bytes, int] = dict(sql.given_up(connection, scope=scope.id).all())
    blob = OrderingBlob((scope.position, scope.head, scope.lost, scope.late, scope.cycles), waits, [])
    releasing: dict[bytes, int] = dict(sql.releases(connection, scope=scope.id).all()) if scope.releasing else {}
    return CausalOrder.rebuilt(blob, scope.lookback, by_age=by_age, given_up=given_up, releasing=releasing)
