"""Locks on events in hand: they end with the process that has them, so no clock says who may handle an event.

A lease alone cannot tell a slow handler from a dead one, and is wrong where clocks are apart. A claim by rows is therefore taken up under
the lock of its event; an event that came a moment ago, of which no row says anything, is in hand by its lock alone.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from threading import Lock
from typing import ClassVar, Final, Protocol

from typing_extensions import override

from headrace.store.dialects.driver import DriverConnection, PostgresqlDriver

MOST_LOCKS: Final = 500
"""So many are held by one ordering at once: PostgreSQL has some thousands for all its sessions. What is beyond goes by its lease."""
_OFFSETS: Final = (1 << 62) - 1


class Locks(Protocol):
    """Locks by number (64 bits, signed). They are used by one thread."""

    def ask(self, numbers: Iterable[int]) -> Callable[[], set[int]]:
        """Ask for locks; what is returned tells, when called, which of them another process has."""
        ...

    def take(self, numbers: Iterable[int]) -> set[int]:
        """Take locks; return which of them another process has."""
        return self.ask(numbers)()

    def undo(self) -> None:
        """Release the locks of the transaction that was undone."""
        ...

    def holds(self, number: int) -> bool:
        """Whether a lock is ours, and was without a break."""
        ...

    def release(self, numbers: Iterable[int]) -> None:
        """Release locks when the transaction is durable, or at once if none has begun."""
        ...

    def close(self) -> None:
        """Release all locks."""
        ...


class _File:
    """A file whose bytes are locked. A process loses all of its locks when it closes the file once, so it opens it once."""

    opened: ClassVar[dict[tuple[int, str], _File]] = {}
    door: ClassVar[Lock] = Lock()

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self.users = 0
        self.held: set[int] = set()

    @classmethod
    def of(cls, path: str) -> _File:
        """Return the file of this process; `leave` it when done."""
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
    """Locks on bytes of a file beside the SQLite file."""

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
            if len(self._mine) >= MOST_LOCKS:
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
        gone = [number for number in numbers if number in self._mine]
        self._database.after_commit(lambda: self._release(gone))

    @override
    def close(self) -> None:
        self._release(list(self._mine))
        self._file.leave(self._path)

    def _release(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._mine.discard(number)
            self._file.unlock(number & _OFFSETS)


class SessionLocks(Locks):
    """PostgreSQL's advisory locks of our session: gone when it ends, as the server sees it."""

    def __init__(self, database: PostgresqlDriver) -> None:
        self._database = database
        self._mine: dict[int, int] = {}
        self._new: list[int] = []

    @override
    def ask(self, numbers: Iterable[int]) -> Callable[[], set[int]]:
        session = self._database.connected
        if any(mine != session for mine in self._mine.values()):
            self._mine = {number: mine for number, mine in self._mine.items() if mine == session}
        wanted = list(dict.fromkeys(numbers))[: MOST_LOCKS - len(self._mine)]
        denied = {number for number in wanted if number in self._mine}
        asked = [number for number in wanted if number not in denied]
        if not asked:
            return lambda: denied
        self._database.peek()
        query = "SELECT n, pg_try_advisory_lock(n) FROM unnest(%(numbers)s::bigint[]) AS given(n)"
        answer = self._database.exec_driver_sql(query, {"numbers": asked})

        def told() -> set[int]:
            rows = answer.all()
            taken = [number for number, ours in rows if ours]
            self._mine.update(dict.fromkeys(taken, self._database.connected))
            self._new += taken
            self._database.after_commit(self._new.clear)
            return denied | {number for number, ours in rows if not ours}

        return told

    @override
    def undo(self) -> None:
        new, self._new = self._new, []
        self._unlock(new)

    @override
    def holds(self, number: int) -> bool:
        return self._mine.get(number) == self._database.connected

    @override
    def release(self, numbers: Iterable[int]) -> None:
        gone = [number for number in numbers if number in self._mine]
        if gone:
            self._database.after_commit(lambda: self._unlock(gone))

    @override
    def close(self) -> None:
        """Leave them to the end of the session."""

    def _unlock(self, numbers: Iterable[int]) -> None:
        mine = [number for number in numbers if self._mine.pop(number, None) == self._database.connected]
        if mine:
            self._database.send("SELECT pg_advisory_unlock(n) FROM unnest(%(numbers)s::bigint[]) AS given(n)", {"numbers": mine})
