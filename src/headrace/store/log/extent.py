"""How far back the log goes, for people."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from headrace.core.values.moments import moment
from headrace.store.db.meta import last_pruned_seq
from headrace.store.tables.log import events
from headrace.wire.status.status import LogExtent

_first_after = select(events.c.received).where(events.c.seq > bindparam("seq")).order_by(events.c.seq).limit(1)


def log_extent(connection: Connection, top: int) -> LogExtent:
    """Return what the log has without a gap; `top` is its head."""
    gone = last_pruned_seq(connection)
    return LogExtent(first=gone + 1, head=top, since=came_after(connection, gone))


def came_after(connection: Connection, seq: int) -> datetime | None:
    """Return when the first event after `seq` came; None where there is none."""
    received = connection.execute(_first_after, {"seq": seq}).scalar_one_or_none()
    return None if received is None else moment(received)
