"""The event log: appended to by triggerers, read in order of `seq` by scopes, as columns."""

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
from headrace.store.db.meta import last_pruned_seq, log_head
from headrace.store.dialects.statements import driver_rows
from headrace.store.log.append import MOST_PARAMETERS, PreparedBatch, UnresolvedBatch, append, prepare
from headrace.store.log.leaders import find_leaders
from headrace.store.redeliveries import last_redelivery, later_firings, redelivered, trigger_names
from headrace.store.tables.log import events, firings
from headrace.wire.custody.events import BatchStored, EventBatch, LogHead, LogNews
from headrace.wire.log import LOG_SCHEMA
from headrace.wire.pipelines.plans import FoundLeaders
from headrace.wire.pipelines.runs import Redelivery

STEP = 500
FIRST_STEP = 16
"""Rows that are taken from the driver before it is known how large they are."""
MOST_PAYLOAD = 64 * 1024 * 1024

_EVENT_SCHEMA = LOG_SCHEMA.remove(LOG_SCHEMA.get_field_index("triggers"))
_PAIRS = pa.schema({"seq": pa.int64(), "trigger": pa.int64()})
_COLUMNS = [events.c[name] for name in _EVENT_SCHEMA.names]


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some of the log, in order of `seq`, and the log's head when it was read."""

    table: pa.Table
    head: int


@dataclass(frozen=True, slots=True)
class Picked:
    """Events by their seqs. `to`: request the rest beyond this seq again; None if that is all."""

    table: pa.Table
    to: int | None


