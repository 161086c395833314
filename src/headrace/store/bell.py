"""A bell that rings after a commit in which something was marked, so that whoever waits need not look again and again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from headrace.store.database import Database


class Bell:
    """Works `mark` it; those who listen are called after the commit, in the writer's thread: they must return at once.

    It rings in the process that commits. A mark whose transaction is taken back rings once too often, never too rarely.
    """

    def __init__(self, database: Database) -> None:
        self._marked = False
        self._lock = Lock()
        self._listeners: tuple[Callable[[], None], ...] = ()
        database.observe(self._committed)

    def mark(self) -> None:
        """Say, within a work, that there is something to hear of."""
        self._marked = True

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every ring. Returns what takes it away again."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def forget() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return forget

    def _committed(self) -> None:
        if self._marked:
            self._marked = False
            for listener in self._listeners:
                listener()
