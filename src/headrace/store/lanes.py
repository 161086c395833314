"""Lanes by number: what the backlog and the ledger of custody say of a (stream, lane) hangs on one row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select, tuple_

from headrace.store.tables import lanes

MOST_PAIRS = 5_000

_known = select(lanes).where(tuple_(lanes.c.stream, lanes.c.lane).in_(bindparam("pairs", expanding=True)))


@dataclass(slots=True)
class Lane:
    """One lane; `last` is how far its custody is recorded (None: nothing is), `after` where that begins."""

    id: int
    after: int | None
    last: int | None
    read: int


def lanes_of(connection: Connection, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Lane]:
    """Return the lanes by (stream, lane), making those that are new."""
    wanted = list(dict.fromkeys(pairs))
    found = _look_up(connection, wanted)
    new = [pair for pair in wanted if pair not in found]
    if new:
        connection.execute(insert(lanes), [{"stream": stream, "lane": lane, "read": 0} for stream, lane in new])
        found |= _look_up(connection, new)
    return found


def _look_up(connection: Connection, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], Lane]:
    found: dict[tuple[str, str], Lane] = {}
    for start in range(0, len(pairs), MOST_PAIRS):
        for row in connection.execute(_known, {"pairs": pairs[start : start + MOST_PAIRS]}):
            found[row.stream, row.lane] = Lane(row.id, row.after, row.last, row.read)
    return found
