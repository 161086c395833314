"""The part of the log that is not pruned."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from headrace.core.values.moments import moment
from headrace.store.db.meta import last_pruned_seq
from headrace.store.tables.log import events
from headrace.wire.status.status import LogExtent

_first_after = select(events.c.received).where(events.c.seq > bindparam("seq")).order_by(events.c.seq).limit(1)


def log_bounds(connection: Connection, top: int) -> LogExtent:
    """Return the part of the log without gaps. `top` is its head."""
    pruned = last_pruned_seq(connection)
    return LogExtent(first=pruned + 1, head=top, since=received_after(connection, pruned))


def received_after(connection: Connection, seq: int) -> datetime | None:
    """Return the time at which the first event after `seq` was stored, or None if there is no later event."""
    received = connection.execute(_first_after, {"seq": seq}).scalar_one_or_none()
    return None if received is None else moment(received)
