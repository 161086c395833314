"""The turn of writers: a lock of the kernel on a file beside the queue, which is waited for within a limit.

A writer first tries in short intervals. If others send message after message, it may find the lock taken each time. So it then waits in
the queue of the kernel, in a thread, because `flock` has no limit of time. A process that is stopped while it has the lock stops no other
process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from threading import Condition, Thread
from time import monotonic, sleep
from typing import Final

from headrace.errors import StorageBusy, UpstreamError

PAUSE_SECONDS: Final = 0.001
TRIES_SECONDS: Final = 0.1
"""Time of attempts before a thread waits. Two more changes of threads for each commit would halve the throughput of a busy host."""


class Turn:
    """The turn to write to the queue at `path`. Used by one thread at a time. Raises `UpstreamError` if its file cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._queue = path
        self._path = path.with_name(path.name + "-turn")
        self._waiter: _Waiter | None = None
        os.close(self._open())

    def acquire(self, seconds: float) -> int:
        """Return a descriptor that has the lock until it is closed. Raises `StorageBusy` after `seconds`, or `UpstreamError`."""
        until = monotonic() + seconds
        descriptor = self._open()
        tries_until = monotonic() + min(seconds, TRIES_SECONDS)
        while True:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                if monotonic() >= tries_until:
                    break
                sleep(PAUSE_SECONDS)
            else:
                return descriptor
        # The thread of an earlier attempt may still wait: so a writer has one such thread, however long the lock is taken.
        waiter, self._waiter = self._waiter, None
        if waiter is None or not waiter.resume():
            waiter = _Waiter(descriptor)
        else:
            os.close(descriptor)
        if waiter.wait(max(0.0, until - monotonic())):
            return waiter.descriptor
        self._waiter = waiter
        raise StorageBusy(
            f"The queue {self._queue} is in use by another process, which does not answer.",
            hint="Continue or end the process that reads the queue or sends to it.",
        )

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UpstreamError(
                f"The queue {self._queue} cannot be used: {error.strerror or error}.", hint="You must be able to write to its folder."
            ) from error


class _Waiter:
    """A thread that waits for the lock of a descriptor, and releases a lock that no attempt waits for any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._changed = Condition()
        self._requested = True
        self._ended = False
        # The end of the process does not wait for a daemon.
        Thread(target=self._run, name="headrace queue turn", daemon=True).start()

    def resume(self) -> bool:
        """Return whether the thread still waits, and now does so for a new attempt."""
        with self._changed:
            self._requested = not self._ended
            return self._requested

    def wait(self, seconds: float) -> bool:
        """Wait for the lock, and return whether the descriptor has it. If not, the attempt has ended."""
        with self._changed:
            self._requested = self._changed.wait_for(lambda: self._ended, seconds)
            return self._requested

    def _run(self) -> None:
        with suppress(OSError):  # the lock of SQLite excludes other writers, the turn only puts them into an order
            flock(self.descriptor, LOCK_EX)
        with self._changed:
            self._ended = True
            if not self._requested:
                os.close(self.descriptor)
            self._changed.notify_all()
