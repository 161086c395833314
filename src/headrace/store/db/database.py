"""Give access to one database: many readers, one writer, and a notification of every commit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select

from headrace.store.db.errors import translate_errors
from headrace.store.db.outages import Outage
from headrace.store.db.writer import A, Collector, R, T, Work, Writer
from headrace.store.dialects.engines import clock_of, engines, is_postgresql, parsed
from headrace.store.dialects.notifications import CHANNEL, signal_payload
from headrace.store.keyring import Keyring

if TYPE_CHECKING:
    from headrace.store.db.listener import Listener


class Database:
    """One database. `reading()` yields a snapshot; `write` and `submit` run a work in the writer's transaction."""

    def __init__(self, url: str, *, clock: Callable[[], int] | None = None, keyring: Keyring | None = None) -> None:
        self.url = parsed(url)
        self.keyring = keyring or Keyring()
        self._me = secrets.token_hex(8)
        self.readers, self._writing = engines(self.url, me=self._me)
        self.now = clock or clock_of(self._writing)
        self._writer = Writer(self._writing)
        self._others: tuple[Callable[[], None], ...] = ()
        self._signal_listeners: tuple[Callable[[], None], ...] = ()
        self._listener: Listener | None = None
        self.write(_nothing)  # the first transaction fetches the database's time

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a read-only connection to one snapshot of the database."""
        with translate_errors(self.url), self.readers.connect() as connection:
            yield connection

    @property
    def outage(self) -> Outage | None:
        """The reason why writes fail now, or None if they succeed."""
        return self._writer.outages.current()

    def submit(self, work: Work[T]) -> Future[T]:
        """Queue `work` for the writer. The future has its result once the commit is durable."""
        return self._writer.submit(work)

    def write(self, work: Work[T]) -> T:
        """Run `work` in the writer's transaction and wait until the commit is durable."""
        return self.submit(work).result()

    def collect(self, collector: Collector[A, R], item: A) -> Future[R]:
        """Queue `item` for `collector`, which receives adjacent items in one call and one transaction."""
        return self._writer.collect(collector, item)

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each commit of any API server. It must return immediately. Return a function that removes it."""
        removers = (self.observe_own(observer), self.observe_others(observer))

        def remove() -> None:
            for each in removers:
                each()

        return remove

    def observe_own(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each commit of this API server, in the writer's thread, before the next transaction."""
        return self._writer.observe(observer)

    def observe_others(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after commits of other API servers; spurious calls occur. Return a function that removes it."""
        self._others = (*self._others, observer)
        self._listen()

        def remove() -> None:
            self._others = tuple(other for other in self._others if other is not observer)

        return remove

    def notify_peers(self, connection: Connection) -> None:
        """Notify the other API servers when the transaction of this work commits."""
        if is_postgresql(self.url):
            connection.execute(select(func.pg_notify(CHANNEL, signal_payload(self._me))))

    def listen_to_peers(self, listener: Callable[[], None]) -> None:
        """Call `listener` after commits for which other API servers called `notify_peers`, and after possible gaps."""
        self._signal_listeners = (*self._signal_listeners, listener)
        self._listen()

    def _listen(self) -> None:
        if self._listener is None and is_postgresql(self.url):
            from headrace.store.db.listener import Listener  # late import: the driver is an optional extra

            self._listener = Listener(self.readers, self._me, self._notify_observers)

    def close(self) -> None:
        """Finish the queued works and close every connection."""
        self._writer.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self.readers.dispose()
        self._writing.dispose()

    def _notify_observers(self, signaled: bool) -> None:
        for observer in (*self._others, *(self._signal_listeners if signaled else ())):
            observer()


def _nothing(_: Connection) -> None:
    """Do nothing in a transaction."""
