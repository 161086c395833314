"""Notify listeners after a commit that was marked, so that they need not poll."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from sqlalchemy import Connection
from sqlalchemy.engine import Transaction

from headrace.store.db.database import Database


class CommitSignal:
    """A signal that a work marks and that calls its listeners after the commit.

    Listeners run in the writer's thread and must return immediately. The signal reaches every API server on the
    database. A mark whose transaction is rolled back causes one spurious notification in this process. No
    notification is missed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hears = False
        self._marked = False
        self._told: Transaction | None = None
        self._lock = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        # own commits only: a notification of another server's commit must not clear a mark that is not committed yet
        database.observe_own(self._committed)

    def mark(self, connection: Connection) -> None:
        """Mark the transaction of a work, so that listeners are called after its commit."""
        self._marked = True
        transaction = connection.get_transaction()
        # once for all works that share the transaction; a retry is another transaction
        if transaction is None or transaction is not self._told:
            self._told = transaction
            self._database.ring(connection)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every notification. Return a function that removes it."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
            if not self._hears:
                self._hears = True
                self._database.hear(self._ring)

        def forget() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return forget

    def _committed(self) -> None:
        if self._marked:
            self._marked = False
            self._ring()

    def _ring(self) -> None:
        for listener in self._listeners:
            listener()
