"""How far back the log goes, for people."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from headrace.core.values.moments import moment
from headrace.store.db.meta import forgotten
from headrace.store.tables.base import events
from headrace.wire.status.status import LogExtent


def log_extent(connection: Connection, top: int) -> LogExtent:
    """Return what the log has without a gap; `top` is its head."""
    gone = forgotten(connection)
    return LogExtent(first=gone + 1, head=top, since=came_after(connection, gone))


def came_after(connection: Connection, seq: int) -> datetime | None:
    """Return when the first event after `seq` came; None where there is none."""
    first = select(events.c.received).where(events.c.seq > seq).order_by(events.c.seq).limit(1)
    received = connection.execute(first).scalar_one_or_none()
    return None if received is None else moment(received)
