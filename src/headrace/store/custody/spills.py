"""Store the spills of one transaction: raw events for triggers that cannot process them now.

Invariants:
- A raw event is stored at most once per trigger. Its identity is (stream, lane, position). Its content does not matter.
- Numbers ascend in the order of storing and are never reused.
- The raw text is stored once, for any number of triggers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from sqlalchemy import Connection, bindparam, insert, select, update

from headrace.store.custody.lanes import Lane, get_or_create_lanes
from headrace.store.dialects.statements import BulkInsert, ValuesQuery
from headrace.store.dialects.validity import is_valid_spill
from headrace.store.tables.base import meta
from headrace.store.tables.control import triggers
from headrace.store.tables.custody import backlog, spills
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import ItemStatus

NUMBER = "backlog"

_spills = BulkInsert(spills)
_backlog = BulkInsert(backlog)

_stored_spills = ValuesQuery(
    {"lane_id": "bigint", "key": "bytea"},
    "SELECT b.lane_id, b.key, b.trigger_id FROM given CROSS JOIN backlog b WHERE b.lane_id = given.lane_id AND b.key = given.key",
)
_last_number = select(meta.c.value).where(meta.c.name == NUMBER)
_move_number = update(meta).where(meta.c.name == NUMBER).values(value=bindparam("number"))
_count = (
    update(triggers)
    .where(triggers.c.id == bindparam("trigger"))
    .values(backlog=triggers.c.backlog + bindparam("added"), spilled=triggers.c.spilled + bindparam("spilled"))
)


def position_key(position: int) -> bytes:
    """Return the key of a position in its lane. Keys sort in the order of positions."""
    return b"p" + (position + 2**63).to_bytes(8, "big")


def redrive_key(id: str) -> bytes:
    """Return the key of a redriven dead letter."""
    return b"d" + blake2b(id.encode(), digest_size=16).digest()


class BacklogInsert:
    """Collect rows for the backlog and number them. `write` inserts them and updates the triggers' depths."""

    def __init__(self, connection: Connection, now: int) -> None:
        last_number = connection.execute(_last_number).scalar_one_or_none()
        if last_number is None:
            connection.execute(insert(meta).values(name=NUMBER, value=0))
        self._now = now
        self._first = self._number = last_number or 0
        self._spills: list[tuple[object, ...]] = []
        self._rows: list[tuple[object, ...]] = []
        self._added: Counter[int] = Counter()
        self._spilled: Counter[int] = Counter()

    def add(
        self,
        raw: str,
        trigger_ids: Sequence[int],
        lane_id: int,
        key: bytes,
        position: int | None,
        *,
        dead_letter_id: str | None = None,
        counted: frozenset[int] = frozenset(),
    ) -> None:
        """Add one raw event for these triggers. `counted` are the triggers whose answers already count a redriven `dead_letter_id`."""
        spill = self._number + 1
        self._spills.append((spill, raw, len(trigger_ids), self._now))
        for trigger in trigger_ids:
            self._number += 1
            self._rows.append((self._number, trigger, lane_id, key, position, spill, dead_letter_id, trigger in counted, None))
        self._added.update(trigger_ids)
        if dead_letter_id is None:
            self._spilled.update(trigger_ids)

    def write(self, connection: Connection) -> None:
        """Insert the rows."""
        if self._number == self._first:
            return
        _spills(connection, self._spills)
        _backlog(connection, self._rows)
        connection.execute(_move_number, {"number": self._number})
        counts = [{"trigger": trigger, "added": n, "spilled": self._spilled[trigger]} for trigger, n in self._added.items()]
        connection.execute(_count, counts)


class Spills:
    """Collect the spills of one transaction. `items` are the items of all its batches."""

    def __init__(self, connection: Connection, items: Sequence[SpillItem], now: int) -> None:
        self._inserts: BacklogInsert | None = None
        if not items:
            return
        valid = [item for item in items if is_valid_spill(item)]
        self._lanes: dict[tuple[str, str], Lane] = get_or_create_lanes(connection, ((item.stream, item.lane) for item in valid), now)
        self._known: set[tuple[int, bytes, int]] = set()
        keys = list({(self._lanes[item.stream, item.lane].id, position_key(item.position)) for item in valid})
        self._known.update((row.lane_id, bytes(row.key), row.trigger_id) for row in _stored_spills(connection, keys))
        self._inserts = BacklogInsert(connection, now)

    def add(self, items: Sequence[SpillItem], mine: set[int]) -> list[ItemStatus]:
        """Return the status of each item of a batch whose sender holds the triggers `mine`.

        A fenced item also fences all later items for any of its triggers, because they would precede it in the
        backlog.
        """
        statuses: list[ItemStatus] = []
        fenced: set[int] = set()
        for item in items:
            status = self._add(item, mine) if fenced.isdisjoint(item.triggers) else "fenced"
            if status == "fenced":
                fenced.update(item.triggers)
            statuses.append(status)
        return statuses

    def write(self, connection: Connection) -> None:
        """Insert the added spills."""
        if self._inserts is not None:
            self._inserts.write(connection)

    def _add(self, item: SpillItem, mine: set[int]) -> ItemStatus:
        if not mine.issuperset(item.triggers):
            return "fenced"
        if self._inserts is None or not is_valid_spill(item):
            return "invalid"
        lane, key = self._lanes[item.stream, item.lane].id, position_key(item.position)
        new = [trigger for trigger in dict.fromkeys(item.triggers) if (lane, key, trigger) not in self._known]
        if not new:
            return "duplicate"
        self._known.update((lane, key, trigger) for trigger in new)
        self._inserts.add(item.raw, new, lane, key, item.position)
        return "stored"
