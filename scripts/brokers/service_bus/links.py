"""What the links of a connection are for, and how they are answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from proton import Condition, Delivery, Described, Link, symbol  # type: ignore[import-not-found]

from .codec import render
from .entities import Entity, LockLostError, Session
from .namespace import Topic

NOT_ALLOWED, NOT_FOUND, LOCK_LOST = "amqp:not-allowed", "amqp:not-found", "com.microsoft:message-lock-lost"
SESSION_FILTER: Final = "com.microsoft:session-filter"
LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
MAX_ENDED: Final = 1_000
TICKS_PER_SECOND: Final = 10_000_000
TICKS_OF_EPOCH: Final = 621_355_968_000_000_000


@dataclass(slots=True, eq=False)
class Sending:
    """A client sends to an entity."""

    link: Any
    entity: Entity | Topic


@dataclass(slots=True, eq=False)
class Requests:
    """A client sends requests to a node, or gets the answers."""

    link: Any
    path: str
    entity: Entity | Topic | None


@dataclass(slots=True, eq=False)
class Accepting:
    """A client waits for the next available session."""

    link: Any
    entity: Entity
    until: float


@dataclass(slots=True, eq=False)
class Receiving:
    """A client receives from an entity, or from one of its sessions."""

    link: Any
    entity: Entity
    session: Session | None
    is_silent: bool = False
    settles: bool = field(init=False)

    unsettled: dict[UUID, Any] = field(default_factory=dict)
    ended: dict[UUID, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read whether the client settles messages itself."""
        self.settles = self.link.remote_snd_settle_mode != Link.SND_SETTLED

    @property
    def credit(self) -> int:
        """Return how many messages the client takes."""
        return 0 if self.is_silent else int(self.link.credit)

    def send(self, now: float) -> bool:
        """Lock the next available message and deliver it. Return whether there was one."""
        lock = self.entity.take(now, self.session)
        if lock is None:
            return False
        delivery = self.link.delivery(lock.token.bytes_le)
        self.link.stream(render(lock.stored, lock))
        self.link.advance()
        if self.settles:
            delivery.token = lock.token
            self.unsettled[lock.token] = delivery
        else:
            delivery.settle()
            self.entity.complete(lock)
        return True

    def settle(self, delivery: Any, now: float) -> bool:
        """Apply the outcome that the client gives, and answer it. Return whether a message became available."""
        state = delivery.remote_state
        if not state or state == Delivery.RECEIVED:
            if delivery.settled:
                delivery.settle()
            return False
        token = delivery.token
        self.unsettled.pop(token, None)
        self.ended.pop(token, None)
        try:
            is_available = self._apply(delivery, state, self.entity.holds(token, now))
        except LockLostError:
            text = "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
            reject(delivery, LOCK_LOST, text)
            return False
        delivery.local.failed, delivery.local.undeliverable = delivery.remote.failed, delivery.remote.undeliverable
        delivery.update(state)
        delivery.settle()
        return is_available

    def _apply(self, delivery: Any, state: int, lock: Any) -> bool:
        if state == Delivery.ACCEPTED:
            self.entity.complete(lock)
            return False
        if state == Delivery.REJECTED:
            condition = delivery.remote.condition
            info = {str(key): value for key, value in ((condition.info if condition else None) or {}).items()}
            reason = info.get("DeadLetterReason") or ""
            self.entity.bury(lock, str(reason), str(info.get("DeadLetterErrorDescription") or ""))
        elif state == Delivery.MODIFIED and delivery.remote.undeliverable:
            self.entity.defer(lock)
        else:
            self.entity.release(lock, counts=state == Delivery.MODIFIED and delivery.remote.failed)
        return True

    def end(self, token: UUID) -> None:
        """End a delivery whose message was settled by a management request.

        The last ones stay unsettled for a while: a client that settles one of them too is answered that its lock is lost.
        """
        delivery = self.unsettled.pop(token, None)
        if delivery is not None:
            self.ended[token] = delivery
        if len(self.ended) > MAX_ENDED:
            self.ended.pop(next(iter(self.ended))).settle()


def session_filter(link: Any) -> tuple[bool, str | None]:
    """Return whether a receiver asks for a session, and which one, or None for the next available one."""
    data = link.remote_source.filter
    data.rewind()
    filters = (data.get_object() if data.next() else None) or {}
    if SESSION_FILTER not in filters:
        return False, None
    value = filters[SESSION_FILTER]
    return True, value.value if isinstance(value, Described) else value


def echo(link: Any, session: Session | None = None) -> None:
    """Attach a link as the client asks for it; with a session, state its name and until when it is locked."""
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode
    if session:
        link.source.filter.clear()
        link.source.filter.put_object({symbol(SESSION_FILTER): session.name})
        link.properties = {symbol(LOCKED_UNTIL): int(session.until * TICKS_PER_SECOND) + TICKS_OF_EPOCH}
    link.open()


def error(condition: str, text: str) -> Any:
    """Return an error. The client library fails to read one without information."""
    return Condition(condition, text, {symbol("tracking-id"): "headrace"})


def close(link: Any, condition: str, text: str) -> None:
    """Close a link with an error."""
    link.condition = error(condition, text)
    link.close()


def reject(delivery: Any, condition: str, text: str) -> None:
    """Answer a message or a settlement with an error."""
    delivery.local.condition = error(condition, text)
    delivery.update(Delivery.REJECTED)
    delivery.settle()
