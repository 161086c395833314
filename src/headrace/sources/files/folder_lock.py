"""The lock that limits a folder to one process at a time. The kernel releases it when that process ends, for any reason."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from weakref import WeakSet


class FolderLock:
    """An exclusive `flock` on one file. A forked child does not have it, and does not keep it alive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        _locks.add(self)

    def try_acquire(self) -> bool:
        """Take the lock, or return False if another process has it. Raises OSError if the file cannot be opened."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Release the lock; do nothing if it is not held."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # Closing alone would leave the lock with a process that was forked without Python's knowledge.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def close_inherited(self) -> None:
        """Close the copy of the parent's descriptor in a forked child. The parent keeps the lock."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


_locks: WeakSet[FolderLock] = WeakSet()


def _close_inherited_locks() -> None:
    for lock in tuple(_locks):
        lock.close_inherited()


os.register_at_fork(after_in_child=_close_inherited_locks)
