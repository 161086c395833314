"""Run all writes in one thread: the works in the queue share one transaction and one fsync.

Invariants:
- A work returns its result only after its transaction is committed.
- If any work of a transaction fails, the transaction is rolled back and each work is retried alone. A bad request
  cannot affect its neighbours. A work must therefore depend on the database alone.
- If the database is unavailable, all queued works of the transaction fail immediately.
- A transaction lost before its commit was sent is retried. One lost during its commit may be stored or not, so the
  caller must repeat the request. Every work returns for a repeat what it returned the first time.
- Adjacent items of the same collector are passed to it in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from headrace.errors import StorageBusy
from headrace.store.db.errors import is_rolled_back, translate_errors
from headrace.store.db.outages import Outages

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")
Work = Callable[[Connection], T]
Collector = Callable[[Connection, Sequence[A]], Sequence[R]]

log = structlog.get_logger(__name__)

MAX_BATCH_WORKS = 256
MAX_ATTEMPTS = 4


@dataclass(slots=True, eq=False)
class _WorkItem:
    collector: Collector[Any, Any]
    item: Any
    answer: Future[Any] = field(default_factory=Future)


class Unprepared(Exception):
    """Signal that a work must read too much before it can write.

    Its transaction is rolled back, `prepare` runs without the lock, and the whole transaction runs again. The work
    must ensure that this terminates.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        super().__init__("a work has to prepare without the lock")
        self.prepare = prepare


class _Undone(Exception):
    """Signal that a transaction was lost before its commit was sent."""

    def __init__(self, error: DBAPIError) -> None:
        super().__init__(str(error))
        self.error = error


class _Captured:
    """Store the error of its block for the callers. The writer itself must survive every work."""

    error: Exception | None = None

    def __enter__(self) -> _Captured:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


class Writer:
    """Run works one after the other on one connection, in a separate thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: SimpleQueue[_WorkItem | None] = SimpleQueue()
        self._closed = False
        self._submit_lock = Lock()
        self._observers: tuple[Callable[[], None], ...] = ()
        self.outages = Outages()
        self._thread = Thread(target=self._loop, name="headrace-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[T]) -> Future[T]:
        """Queue `work`. The future has its result once the commit is durable."""
        return self._put(_WorkItem(_run_each, work))

    def collect(self, collector: Collector[A, R], item: A) -> Future[R]:
        """Queue `item`. `collector` receives it together with adjacent items and returns one result per item."""
        return self._put(_WorkItem(collector, item))

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each commit, in the writer's thread.

        It must return immediately. Return a function that removes it.
        """
        self._observers = (*self._observers, observer)

        def remove() -> None:
            self._observers = tuple(other for other in self._observers if other is not observer)

        return remove

    def close(self) -> None:
        """Finish the queued works, then stop."""
        with self._submit_lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _put(self, entry: _WorkItem) -> Future[Any]:
        with self._submit_lock:  # nothing may enter the queue behind the end marker, where it would never be answered
            if self._closed:
                raise StorageBusy("The store is closed.")
            self._queue.put(entry)
        return entry.answer

    def _loop(self) -> None:
        open_for_work = True
        while open_for_work:
            first = self._queue.get()
            if first is None:
                return
            entries = [first]
            while len(entries) < MAX_BATCH_WORKS:
                try:
                    more = self._queue.get_nowait()
                except Empty:
                    break
                if more is None:
                    open_for_work = False
                    break
                entries.append(more)
            self._settle([entry for entry in entries if entry.answer.set_running_or_notify_cancel()])

    def _settle(self, entries: list[_WorkItem]) -> None:
        if not entries:
            return
        answers: list[Any] = []
        with _Captured() as attempt:
            answers = self._commit(entries)
        if attempt.error is None:
            self.outages.record_success()
            for entry, answer in zip(entries, answers, strict=True):
                entry.answer.set_result(answer)
            self._notify_observers()
        elif len(entries) == 1 or isinstance(attempt.error, StorageBusy):
            self.outages.record_failure(attempt.error)
            for entry in entries:
                entry.answer.set_exception(attempt.error)
        else:
            for entry in entries:
                self._settle([entry])

    def _notify_observers(self) -> None:
        for observer in self._observers:
            with _Captured() as attempt:
                observer()
            # the commit stands, and works of the next transaction must not fail for an observer's error
            if attempt.error is not None:
                log.error("commit observer failed", exc_info=attempt.error)

    def _commit(self, entries: list[_WorkItem]) -> list[Any]:
        tries = 1
        with translate_errors(self._engine.url):
            while True:
                try:
                    return self._run(entries)
                except Unprepared as work:
                    work.prepare()
                except _Undone as undone_by:
                    if tries == MAX_ATTEMPTS:
                        raise undone_by.error from undone_by
                    tries += 1

    def _run(self, entries: list[_WorkItem]) -> list[Any]:
        with self._engine.connect() as connection:
            try:
                transaction = connection.begin()
                answers = _run(connection, entries)
            except DBAPIError as error:
                if is_rolled_back(error):
                    raise _Undone(error) from error
                raise
            transaction.commit()
            return answers


def _run(connection: Connection, entries: list[_WorkItem]) -> list[Any]:
    answers: list[Any] = []
    for collector, group in groupby(entries, key=lambda entry: entry.collector):
        answers.extend(collector(connection, [entry.item for entry in group]))
    return answers


def _run_each(connection: Connection, works: Sequence[Work[Any]]) -> list[Any]:
    return [work(connection) for work in works]
