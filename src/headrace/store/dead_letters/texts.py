"""Long raw events of dead letters, in a table of their own, so that a list of dead letters does not read them.

The row of a dead letter has the beginning of its raw event. A short raw event is only in that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, select

from headrace.core.values.text import CUT_MARK, cut_text
from headrace.store.db.slices import take_slice
from headrace.store.dialects.statements import BulkInsert
from headrace.store.tables.custody import dead_letter_texts, dead_letters

MAX_PREVIEW_CHARS: Final = 64 * 1024
"""Characters of a raw event in the row of its dead letter."""
DEAD_LETTER_BYTES: Final = MAX_PREVIEW_CHARS
"""Bytes that a dead letter counts for beside its raw event. One transaction looks up each dead letter separately."""
MAX_WHOLE_BYTES: Final = 1024**3
"""Maximum bytes of all whole raw events. Beyond it the oldest are deleted, and their dead letters have only the beginnings."""

_insert = BulkInsert(dead_letter_texts)


class Texts:
    """The raw events of the dead letters of one transaction."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._rows: list[tuple[object, ...]] = []

    def add(self, dead_letter_id: str, raw: str) -> str:
        """Add a raw event; return the text for the row of its dead letter."""
        if len(raw) <= MAX_PREVIEW_CHARS:
            return raw
        if not raw.endswith(CUT_MARK):
            self._rows.append((dead_letter_id, len(raw.encode()), self._now, raw))
        return cut_text(raw, MAX_PREVIEW_CHARS)

    def write(self, connection: Connection) -> None:
        """Store the added raw events."""
        _insert(connection, self._rows)


def whole_text(connection: Connection, dead_letter_id: str) -> str | None:
    """Return the raw event of a dead letter, or None if it is not stored in full."""
    raw: str | None = connection.execute(
        select(dead_letter_texts.c.raw).where(dead_letter_texts.c.dead_letter_id == dead_letter_id)
    ).scalar_one_or_none()
    if raw is None:
        raw = connection.execute(select(dead_letters.c.raw).where(dead_letters.c.id == dead_letter_id)).scalar_one()
    return None if raw.endswith(CUT_MARK) else raw


def delete_dead_letters(connection: Connection, dead_letter_ids: Iterable[str]) -> int:
    """Delete dead letters and their raw events; return the number of deleted dead letters."""
    ids = list(dead_letter_ids)
    connection.execute(delete(dead_letter_texts).where(dead_letter_texts.c.dead_letter_id.in_(ids)))
    return connection.execute(delete(dead_letters).where(dead_letters.c.id.in_(ids))).rowcount


def oversized_texts(connection: Connection, before: int, limit: int) -> int:
    """Delete one slice of the oldest whole raw events if all together exceed `MAX_WHOLE_BYTES`, whatever their age."""
    del before
    total = connection.execute(select(func.coalesce(func.sum(dead_letter_texts.c.bytes), 0))).scalar_one()
    oldest = _oldest(connection, int(total) - MAX_WHOLE_BYTES, limit)
    connection.execute(delete(dead_letter_texts).where(dead_letter_texts.c.dead_letter_id.in_(oldest)))
    return len(oldest)


def _oldest(connection: Connection, excess: int, limit: int) -> Sequence[str]:
    """Return the dead letters of the oldest texts with a total of `excess` bytes, up to the limit of one transaction."""
    if excess <= 0:
        return []
    table = dead_letter_texts.c
    oldest = []
    for row in take_slice(connection, select(table.dead_letter_id, table.bytes).order_by(table.received, table.dead_letter_id), limit).rows:
        if excess <= 0:
            break
        oldest.append(row.dead_letter_id)
        excess -= row.bytes
    return oldest
