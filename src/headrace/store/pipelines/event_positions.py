"""The positions of the events that scopes have ordered: stored with the plan of their batch, for late firings of
triggers.

The driver packs the blocks. The store finds the blocks that may have an event. A block is deleted with the last of
its events in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection, delete, exists, select, tuple_

from headrace.store.db.meta import last_pruned_seq
from headrace.store.db.slices import MAX_SLICE_BYTES, Slice, size_of
from headrace.store.dialects.statements import BulkInsert, ValuesQuery
from headrace.store.tables.log import events
from headrace.store.tables.pipelines import event_positions, scopes
from headrace.wire.pipelines.packed_events import EventPosition, PackedEvents
from headrace.wire.pipelines.plans import MAX_POSITION_SEQS, PositionBlock, Positions

_block = event_positions.c
_key = (_block.incarnation, _block.first_seq, _block.batch)
_add = BulkInsert(event_positions)
_near = ValuesQuery(
    {"incarnation": "text", "seq": "bigint"},
    "SELECT given.seq, p.first_seq, p.batch, length(p.data) AS bytes FROM given CROSS JOIN event_positions p "  # noqa: S608
    f"WHERE p.incarnation = given.incarnation AND p.first_seq > given.seq - {MAX_POSITION_SEQS} AND p.first_seq <= given.seq "
    "AND p.last_seq >= given.seq ORDER BY given.seq",
)
_data = ValuesQuery(
    {"incarnation": "text", "first_seq": "bigint", "batch": "bigint"},
    "SELECT p.data FROM given CROSS JOIN event_positions p "
    "WHERE p.incarnation = given.incarnation AND p.first_seq = given.first_seq AND p.batch = given.batch",
)


def add_positions(connection: Connection, incarnation: str, batch: int, blocks: Iterable[PositionBlock]) -> None:
    """Store the positions of a batch. Call it in the plan's transaction."""
    _add(connection, [(incarnation, block.first, batch, block.last, block.data) for block in blocks])


def positions_of(connection: Connection, incarnation: str, seqs: Sequence[int]) -> Positions:
    """Return the blocks that may have these events. If they exceed MAX_SLICE_BYTES, return the blocks of the first
    events by seq.
    """
    near = sorted(_near(connection, [(incarnation, seq) for seq in set(seqs)]))
    sizes: dict[tuple[int, int], int] = {}
    to: int | None = None
    for seq, rows in groupby(near, itemgetter(0)):
        new = {(first, batch): size for _, first, batch, size in rows if (first, batch) not in sizes}
        if sizes and sum(sizes.values()) + sum(new.values()) > MAX_SLICE_BYTES:
            to = seq - 1
            break
        sizes |= new
    blocks = _data(connection, [(incarnation, *block_key) for block_key in sizes])
    return Positions(blocks=[bytes(row.data) for row in blocks], to=to)


def position_of(connection: Connection, incarnation: str, seq: int) -> EventPosition | None:
    """Return the position and the mark of one event, or None if the scope has not ordered it.

    Reads the blocks with this seq between their first and last: their events are within MAX_POSITION_SEQS of it.

    Raises:
        ValueError: A stored block is of another version.
    """
    blocks = positions_of(connection, incarnation, [seq]).blocks
    matches = (PackedEvents.decode(block).find(seq) for block in blocks)
    return next((match for match in matches if match is not None), None)


def positions(connection: Connection, before: int, limit: int) -> int:
    """Delete one slice of the blocks without an event in the log; return their number."""
    del before
    last = last_pruned_seq(connection)
    deleted = Slice(limit)
    for incarnation in connection.execute(select(scopes.c.incarnation)).scalars().all():
        retained = exists().where(events.c.seq.between(_block.first_seq, _block.last_seq))
        mine = (_block.incarnation == incarnation, _block.first_seq <= last, _block.last_seq <= last, ~retained)
        rows = deleted.add(connection, select(*_key, size_of(_block.data)).where(*mine).order_by(*_key))
        if rows:
            connection.execute(delete(event_positions).where(tuple_(*_key).in_([tuple(row)[:3] for row in rows])))
    return len(deleted.rows)
