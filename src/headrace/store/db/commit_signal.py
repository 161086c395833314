"""Notify listeners after a commit that a work signals, so that they need not poll."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from sqlalchemy import Connection
from sqlalchemy.engine import Transaction

from headrace.store.db.database import Database


class CommitSignal:
    """A signal that a work gives for its commit, and that calls its listeners after it.

    Listeners run in the writer's thread and must return immediately. The signal reaches every API server on the
    database. A signal whose transaction is rolled back causes one spurious notification in this process. No
    notification is missed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribed = False
        self._pending = False
        self._last_transaction: Transaction | None = None
        self._lock = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        # own commits only: a notification of another server's commit must not clear a signal that is not committed yet
        database.observe_own(self._committed)

    def signal(self, connection: Connection) -> None:
        """Call the listeners after the commit of this work's transaction."""
        self._pending = True
        transaction = connection.get_transaction()
        # once for all works that share the transaction; a retry is another transaction
        if transaction is None or transaction is not self._last_transaction:
            self._last_transaction = transaction
            self._database.notify_peers(connection)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every signaled commit. Return a function that removes it."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
            if not self._subscribed:
                self._subscribed = True
                self._database.listen_to_peers(self._notify)

        def remove() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return remove

    def _committed(self) -> None:
        if self._pending:
            self._pending = False
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