class Log:
    """The event log of one database. The `bell` rings when a task run got what it waits for."""

    def __init__(self, database: Database, bell: CommitSignal) -> None:
        self._database = database
        self._bell = bell

    def append(self, job_id: int, batch: EventBatch) -> BatchStored:
        """Store a batch in one durable commit.

        Raises:
            Fenced: The job has ended.
        """
        return stored(self.append_later(job_id, batch).result())

    def append_later(self, job_id: int, batch: EventBatch) -> Future[BatchStored | Fenced]:
        """Queue a batch; the future has its statuses once it is durable, together with the batches that wait beside it."""
        answer: Future[BatchStored | Fenced] = Future()
        self._submit(prepare(job_id, batch), answer)
        return answer

    def _submit(self, prepared: PreparedBatch, answer: Future[BatchStored | Fenced]) -> None:
        """Queue a batch, and again until no task run is left to a later transaction; then answer."""

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
        """Return the last `seq`, and the first after what is forgotten (one past the head where all is)."""
        with self._database.reading() as connection:
            head, first = log_head(connection), last_pruned_seq(connection) + 1
        return LogHead(head=head, first=first, now=moment(self._database.now()))

    def news(self) -> LogNews:
        """Return the last `seq` and the last redelivery."""
        with self._database.reading() as connection:
            return LogNews(head=log_head(connection), again=last_redelivery(connection))

    def page(self, *, after: int, to: int | None = None, limit: int = 50_000, project: str | None = None) -> LogPage:
        """Return events with after < seq <= to in order of `seq`: at most `limit`, and fewer where their payloads are large.

        `triggers` names the triggers of `project` only (None: of every project): two projects may have triggers of the same name.
        A page is empty only when no event is left in the range.
        """
        with self._database.reading() as connection:
            head = log_head(connection)
            found = _events(connection, after, head if to is None else to, limit)
            names = _names(connection, found.column("seq").to_pylist(), project)
        return LogPage(found.append_column(LOG_SCHEMA.field("triggers"), names).combine_chunks(), head)

    def pick(self, seqs: Sequence[int], project: str | None = None) -> Picked:
        """Return the events with these ascending seqs that the log has, in order of `seq`; `project` as for `page`.

        Where their payloads are large these are only the first of them.
        """
        with self._database.reading() as connection:
            parts, size, to = [LOG_SCHEMA.empty_table()], 0, None
            for start in range(0, len(seqs), MOST_PARAMETERS):
                part = _picked(connection, seqs[start : start + MOST_PARAMETERS], project)
                parts.append(part)
                size += part.column("payload").nbytes
                if size >= MOST_PAYLOAD:
                    to = part.column("seq")[-1].as_py()
                    break
        return Picked(pa.concat_tables(parts).combine_chunks(), to)

    def leaders(self, keys: Sequence[bytes], project: str | None = None) -> FoundLeaders:
        """Return those of the events with these keys that the log has, with their leaders; `project` as for `page`."""
        with self._database.reading() as connection:
            return FoundLeaders(events=find_leaders(connection, keys, project))

    def redeliveries(self, *, after: int, to: int, project: str | None = None) -> list[Redelivery]:
        """Return redeliveries with after < id <= to; firings of the triggers of `project` only (None: of all)."""
        with self._database.reading() as connection:
            return redelivered(connection, after, to, project)

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each commit, also of other apis: it must return at once. Returns what takes it away again."""
        return self._database.observe(observer)

    def _append(self, connection: Connection, batches: Sequence[PreparedBatch]) -> list[BatchStored | Fenced | UnresolvedBatch]:
        return append(connection, batches, self._database.now(), lambda: self._bell.mark(connection))


def stored(answer: BatchStored | Fenced) -> BatchStored:
    """Return the statuses, or raise the refusal."""
    if isinstance(answer, Fenced):
        raise answer
    return answer


def _events(connection: Connection, after: int, to: int, limit: int) -> pa.Table:
    """Return the events without their firings, as the driver gives them: a row object for each would cost more than all the rest."""
    query = select(*_COLUMNS).where(events.c.seq > after, events.c.seq <= to).order_by(events.c.seq).limit(limit)
    return _table(connection, query)


def _picked(connection: Connection, seqs: Sequence[int], project: str | None) -> pa.Table:
    query = select(*_COLUMNS).where(events.c.seq.in_(seqs)).order_by(events.c.seq)
    found = _table(connection, query)
    names = _names(connection, found.column("seq").to_pylist(), project)
    return found.append_column(LOG_SCHEMA.field("triggers"), names)


def _table(connection: Connection, query: Select[Any]) -> pa.Table:
    """Return rows of the log up to MOST_PAYLOAD: as many as there are, or as fit; at least one where there is one."""
    batches: list[pa.RecordBatch] = []
    size = count = 0

    def step() -> int:
        return min(FIRST_STEP, STEP) if not count else max(1, min(STEP, (MOST_PAYLOAD - size) * count // max(1, size)))

    for rows in driver_rows(connection, query, step):
        columns = zip(zip(*rows, strict=True), _EVENT_SCHEMA.types, strict=True)
        batch = pa.RecordBatch.from_arrays([pa.array(column, type=kind) for column, kind in columns], schema=_EVENT_SCHEMA)
        batches.append(batch)
        size += batch.column("payload").nbytes
        count += batch.num_rows
        if size >= MOST_PAYLOAD:
            break
    return pa.Table.from_batches(batches, schema=_EVENT_SCHEMA)


def _names(connection: Connection, seqs: list[int], project: str | None) -> pa.Array:
    """Return, for each event, the names of the project's triggers that had fired on it when it was stored; later ones are redelivered."""
    if not seqs:
        return pa.array([], type=LOG_SCHEMA.field("triggers").type)
    place = firings.c.seq.between(seqs[0], seqs[-1])
    cursor = connection.execute(
        select(firings.c.seq, firings.c.trigger_id).where(place).order_by(firings.c.seq, firings.c.trigger_id)
    ).cursor
    fired = cursor.fetchall()
    cursor.close()
    later = later_firings(connection, seqs[0], seqs[-1])
    if later:
        fired = [pair for pair in fired if tuple(pair) not in later]
    known = trigger_names(connection, {pair[1] for pair in fired}, project)
    return _listed(pa.array(seqs), fired, pa.array(known.keys(), type=pa.int64()), pa.array(known.values(), type=pa.string()))


def _listed(seqs: pa.Array, fired: Sequence[tuple[int, int]], ids: pa.Array, names: pa.Array) -> pa.Array:
    """Return, for each seq, the names of what fired on it. `fired` is in order, and may have events and triggers not asked for."""
    pairs = pa.table({"seq": [pair[0] for pair in fired], "trigger": [pair[1] for pair in fired]}).cast(_PAIRS)
    pairs = pairs.filter(pc.and_(pc.is_in(pairs["seq"], seqs), pc.is_in(pairs["trigger"], ids)))
    counted = pc.value_counts(pairs["seq"])
    counts = counted.field("counts").take(pc.index_in(seqs, counted.field("values"))).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0]), pc.cumulative_sum(counts)]).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, names.take(pc.index_in(pairs["trigger"].combine_chunks(), ids)))
