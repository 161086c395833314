"""What a home of the ordering does: a few atomic operations on one scope. All times are µs on the scope's clock, given by the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from headrace.core.ordering.handling import Claim, DeliveryPolicy, OrderedEvent, ScopeCounters, State, WaitingEvent

T = TypeVar("T")
RETENTION_MICROS: Final = 7 * 86_400_000_000
"""So long, in µs, a home of its own remembers what was handled."""
EXPIRED_EVENTS: Final = 1_000
"""So many events are released as lost in one transaction: the others wait for the writers' lock meanwhile."""


class Followers(NamedTuple):
    """Claims of events that follow one that was handled; `more`: ask `take_followers` for the others."""

    claims: list[Claim]
    more: bool = False


class OrderingStore(Protocol):
    """One scope. Any number of threads and, where the home is durable, of processes may use it at once; each call is atomic."""

    policy: DeliveryPolicy

    def offer(self, events: Sequence[OrderedEvent], now: int) -> list[State]:
        """Take events; return what each is now. One that was here before changes nothing."""
        ...

    def expire(self, now: int) -> int:
        """Give up on leaders that did not come within the lookback; return how many events were released as lost."""
        ...

    def expire_some(self, now: int) -> int:
        """Do as much of `expire` as one transaction should; fewer than EXPIRED_EVENTS were released when that was all."""
        return self.expire(now)

    def release_some(self, now: int) -> bool:
        """Make some followers ready that earlier transactions left to later ones; False if there were none."""
        del now
        return False

    def claim(self, most: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        """Claim up to `most` events in order of position: of those that are ready, and of those that only wait for one in this claim.

        With `after`, only what follows these events, and what is below that; with `only`, one event and nothing below it, and at once,
        even if it waited for a retry.
        """
        ...

    def enter(self, event: OrderedEvent, now: int) -> Claim | State:
        """Take one event and claim it, if it is ready; otherwise return what it is now."""
        (state,) = self.offer([event], now)
        claims = self.claim(1, now, only=event.key)
        return claims[0] if claims else state

    def finish(self, claim: Claim, now: int, most: int) -> Followers | None:
        """Count a claim as handled, and claim up to `most` events that follow it. Return None if it was not the caller's any more."""
        if not self.settle([claim], now):
            return None
        return self.take_followers(claim.event.key, most, now)

    def take_ready(self, most: int, now: int) -> list[Claim]:
        """Claim up to `most` events that are ready, to be given to `finish`, `fail` or `give_back` one by one."""
        return self.claim(most, now)

    def take_followers(self, key: bytes, most: int, now: int) -> Followers:
        """Claim up to `most` events that follow one that was handled, as `take_ready` does. There may be more although it claims fewer."""
        claims = self.claim(most, now, after=[key])
        return Followers(claims, len(claims) >= most)

    def drop(self, claim: Claim) -> None:
        """Release the locks of a claim whose outcome the store may not know. Its lease says when it is redelivered."""
        del claim

    def ready(self, most: int, now: int) -> list[tuple[OrderedEvent, str | None]]:
        """Return up to `most` events that may be claimed, each with its mark."""
        ...

    def renew(self, claims: Sequence[Claim], now: int) -> list[Claim]:
        """Renew the leases of claims; return the claims that are still the caller's."""
        ...

    def settle(self, claims: Sequence[Claim], now: int) -> int:
        """Count claims as handled, and make ready what they blocked; return how many still were the caller's."""
        ...

    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        """Retry a claim at `retry_at`, or mark it dead (None). Return False if it is not the caller's any more."""
        ...

    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        """Release claims that were not tried."""
        ...

    def redrive(self, keys: Sequence[bytes] | None, now: int) -> int:
        """Try what is dead again (None: all of it); return how many there were."""
        ...

    def forget(self, key: bytes, now: int) -> bool:
        """Count an event that is not handled yet, and not in hand, as handled; return whether there was one."""
        ...

    def states(self, keys: Sequence[bytes]) -> list[State | None]:
        """Return what each event is now; None for one that never came."""
        ...

    def followers(self, key: bytes) -> list[OrderedEvent]:
        """Return the events that wait for this one, in order of (occurred, id)."""
        ...

    def waits(self, limit: int) -> list[WaitingEvent]:
        """Return what waits, the longest first."""
        ...

    def counts(self) -> ScopeCounters:
        """Return what the scope came to."""
        ...

    def next_due(self, now: int | None = None) -> int | None:
        """Return when there is something to claim, or to expire, if nothing comes before; `now`, if the scope's clock was ahead of it."""
        ...

    def close(self) -> None:
        """Close what the store holds open."""
        ...


@runtime_checkable
class QueuedOrderingStore(OrderingStore, Protocol):
    """A home with a thread of its own, and with a clock by which all processes on it go."""

    @property
    def clock(self) -> Callable[[], int]:
        """The clock, in µs since the epoch."""
        ...

    def submit(self, method: Callable[..., T], *given: object) -> Future[T]:
        """Run a method of the home in its thread."""
        ...
