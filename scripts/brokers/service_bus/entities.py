"""Hold the state of queues and subscriptions: messages, locks, sessions and dead letters. Nothing here knows of AMQP.

Each method that depends on time takes `now`, in seconds since the epoch. A caller calls `expire` before the state at `now` is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

MAX_MESSAGE_BYTES: Final = 1024 * 1024
MAX_REASON_CHARACTERS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a queue or subscription."""

    lock_seconds: float = 60.0
    max_delivery_count: int | None = 10
    requires_session: bool = False
    max_message_bytes: int = MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was sent: `content` has the encoded sections from the properties on, which a delivery repeats unchanged."""

    content: bytes
    header: bytes = b"\x40\x40\x40\x40"
    annotations: bytes = b""
    annotation_count: int = 0
    message_id: object = None
    session_id: str | None = None


@dataclass(slots=True, eq=False)
class Stored:
    """A message in a queue or subscription."""

    sequence: int
    message: Message
    enqueued: float
    delivery_count: int = 0
    lock: Lock | None = None
    is_deferred: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """A session: its available messages as a heap of sequence numbers, and the messages of its holder."""

    name: str
    available: list[int] = field(default_factory=list)
    locks: dict[UUID, Lock] = field(default_factory=dict)
    holder: object | None = None
    until: float = 0.0


@dataclass(slots=True, eq=False)
class Lock:
    """A locked message. The lock of a message of a session ends with that of the session."""

    token: UUID
    stored: Stored
    seconds_until: float
    session: Session | None

    @property
    def until(self) -> float:
        """Return when it ends, in seconds since the epoch."""
        return self.session.until if self.session else self.seconds_until


@dataclass(frozen=True, slots=True)
class Expired:
    """The locks that have ended: whether messages are available again, and the former holders of sessions."""

    has_messages: bool
    holders: list[object]


class LockLostError(Exception):
    """A lock has ended, or there never was one."""


class SessionLockedError(Exception):
    """Another receiver has the lock of a session."""


class Entity:
    """A queue or subscription with its dead-letter sub-queue, or such a sub-queue: then `dead_letters` is None.

    `describe_dead` returns a message with the reason and the description as properties.
    """

    def __init__(
        self, name: str, settings: Settings, describe_dead: Callable[[Message, str, str], Message], *, is_sub_queue: bool = False
    ) -> None:
        self.name = name
        self.settings = settings
        self.stored: dict[int, Stored] = {}
        self.sessions: dict[str, Session] = {}
        self.locks: dict[UUID, Lock] = {}
        self.completed = 0
        self.deferred = 0
        self.deliveries = 0
        self.dead_letters: Entity | None = None
        self._describe_dead = describe_dead
        self._available: list[int] = []
        self._expiries: list[tuple[float, int, UUID]] = []
        self._held: dict[str, Session] = {}
        self._ready: dict[str, Session] = {}
        self._last_sequence = 0
        if not is_sub_queue:
            sub_settings = Settings(settings.lock_seconds, None, False, settings.max_message_bytes)
            self.dead_letters = Entity(f"{name}/$DeadLetterQueue", sub_settings, describe_dead, is_sub_queue=True)

    # --- What it has ---

    @property
    def max_message_bytes(self) -> int:
        """Return the limit of a message."""
        return self.settings.max_message_bytes

    def parts(self) -> list[Entity]:
        """Return it and its sub-queue."""
        return [self] if self.dead_letters is None else [self, self.dead_letters]

    @property
    def has_available(self) -> bool:
        """Return whether a message of no session is available."""
        return bool(self._available)

    @property
    def has_ready_session(self) -> bool:
        """Return whether a session without a lock has an available message."""
        return bool(self._ready)

    def counts(self) -> dict[str, object]:
        """Return the number of its messages in each state, and the numbers of completed ones and of deliveries."""
        return {
            "active": len(self.stored) - len(self.locks) - self.deferred,
            "locked": len(self.locks),
            "deferred": self.deferred,
            "dead_letter": len(self.dead_letters.stored) if self.dead_letters else 0,
            "completed": self.completed,
            "deliveries": self.deliveries,
        }

    def browse(self, first: int, limit: int, session: str | None = None) -> list[Stored]:
        """Return at most `limit` messages in the order of their numbers, from the number `first` on, of one session or of all."""
        matching = (stored for stored in self.stored.values() if stored.sequence >= first and session in {None, stored.message.session_id})
        return heapq.nsmallest(limit, matching, key=lambda stored: stored.sequence)

    def session_names(self) -> list[str]:
        """Return the names of the sessions that have messages."""
        return sorted(name for name, session in self.sessions.items() if session.available or session.locks)

    # --- Sending ---

    def add(self, message: Message, now: float) -> None:
        """Store a message. One without a session, where one is required, becomes a dead letter."""
        self._last_sequence += 1
        stored = Stored(self._last_sequence, message, now)
        if self.settings.requires_session and message.session_id is None:
            self._move_to_dead(
                stored, "Session id is null.", "Session enabled entity doesn't allow a message whose session identifier is null."
            )
            return
        self.stored[stored.sequence] = stored
        self.offer(stored)

    def offer(self, stored: Stored) -> None:
        """Make a stored message available."""
        name = stored.message.session_id
        if not self.settings.requires_session or name is None:
            heapq.heappush(self._available, stored.sequence)
            return
        session = self.sessions.setdefault(name, Session(name))
        heapq.heappush(session.available, stored.sequence)
        self._update_ready(session)

    # --- Receiving ---

    def take(self, now: float, session: Session | None = None) -> Lock | None:
        """Lock the first available message, of a locked session if the entity has sessions. Return None if there is none."""
        heap = session.available if session else self._available
        while heap:
            stored = self.stored.get(heapq.heappop(heap))
            if stored is None or stored.lock or stored.is_deferred:
                continue
            lock = stored.lock = Lock(uuid4(), stored, now + self.settings.lock_seconds, session)
            self.locks[lock.token] = lock
            if session:
                session.locks[lock.token] = lock
            else:
                heapq.heappush(self._expiries, (lock.seconds_until, stored.sequence, lock.token))
            self.deliveries += 1
            return lock
        return None

    def holds(self, token: UUID, now: float) -> Lock:
        """Return the lock of a token. Raise `LockLostError` if it has ended."""
        lock = self.locks.get(token)
        if lock is None or lock.until <= now:
            raise LockLostError
        return lock

    def renew(self, tokens: Iterable[UUID], now: float) -> list[float]:
        """Extend locks, all or none, and return when each ends. Raise `LockLostError` if one has ended."""
        locks = [self.holds(token, now) for token in tokens]
        for lock in locks:
            if lock.session is None:
                lock.seconds_until = now + self.settings.lock_seconds
                heapq.heappush(self._expiries, (lock.seconds_until, lock.stored.sequence, lock.token))
        return [lock.until for lock in locks]

    # --- Settlement ---

    def complete(self, lock: Lock) -> None:
        """Remove a locked message."""
        self._unlock(lock)
        self._remove(lock.stored)
        self.completed += 1

    def release(self, lock: Lock, *, counts: bool) -> None:
        """Make a locked message available again. If that counts as a delivery, it may become a dead letter."""
        self._unlock(lock)
        stored, limit = lock.stored, self.settings.max_delivery_count
        stored.delivery_count += counts
        if limit is not None and stored.delivery_count >= limit:
            description = f"Message could not be consumed after {stored.delivery_count} delivery attempts."
            self._remove(stored)
            self._move_to_dead(stored, "MaxDeliveryCountExceeded", description)
        else:
            self.offer(stored)

    def defer(self, lock: Lock) -> None:
        """Keep a locked message, but deliver it no more."""
        self._unlock(lock)
        lock.stored.is_deferred = True
        self.deferred += 1

    def bury(self, lock: Lock, reason: str, description: str) -> None:
        """Move a locked message to the dead letters. In that sub-queue, it stays where it is."""
        self._unlock(lock)
        if self.dead_letters is None:
            self.offer(lock.stored)
            return
        self._remove(lock.stored)
        self._move_to_dead(lock.stored, reason, description)

    # --- Sessions ---

    def accept(self, name: str | None, holder: object, now: float) -> Session | None:
        """Lock a session, or the next available one if `name` is None: then return None if there is none.

        Raise `SessionLockedError` if the named session is locked.
        """
        if name is None:
            if not self._ready:
                return None
            session = self._ready[next(iter(self._ready))]
        else:
            session = self.sessions.get(name) or Session(name)
            if session.holder is not None:
                raise SessionLockedError(name)
        self.sessions[session.name] = self._held[session.name] = session
        session.holder = holder
        session.until = now + self.settings.lock_seconds
        self._ready.pop(session.name, None)
        return session

    def renew_session(self, name: str, now: float) -> float:
        """Extend the lock of a session, and return when it ends. Raise `LockLostError` if it has ended."""
        session = self._held.get(name)
        if session is None or session.until <= now:
            raise LockLostError
        session.until = now + self.settings.lock_seconds
        return session.until

    def end_session(self, session: Session, *, counts: bool) -> None:
        """End the lock of a session. The messages that its holder did not settle are available again.

        That counts as a delivery if the lock has expired, and not if the session was given back.
        """
        self._held.pop(session.name, None)
        session.holder = None
        for lock in list(session.locks.values()):
            self.release(lock, counts=counts)
        self._update_ready(session)
        if not session.available:
            self.sessions.pop(session.name, None)

    # --- Time ---

    def expire(self, now: float) -> Expired:
        """End the locks that are due."""
        has_messages, holders = False, list[object]()
        while self._expiries and self._expiries[0][0] <= now:
            lock = self.locks.get(heapq.heappop(self._expiries)[2])
            if lock is not None and lock.until <= now:
                self.release(lock, counts=True)
                has_messages = True
        for session in [session for session in self._held.values() if session.until <= now]:
            holders.append(session.holder)
            self.end_session(session, counts=True)
            has_messages = True
        return Expired(has_messages, holders)

    # --- Private ---

    def _update_ready(self, session: Session) -> None:
        if session.available and session.holder is None:
            self._ready.setdefault(session.name, session)
        else:
            self._ready.pop(session.name, None)

    def _unlock(self, lock: Lock) -> None:
        del self.locks[lock.token]
        lock.stored.lock = None
        if lock.session:
            del lock.session.locks[lock.token]

    def _remove(self, stored: Stored) -> None:
        del self.stored[stored.sequence]

    def _move_to_dead(self, stored: Stored, reason: str, description: str) -> None:
        target = self.dead_letters
        if target is None:
            return
        message = self._describe_dead(stored.message, reason[:MAX_REASON_CHARACTERS], description[:MAX_REASON_CHARACTERS])
        target.stored[stored.sequence] = moved = Stored(stored.sequence, message, stored.enqueued, stored.delivery_count)
        target.offer(moved)
