"""Numbers that the database keeps of itself: the end of the log, what retention deleted of it, and its id."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, select

from headrace.store.tables.base import meta

LAST_PRUNED_SEQ: Final = "forgotten"
HEAD: Final = "head"
INSTANCE: Final = "instance"

_head = select(meta.c.value).where(meta.c.name == HEAD)


_forgotten = select(meta.c.value).where(meta.c.name == LAST_PRUNED_SEQ)


def log_head(connection: Connection) -> int:
    """Return the last `seq` of the log, 0 while it is empty; it is also how many events were ever stored."""
    return int(connection.execute(_head).scalar_one())


def own_log(connection: Connection) -> str:
    """Return the id of this database's log."""
    return log_id(int(connection.execute(select(meta.c.value).where(meta.c.name == INSTANCE)).scalar_one()))


def log_id(instance: int) -> str:
    """Return the id that tells the log of the database `instance` from every other: 16 hexadecimal digits."""
    return f"{instance:016x}"


def last_pruned_seq(connection: Connection) -> int:
    """Return the last seq that is forgotten; 0: none is."""
    return int(connection.execute(_forgotten).scalar_one_or_none() or 0)
