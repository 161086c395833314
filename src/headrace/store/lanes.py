"""Lanes by number: what the backlog and the ledger of custody say of a (stream, lane) hangs on one row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select

from headrace.store.dialects import among
from headrace.store.tables import lanes

MOST_NAMES = 5_000

# Stream by stream: SQLite would look at every lane for a list of pairs.
_known = select(lanes).where(lanes.c.stream == bindparam("of"), among(lanes.c.lane, "names"))


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


def _look_up(connection: Connection, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Lane]:
    of: dict[str, list[str]] = defaultdict(list)
    for stream, lane in pairs:
        of[stream].append(lane)
    found: dict[tuple[str, str], Lane] = {}
    for stream, names in of.items():
        for start in range(0, len(names), MOST_NAMES):
            for row in connection.execute(_known, {"of": stream, "names": names[start : start + MOST_NAMES]}):
                found[stream, row.lane] = Lane(row.id, row.after, row.last, row.read)
    return found
