"""Read the database's own numbers: the end of the log, the last pruned seq, and the log's id."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, select

from headrace.store.tables.base import meta

LAST_PRUNED_SEQ: Final = "last_pruned_seq"
HEAD: Final = "head"
INSTANCE: Final = "instance"
LAST_DEAD_LETTER: Final = "last_dead_letter"
"""The name of the last number of a dead letter."""

_head = select(meta.c.value).where(meta.c.name == HEAD)


_last_pruned = select(meta.c.value).where(meta.c.name == LAST_PRUNED_SEQ)


def log_end(connection: Connection) -> int:
    """Return the last `seq` of the log, or 0 if it is empty. It equals the number of events ever stored."""
    return int(connection.execute(_head).scalar_one())


def own_log(connection: Connection) -> str:
    """Return the id of this database's log."""
    return log_id(int(connection.execute(select(meta.c.value).where(meta.c.name == INSTANCE)).scalar_one()))


def log_id(instance: int) -> str:
    """Return the unique id of the log of the database `instance`: 16 hexadecimal digits."""
    return f"{instance:016x}"


def last_pruned_seq(connection: Connection) -> int:
    """Return the last pruned seq, or 0 if none was pruned."""
    return int(connection.execute(_last_pruned).scalar_one_or_none() or 0)
