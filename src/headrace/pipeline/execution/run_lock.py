"""A lock that attempts at runs share, and that an exchange of a table's folder has alone: a pipeline may have listed its files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class RunLock:
    """A shared and exclusive lock. While a thread has or awaits it alone, new shared holders wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shared = 0
        self._is_exclusive = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock together with others while the block lasts."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_exclusive)
            self._shared += 1
        try:
            yield
        finally:
            with self._changed:
                self._shared -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self, max_wait: float) -> Iterator[bool]:
        """Hold the lock alone while the block lasts; give False if the shared holders do not release it within `max_wait` seconds."""
        with self._changed:
            self._is_exclusive = True
            is_held = self._changed.wait_for(lambda: not self._shared, max_wait)
            if not is_held:
                self._release()
        try:
            yield is_held
        finally:
            with self._changed:
                self._release()

    def _release(self) -> None:
        self._is_exclusive = False
        self._changed.notify_all()
