"""The event log: triggerers append to it, scopes read it in order of `seq`, as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlalchemy import Connection

from headrace.core.values.moments import moment
from headrace.errors import Fenced, StorageBusy
from headrace.store.db.commit_signal import CommitSignal
from headrace.store.db.database import Database
from headrace.store.db.meta import last_pruned_seq, log_end
from headrace.store.log.append import PreparedBatch, UnresolvedBatch, append, prepare
from headrace.store.log.leaders import find_leaders
from headrace.store.log.pages import read_by_seq, read_page
from headrace.store.redeliveries import last_redelivery, redelivered
from headrace.wire.custody.events import BatchStored, EventBatch, LogHead, LogPosition
from headrace.wire.pipelines.plans import FoundLeaders
from headrace.wire.pipelines.runs import Redelivery


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
            table = read_page(connection, after, head if to is None else min(to, head), limit, project)
        return LogPage(table, head)

    def get_by_seq(self, seqs: Sequence[int], project: str | None = None) -> EventsBySeq:
        """Return the events with these ascending seqs that the log has, in order of `seq`. `project` is as for `page`.

        If their payloads are large, the result has only the first of them.
        """
        with self._database.reading() as connection:
            table, is_whole = read_by_seq(connection, seqs, project)
        return EventsBySeq(table, None if is_whole else table.column("seq")[-1].as_py())

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
