"""The whole raw events of dead letters that are long: apart, so that a list of letters need not read past them.

A letter has the beginning of its raw event in its row. Where that is all, there is nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, select

from headrace.core.values.text import CUT_MARK, cut_text
from headrace.store.db.slices import take_slice
from headrace.store.dialects.statements import BulkInsert
from headrace.store.tables.custody import dead_letter_texts, dead_letters

MAX_SHOWN_CHARS: Final = 64 * 1024
"""So much of a raw event is in the row of its letter."""
LETTER_BYTES: Final = MAX_SHOWN_CHARS
"""Bytes that a letter counts for beside its whole text where one transaction changes many letters: each is looked up by itself."""
MAX_WHOLE_BYTES: Final = 1024**3
"""All whole raw events together take at most so many bytes; beyond that the oldest go, and of their letters the beginnings are left."""

_insert = BulkInsert(dead_letter_texts)


class Texts:
    """The raw events of the letters of one transaction."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._rows: list[tuple[object, ...]] = []

    def add(self, letter_id: str, raw: str) -> str:
        """Keep a raw event; return what goes into the row of its letter."""
        if len(raw) <= MAX_SHOWN_CHARS:
            return raw
        if not raw.endswith(CUT_MARK):
            self._rows.append((letter_id, len(raw.encode()), self._now, raw))
        return cut_text(raw, MAX_SHOWN_CHARS)

    def write(self, connection: Connection) -> None:
        """Keep what was added."""
        _insert(connection, self._rows)


def whole_text(connection: Connection, letter_id: str) -> str | None:
    """Return the raw event of a letter, or None if not all of it is kept."""
    raw: str | None = connection.execute(
        select(dead_letter_texts.c.raw).where(dead_letter_texts.c.letter_id == letter_id)
    ).scalar_one_or_none()
    if raw is None:
        raw = connection.execute(select(dead_letters.c.raw).where(dead_letters.c.id == letter_id)).scalar_one()
    return None if raw.endswith(CUT_MARK) else raw


def delete_letters(connection: Connection, letter_ids: Iterable[str]) -> int:
    """Delete letters and their raw events; return how many there were."""
    ids = list(letter_ids)
    connection.execute(delete(dead_letter_texts).where(dead_letter_texts.c.letter_id.in_(ids)))
    return connection.execute(delete(dead_letters).where(dead_letters.c.id.in_(ids))).rowcount


def oversized_texts(connection: Connection, before: int, most: int) -> int:
    """Delete one slice of the oldest whole raw events where all together take more than `MAX_WHOLE_BYTES`, whatever their age."""
    del before
    total = connection.execute(select(func.coalesce(func.sum(dead_letter_texts.c.bytes), 0))).scalar_one()
    gone = _oldest(connection, int(total) - MAX_WHOLE_BYTES, most)
    connection.execute(delete(dead_letter_texts).where(dead_letter_texts.c.letter_id.in_(gone)))
    return len(gone)


def _oldest(connection: Connection, excess: int, most: int) -> Sequence[str]:
    """Return the letters of the oldest texts that together take `excess` bytes, as many as one transaction deletes."""
    if excess <= 0:
        return []
    table = dead_letter_texts.c
    gone = []
    for row in take_slice(connection, select(table.letter_id, table.bytes).order_by(table.received, table.letter_id), most).rows:
        if excess <= 0:
            break
        gone.append(row.letter_id)
        excess -= row.bytes
    return gone
