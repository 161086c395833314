"""The event log: triggerers append to it, scopes read it in order of `seq`, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Select, select

from headrace.core.values.moments import moment
from headrace.errors import Fenced, StorageBusy
from headrace.store.db.commit_signal import CommitSignal
from headrace.store.db.database import Database
from headrace.store.db.meta import last_pruned_seq, log_end
from headrace.store.dialects.statements import driver_rows
from headrace.store.log.append import MAX_PARAMETERS, PreparedBatch, UnresolvedBatch, append, prepare
from headrace.store.log.leaders import find_leaders
from headrace.store.redeliveries import last_redelivery, later_firings, redelivered, trigger_names
from headrace.store.tables.log import events, firings
from headrace.wire.custody.events import BatchStored, EventBatch, LogHead, LogPosition
from headrace.wire.log import LOG_SCHEMA
from headrace.wire.pipelines.plans import FoundLeaders
from headrace.wire.pipelines.runs import Redelivery

FETCH_ROWS = 500
FIRST_FETCH_ROWS = 16
"""Rows of the first fetch, before the size of a row is known."""
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""Payloads of one page."""

_EVENT_SCHEMA = LOG_SCHEMA.remove(LOG_SCHEMA.get_field_index("triggers"))
_PAIRS = pa.schema({"seq": pa.int64(), "trigger": pa.int64()})
_COLUMNS = [events.c[name] for name in _EVENT_SCHEMA.names]


@dataclass(frozen=True, slots=True)
class LogPage:
    """A page of the log in order of `seq`, and the log's head at that time."""

    table: pa.Table
    head: int


@dataclass(frozen=True, slots=True)
class EventsBySeq:
    """Events by their seqs. Request later seqs again if `to`, the last seq of the table, is given."""

    table: pa.Table
    to: int | None


class Log:
    """The event log of one database. It signals `signal` when a task run got its event."""

    def __init__(self, database: Database, signal: CommitSignal) -> None:
        self._database = database
        self._signal = signal

    def append(self, job_id: int, batch: EventBatch) -> BatchStored:
        """Store a batch in one durable commit.

        Raises:
            Fenced: The job has ended.
        """
        return stored(self.append_later(job_id, batch).result())

    def append_later(self, job_id: int, batch: EventBatch) -> Future[BatchStored | Fenced]:
        """Queue a batch. The future has its statuses once it is durable, in one commit with other waiting batches."""
        answer: Future[BatchStored | Fenced] = Future()
        self._submit(prepare(job_id, batch), answer)
        return answer

    def _submit(self, prepared: PreparedBatch, answer: Future[BatchStored | Fenced]) -> None:
        """Queue a batch, repeat it until no task run is left for a later transaction, and set the answer."""

        def settle(stored: Future[BatchStored | Fenced | UnresolvedBatch]) -> None:
            if stored.cancelled():
                return
            error = stored.exception()
            result = None if error is not None else stored.result()
            if isinstance(result, UnresolvedBatch) and not answer.cancelled():
                try:
                    self._submit(replace(prepared, delivered=result.delivered), answer)
                    return
                except StorageBusy as closed:
                    error = closed
            if not answer.set_running_or_notify_cancel():
                return
            if error is not None:
                answer.set_exception(error)
            elif result is not None and not isinstance(result, UnresolvedBatch):
                answer.set_result(result)

        queued = self._database.collect(self._append, prepared)
        answer.add_done_callback(lambda done: done.cancelled() and queued.cancel())
        queued.add_done_callback(settle)

    def head(self) -> LogHead:
        """Return the last `seq`, and the first one that is not pruned (one past the head if all events are)."""
        with self._database.reading() as connection:
            head, first = log_end(connection), last_pruned_seq(connection) + 1
        return LogHead(head=head, first=first, now=moment(self._database.now()))

    def news(self) -> LogPosition:
        """Return the last `seq` and the id of the last redelivery."""
        with self._database.reading() as connection:
            return LogPosition(head=log_end(connection), last_redelivery_id=last_redelivery(connection))

    def page(self, *, after: int, to: int | None = None, limit: int = 50_000, project: str | None = None) -> LogPage:
        """Return up to `limit` events with after < seq <= to in order of `seq`, fewer if their payloads are large.

        `triggers` has the triggers of `project` only (None: of all projects), because two projects may have triggers of the same name.
        A page is empty only when no event is left in the range.
        """
        with self._database.reading() as connection:
            head = log_end(connection)
            table = _events(connection, after, head if to is None else to, limit)
            names = _names(connection, table.column("seq").to_pylist(), project)
        return LogPage(table.append_column(LOG_SCHEMA.field("triggers"), names).combine_chunks(), head)

    def get_by_seq(self, seqs: Sequence[int], project: str | None = None) -> EventsBySeq:
        """Return the events with these ascending seqs that the log has, in order of `seq`. `project` is as for `page`.

        If their payloads are large, the result has only the first of them.
        """
        with self._database.reading() as connection:
            parts, size, to = [LOG_SCHEMA.empty_table()], 0, None
            for start in range(0, len(seqs), MAX_PARAMETERS):
                part = _events_by_seq(connection, seqs[start : start + MAX_PARAMETERS], project)
                parts.append(part)
                size += part.column("payload").nbytes
                if size >= MAX_PAYLOAD_BYTES:
                    to = part.column("seq")[-1].as_py()
                    break
        return EventsBySeq(pa.concat_tables(parts).combine_chunks(), to)

    def leaders(self, keys: Sequence[bytes], project: str | None = None) -> FoundLeaders:
        """Return the events with these keys that the log has, with their leaders. `project` is as for `page`."""
        with self._database.reading() as connection:
            return FoundLeaders(events=find_leaders(connection, keys, project))

    def redeliveries(self, *, after: int, to: int, project: str | None = None) -> list[Redelivery]:
        """Return redeliveries with after < id <= to, with firings of the triggers of `project` only (None: of all)."""
        with self._database.reading() as connection:
            return redelivered(connection, after, to, project)

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each commit, also of other API servers. It must return at once. Return a function that removes it."""
        return self._database.observe(observer)

    def _append(self, connection: Connection, batches: Sequence[PreparedBatch]) -> list[BatchStored | Fenced | UnresolvedBatch]:
        return append(connection, batches, self._database.now(), lambda: self._signal.signal(connection))


def stored(answer: BatchStored | Fenced) -> BatchStored:
    """Return the statuses, or raise `Fenced`."""
    if isinstance(answer, Fenced):
        raise answer
    return answer


def _events(connection: Connection, after: int, to: int, limit: int) -> pa.Table:
    """Return the events without their firings. The rows come from the driver, because SQLAlchemy's row objects cost more than the rest."""
    query = select(*_COLUMNS).where(events.c.seq > after, events.c.seq <= to).order_by(events.c.seq).limit(limit)
    return _table(connection, query)


