"""Lock events in progress. The locks end with their process, so no clock decides which process may handle an event.

A lease alone cannot distinguish a slow handler from a dead one, and it fails where clocks differ. A claim by rows is
therefore combined with the lock of its event. A new event without a row is in progress by its lock alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from threading import Lock
from typing import ClassVar, Final, Protocol

from typing_extensions import override

from headrace.store.dialects.driver import DriverConnection, PostgresqlDriver

MAX_LOCKS: Final = 500
"""Maximum locks of one ordering store: PostgreSQL has several thousand for all sessions.

Further events rely on their lease.
"""
_OFFSETS: Final = (1 << 62) - 1


class Locks(Protocol):
    """Locks by number (signed, 64 bits), for use by one thread."""

    def ask(self, numbers: Iterable[int]) -> Callable[[], set[int]]:
        """Request locks. Return a function that returns the numbers that another process holds."""
        ...

    def take(self, numbers: Iterable[int]) -> set[int]:
        """Acquire locks. Return the numbers that another process holds."""
        return self.ask(numbers)()

    def undo(self) -> None:
        """Release the locks acquired in the transaction that was rolled back."""
        ...

    def holds(self, number: int) -> bool:
        """Return whether this process holds the lock, without interruption since its acquisition."""
        ...

    def release(self, numbers: Iterable[int]) -> None:
        """Release locks after the commit is durable, or immediately if no transaction has begun."""
        ...

    def close(self) -> None:
        """Release all locks."""
        ...


class _File:
    """A file with locked bytes.

    A process loses all its locks on a file when it closes any descriptor of it. Each process therefore opens the file
    once.
    """

    opened: ClassVar[dict[tuple[int, str], _File]] = {}
    door: ClassVar[Lock] = Lock()

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self.users = 0
        self.held: set[int] = set()

    @classmethod
    def of(cls, path: str) -> _File:
        """Return this process's open file. Call `leave` after use."""
        with cls.door:
            file = cls.opened.get((os.getpid(), path))
            if file is None:
                file = cls.opened[os.getpid(), path] = cls(path)
            file.users += 1
            return file

    def leave(self, path: str) -> None:
        with self.door:
            self.users -= 1
            if not self.users:
                os.close(self.fd)
                del self.opened[os.getpid(), path]

    def lock(self, offset: int) -> bool:
        with self.door:
            if offset in self.held:
                return False
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
            except OSError:
                return False
            self.held.add(offset)
            return True

    def unlock(self, offset: int) -> None:
        with self.door:
            self.held.discard(offset)
            fcntl.lockf(self.fd, fcntl.LOCK_UN, 1, offset)


class FileLocks(Locks):
    """Locks on bytes of a file next to the SQLite file."""

    def __init__(self, database: DriverConnection, path: str) -> None:
        self._database = database
        self._path = os.path.realpath(path)
        self._file = _File.of(self._path)
        self._mine: set[int] = set()
        self._new: list[int] = []

    @override
    def ask(self, numbers: Iterable[int]) -> Callable[[], set[int]]:
        denied: set[int] = set()
        for number in numbers:
            if len(self._mine) >= MAX_LOCKS:
                break
            if self._file.lock(number & _OFFSETS):
                self._mine.add(number)
                self._new.append(number)
            else:
                denied.add(number)
        self._database.after_commit(self._new.clear)
        return lambda: denied

    @override
    def undo(self) -> None:
        new, self._new = self._new, []
        self._release(new)

    @override
    def holds(self, number: int) -> bool:
        return number in self._mine

    @override
    def release(self, numbers: Iterable[int]) -> None:
        released = [number for number in numbers if number in self._mine]
        self._database.after_commit(lambda: self._release(released))

    @override
    def close(self) -> None:
        self._release(list(self._mine))
        self._file.leave(self._path)

    def _release(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._mine.discard(number)
            self._file.unlock(number & _OFFSETS)


class SessionLocks(Locks):
    """PostgreSQL's advisory locks of this session. The server releases them when it sees the session end."""

    def __init__(self, database: PostgresqlDriver) -> None:
        self._database = database
        self._mine: dict[int, int] = {}
        self._new: list[int] = []

    @override
    def ask(self, numbers: Iterable[int]) -> Callable[[], set[int]]:
        session = self._database.connected
        if any(mine != session for mine in self._mine.values()):
            self._mine = {number: mine for number, mine in self._mine.items() if mine == session}
        requested = list(dict.fromkeys(numbers))[: MAX_LOCKS - len(self._mine)]
        denied = {number for number in requested if number in self._mine}
        candidates = [number for number in requested if number not in denied]
        if not candidates:
            return lambda: denied
        self._database.peek()
        query = "SELECT n, pg_try_advisory_lock(n) FROM unnest(%(numbers)s::bigint[]) AS requested(n)"
        answer = self._database.exec_driver_sql(query, {"numbers": candidates})

        def read_denied() -> set[int]:
            rows = answer.all()
            taken = [number for number, ours in rows if ours]
            self._mine.update(dict.fromkeys(taken, self._database.connected))
            self._new += taken
            self._database.after_commit(self._new.clear)
            return denied | {number for number, ours in rows if not ours}

        return read_denied

    @override
    def undo(self) -> None:
        new, self._new = self._new, []
        self._unlock(new)

    @override
    def holds(self, number: int) -> bool:
        return self._mine.get(number) == self._database.connected

    @override
    def release(self, numbers: Iterable[int]) -> None:
        released = [number for number in numbers if number in self._mine]
        if released:
            self._database.after_commit(lambda: self._unlock(released))

    @override
    def close(self) -> None:
        """Do nothing: the locks end with the session."""

    def _unlock(self, numbers: Iterable[int]) -> None:
        mine = [number for number in numbers if self._mine.pop(number, None) == self._database.connected]
        if mine:
            self._database.send("SELECT pg_advisory_unlock(n) FROM unnest(%(numbers)s::bigint[]) AS requested(n)", {"numbers": mine})
