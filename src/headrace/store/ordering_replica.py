"""A process's copy of a scope's ordering, which the database keeps as rows: brought up to date by doing again what others did.

The law: every change of what waits is one step in the journal, with the version that it made. A copy of version v does the steps after v,
in order, as they were done elsewhere: the ordering depends on nothing else. Where they are no longer kept, it is built anew from the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
from sqlalchemy import Connection, Row

from headrace.core.ordering import CausalOrder, Offered
from headrace.core.ordering_blob import OrderingBlob, Waiting
from headrace.store import ordering_statements as sql

STEPS_KEPT: Final = 256
"""So many steps are kept for those that were not there; who missed more reads the rows."""


class Step(msgspec.Struct, array_like=True, frozen=True):
    """What was done: events offered, one withdrawn, or neither: leaders given up."""

    now: int
    offered: list[Offered] = []
    withdrawn: bytes | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Step).decode


@dataclass(slots=True)
class Replica:
    """The ordering of one scope at one version."""

    version: int
    order: CausalOrder

    @classmethod
    def current(cls, connection: Connection, scope: Row[Any], kept: Self | None, *, by_age: bool) -> Self:
        """Return the copy at the version of the scope's row, made of `kept` where that is possible."""
        if kept is not None and kept.version == scope.version:
            return kept
        steps = [] if kept is None else connection.execute(sql.steps_since, {"scope": scope.id, "since": kept.version}).all()
        if kept is None or len(steps) != scope.version - kept.version:
            return cls(scope.version, _built(connection, scope, by_age=by_age))
        for row in steps:
            _again(kept.order, _decode(row.step))
        kept.version = scope.version
        return kept

    def advance(self, connection: Connection, scope: int, step: Step) -> None:
        """Write down the step that was just done."""
        self.version += 1
        connection.execute(sql.add_step, {"scope_id": scope, "version": self.version, "step": _encode(step)})
        if self.version % STEPS_KEPT == 0 or not len(self.order):
            connection.execute(sql.forget_steps, {"scope": scope, "until": self.version - (STEPS_KEPT if len(self.order) else 0)})


def _again(order: CausalOrder, step: Step) -> None:
    if step.withdrawn is not None:
        order.withdraw(step.withdrawn, step.now)
    elif step.offered:
        order.offer(step.offered, step.now)
    else:
        order.expire(step.now)


def _built(connection: Connection, scope: Row[Any], *, by_age: bool) -> CausalOrder:
    waits = [Waiting(*row) for row in connection.execute(sql.waiting, {"scope": scope.id})]
    given_up = list(connection.execute(sql.given_up, {"scope": scope.id}).scalars())
    blob = OrderingBlob((scope.position, scope.head, scope.lost, scope.late, scope.cycles), waits, given_up)
    return CausalOrder.rebuilt(blob, scope.lookback, by_age=by_age)