def _events_by_seq(connection: Connection, seqs: Sequence[int], project: str | None) -> pa.Table:
    query = select(*_COLUMNS).where(events.c.seq.in_(seqs)).order_by(events.c.seq)
    table = _table(connection, query)
    names = _names(connection, table.column("seq").to_pylist(), project)
    return table.append_column(LOG_SCHEMA.field("triggers"), names)


def _table(connection: Connection, query: Select[Any]) -> pa.Table:
    """Return rows of the log with up to MAX_PAYLOAD_BYTES of payloads, and at least one row if there is one."""
    batches: list[pa.RecordBatch] = []
    size = count = 0

    def step() -> int:
        return (
            min(FIRST_FETCH_ROWS, FETCH_ROWS) if not count else max(1, min(FETCH_ROWS, (MAX_PAYLOAD_BYTES - size) * count // max(1, size)))
        )

    for rows in driver_rows(connection, query, step):
        columns = zip(zip(*rows, strict=True), _EVENT_SCHEMA.types, strict=True)
        batch = pa.RecordBatch.from_arrays([pa.array(column, type=kind) for column, kind in columns], schema=_EVENT_SCHEMA)
        batches.append(batch)
        size += batch.column("payload").nbytes
        count += batch.num_rows
        if size >= MAX_PAYLOAD_BYTES:
            break
    return pa.Table.from_batches(batches, schema=_EVENT_SCHEMA)


def _names(connection: Connection, seqs: list[int], project: str | None) -> pa.Array:
    """Return, for each event, the names of the project's triggers that fired on it before it was stored. Later firings are redelivered."""
    if not seqs:
        return pa.array([], type=LOG_SCHEMA.field("triggers").type)
    in_range = firings.c.seq.between(seqs[0], seqs[-1])
    cursor = connection.execute(
        select(firings.c.seq, firings.c.trigger_id).where(in_range).order_by(firings.c.seq, firings.c.trigger_id)
    ).cursor
    fired = cursor.fetchall()
    cursor.close()
    later = later_firings(connection, seqs[0], seqs[-1])
    if later:
        fired = [pair for pair in fired if tuple(pair) not in later]
    known = trigger_names(connection, {pair[1] for pair in fired}, project)
    return _listed(pa.array(seqs), fired, pa.array(known.keys(), type=pa.int64()), pa.array(known.values(), type=pa.string()))


def _listed(seqs: pa.Array, fired: Sequence[tuple[int, int]], ids: pa.Array, names: pa.Array) -> pa.Array:
    """Return, for each seq, the names of its triggers. `fired` is in order, and may have other events and triggers too."""
    pairs = pa.table({"seq": [pair[0] for pair in fired], "trigger": [pair[1] for pair in fired]}).cast(_PAIRS)
    pairs = pairs.filter(pc.and_(pc.is_in(pairs["seq"], seqs), pc.is_in(pairs["trigger"], ids)))
    counted = pc.value_counts(pairs["seq"])
    counts = counted.field("counts").take(pc.index_in(seqs, counted.field("values"))).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0]), pc.cumulative_sum(counts)]).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, names.take(pc.index_in(pairs["trigger"].combine_chunks(), ids)))
