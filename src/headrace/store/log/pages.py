"""Read events of the log with their firings, as columns and in parts of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, bindparam, select

from headrace.store.dialects.statements import byte_length, in_list
from headrace.store.log.columns import Numbers, batch_of, joined_columns, joined_numbers, numbers
from headrace.store.redeliveries import later_firings, trigger_names
from headrace.store.tables.log import events, firings
from headrace.wire.log import LOG_SCHEMA

FIRST_PART_EVENTS = 16
"""Events that the first query reads, before their size is known."""
PART_EVENTS = 1_000
"""Events that each further query reads."""
LARGE_PAYLOAD_BYTES = 64 * 1024
"""An event with a larger payload is read alone."""
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""Payloads of one page."""

_TRIGGERS = LOG_SCHEMA.field("triggers")
_EVENT_SCHEMA = LOG_SCHEMA.remove(LOG_SCHEMA.get_field_index("triggers"))
_IN_RANGE = (events.c.seq > bindparam("after"), events.c.seq <= bindparam("to"))
_AMONG = in_list(events.c.seq, "seqs")
_columns = select(*joined_columns([events.c[name] for name in _EVENT_SCHEMA.names], _EVENT_SCHEMA)).where(*_IN_RANGE)
_columns_among = _columns.where(_AMONG)
_large = select(events.c.seq).where(*_IN_RANGE, byte_length(events.c.payload) > LARGE_PAYLOAD_BYTES).order_by(events.c.seq).limit(1)
_large_among = _large.where(_AMONG)
_next = select(events.c.seq).where(*_IN_RANGE).order_by(events.c.seq).limit(1)
_fired = select(joined_numbers(firings.c.seq), joined_numbers(firings.c.trigger_id)).where(
    firings.c.seq.between(bindparam("first"), bindparam("last"))
)


def read_page(connection: Connection, after: int, to: int, limit: int, project: str | None) -> pa.Table:
    """Return up to `limit` events with after < seq <= to in order of `seq`, fewer if their payloads are large.

    `triggers` has the triggers of `project` only (None: of all projects).
    """
    table, _ = _limited(_between(connection, after, to, limit))
    return _with_triggers(connection, table, project)


def read_by_seq(connection: Connection, seqs: Sequence[int], project: str | None) -> tuple[pa.Table, bool]:
    """Return the events with these ascending seqs in order of `seq`, fewer if their payloads are large, and whether none is left."""
    table, is_whole = _limited(_among(connection, seqs))
    return _with_triggers(connection, table, project), is_whole


def _limited(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Table, bool]:
    """Return the batches up to the one with which they have MAX_PAYLOAD_BYTES of payloads, and whether these are all."""
    taken: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        taken.append(batch)
        size += batch.column("payload").nbytes
        if size >= MAX_PAYLOAD_BYTES:
            break
    return pa.Table.from_batches(taken, schema=_EVENT_SCHEMA), size < MAX_PAYLOAD_BYTES


def _between(connection: Connection, after: int, to: int, limit: int) -> Iterator[pa.RecordBatch]:
    """Yield the first `limit` events with after < seq <= to."""
    size = count = 0
    while after < to and count < limit:
        end, before = min(to, after + min(_fitting(size, count), limit - count)), count
        for batch in _part(connection, after, end):
            size += batch.column("payload").nbytes
            count += batch.num_rows
            yield batch
        if count == before:  # they are pruned
            end = (connection.execute(_next, {"after": end, "to": to}).scalar() or to + 1) - 1
        after = end


def _among(connection: Connection, seqs: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the events with these ascending seqs."""
    start = size = count = 0
    while start < len(seqs):
        part = list(seqs[start : start + _fitting(size, count)])
        for batch in _part(connection, part[0] - 1, part[-1], part):
            size += batch.column("payload").nbytes
            count += batch.num_rows
            yield batch
        start += len(part)


def _fitting(size: int, count: int) -> int:
    """Return the number of events of the next part, after `count` events with `size` bytes of payloads."""
    return max(1, min(PART_EVENTS, (MAX_PAYLOAD_BYTES - size) * count // max(1, size))) if count else FIRST_PART_EVENTS


def _part(connection: Connection, after: int, to: int, among: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the events with after < seq <= to; with `among`, only those of these seqs. An event with a large payload is read alone."""
    columns, first_large = (_columns, _large) if among is None else (_columns_among, _large_among)
    listed = {} if among is None else {"seqs": among}
    while after < to:
        large = connection.execute(first_large, {"after": after, "to": to, **listed}).scalar()
        end = to if large is None else max(large - 1, after + 1)
        batch = batch_of(connection.execute(columns, {"after": after, "to": end, **listed}).one(), _EVENT_SCHEMA)
        if batch.num_rows:
            yield batch
        after = end


def _with_triggers(connection: Connection, table: pa.Table, project: str | None) -> pa.Table:
    """Add the names of the project's triggers that fired on each event before it was stored. Later firings are redelivered."""
    seqs = table.column("seq").to_numpy()
    names = _names(connection, seqs, project) if len(seqs) else pa.array([], _TRIGGERS.type)
    return table.append_column(_TRIGGERS, names).combine_chunks()


def _names(connection: Connection, seqs: Numbers, project: str | None) -> pa.Array:
    first, last = int(seqs[0]), int(seqs[-1])
    fired, trigger_ids = map(numbers, connection.execute(_fired, {"first": first, "last": last}).one())
    later = later_firings(connection, first, last)
    names = trigger_names(connection, np.unique(trigger_ids).tolist(), project)
    is_named = np.isin(trigger_ids, list(names)) & np.isin(fired, seqs)
    if later:
        is_named &= [pair not in later for pair in zip(fired.tolist(), trigger_ids.tolist(), strict=True)]
    fired, trigger_ids = fired[is_named], trigger_ids[is_named]
    order = np.lexsort((trigger_ids, fired))
    offsets = np.searchsorted(fired[order], np.append(seqs, last + 1)).astype(np.int32)
    numbered = np.searchsorted(np.array(list(names)), trigger_ids[order])
    return pa.ListArray.from_arrays(offsets, pa.array(names.values(), _TRIGGERS.type.value_type).take(pa.array(numbered)))
