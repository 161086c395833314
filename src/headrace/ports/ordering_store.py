"""The operations of an ordering store: atomic operations on one scope. All times are µs on the scope's clock,
passed by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from headrace.core.ordering.delivery import Claim, DeliveryPolicy, OrderedEvent, ScopeCounters, State, WaitingEvent

T = TypeVar("T")
RETENTION_MICROS: Final = 7 * 86_400_000_000
"""Microseconds for which a store without a log remembers handled events."""
EXPIRED_EVENTS: Final = 1_000
"""Maximum number of events released as lost in one transaction, so that other writers do not wait long for the lock."""


class Followers(NamedTuple):
    """Claims of events that follow a handled one. `more`: call `take_followers` for the others."""

    claims: list[Claim]
    more: bool = False


class OrderingStore(Protocol):
    """One scope. Any number of threads may use it concurrently, and of processes if the store is durable. Each call is atomic."""

    policy: DeliveryPolicy

    def offer(self, events: Sequence[OrderedEvent], now: int) -> list[State]:
        """Add events; return the state of each. A known event changes nothing."""
        ...

    def expire(self, now: int) -> int:
        """Expire leaders that did not arrive within the lookback; return the number of events released as lost."""
        ...

    def expire_some(self, now: int) -> int:
        """Do one transaction of `expire`. It is complete if fewer than EXPIRED_EVENTS were released."""
        return self.expire(now)

    def release_some(self, now: int) -> bool:
        """Release followers that earlier transactions left to later ones. Return False if there were none."""
        del now
        return False

    def claim(self, limit: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        """Claim up to `limit` events in order of position: ready ones, and events that only wait for one in this
        claim.

        With `after`, claim only followers of these events, and events below those. With `only`, claim one event and
        nothing below it, even if it waits for a retry.
        """
        ...

    def enter(self, event: OrderedEvent, now: int) -> Claim | State:
        """Add one event and claim it, if it is ready; otherwise return its state."""
        (state,) = self.offer([event], now)
        claims = self.claim(1, now, only=event.key)
        return claims[0] if claims else state

    def finish(self, claim: Claim, now: int, limit: int) -> Followers | None:
        """Settle a claim as handled, and claim up to `limit` followers. Return None if the caller no longer holds it."""
        if not self.settle([claim], now):
            return None
        return self.take_followers(claim.event.key, limit, now)

    def take_ready(self, limit: int, now: int) -> list[Claim]:
        """Claim up to `limit` ready events, to pass to `finish`, `fail` or `give_back` one by one."""
        return self.claim(limit, now)

    def take_followers(self, key: bytes, limit: int, now: int) -> Followers:
        """Claim up to `limit` followers of a handled event, as `take_ready` does. There may be more although it claims fewer."""
        claims = self.claim(limit, now, after=[key])
        return Followers(claims, len(claims) >= limit)

    def drop(self, claim: Claim) -> None:
        """Release the locks of a claim whose outcome the store may not have. The event is redelivered when the lease expires."""
        del claim

    def ready(self, limit: int, now: int) -> list[tuple[OrderedEvent, str | None]]:
        """Return up to `limit` claimable events, each with its mark."""
        ...

    def renew(self, claims: Sequence[Claim], now: int) -> list[Claim]:
        """Renew the leases of claims; return the claims that the caller still holds."""
        ...

    def settle(self, claims: Sequence[Claim], now: int) -> int:
        """Settle claims as handled, and release the events that they blocked; return how many claims the caller still held."""
        ...

    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        """Retry a claim at `retry_at`, or mark it dead (None). Return False if the caller no longer holds it."""
        ...

    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        """Release claims that were not tried."""
        ...

    def redrive(self, keys: Sequence[bytes] | None, now: int) -> int:
        """Redrive these dead events, or all if None; return their number."""
        ...

    def mark_handled(self, key: bytes, now: int) -> bool:
        """Settle an unhandled and unclaimed event as handled; return whether there was one."""
        ...

    def states(self, keys: Sequence[bytes]) -> list[State | None]:
        """Return the state of each event, or None for an unknown one."""
        ...

    def followers(self, key: bytes) -> list[OrderedEvent]:
        """Return the events that wait for this one, in order of (occurred, id)."""
        ...

    def waits(self, limit: int) -> list[WaitingEvent]:
        """Return the waiting events, the longest wait first."""
        ...

    def counts(self) -> ScopeCounters:
        """Return the counters of the scope."""
        ...

    def next_due(self, now: int | None = None) -> int | None:
        """Return the time of the next claim or expiry if nothing arrives before. It is `now` if the scope's clock was ahead."""
        ...

    def close(self) -> None:
        """Close the resources of the store."""
        ...


@runtime_checkable
class QueuedOrderingStore(OrderingStore, Protocol):
    """A store with a thread of its own, and with a clock that all its processes share."""

    @property
    def clock(self) -> Callable[[], int]:
        """The clock, in µs since the epoch."""
        ...

    def submit(self, method: Callable[..., T], *arguments: object) -> Future[T]:
        """Run a method of the store in its thread."""
        ...
