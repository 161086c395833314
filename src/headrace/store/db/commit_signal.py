"""A bell that rings after a commit in which something was marked, so that whoever waits need not look again and again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from sqlalchemy import Connection
from sqlalchemy.engine import Transaction

from headrace.store.db.database import Database


class CommitSignal:
    """Works `mark` it; those who listen are called after the commit, in the writer's thread: they must return at once.

    It rings in every api on the database. A mark whose transaction is taken back rings once too often here, never too rarely.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hears = False
        self._marked = False
        self._told: Transaction | None = None
        self._lock = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        database.observe_own(self._committed)  # word of another's commit must not take a mark that is not committed yet for its own

    def mark(self, connection: Connection) -> None:
        """Say, within a work, that there is something to hear of."""
        self._marked = True
        transaction = connection.get_transaction()
        if transaction is None or transaction is not self._told:  # once for all works that share it; one that is tried again is another
            self._told = transaction
            self._database.ring(connection)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every ring. Returns what takes it away again."""
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
