"""What a home of the ordering does: a few atomic operations on one scope. All times are µs on the scope's clock, given by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.core.handling import Caused, Claim, Counts, HandlingPolicy, State, Wait


class OrderingHome(Protocol):
    """One scope. Any number of threads and, where the home is durable, of processes may use it at once; each call is atomic."""

    policy: HandlingPolicy

    def offer(self, events: Sequence[Caused], now: int) -> list[State]:
        """Take events; return what each is now. One that was here before changes nothing."""
        ...

    def expire(self, now: int) -> int:
        """Give up on leaders that did not come within the lookback; return how many events were released as lost."""
        ...

    def claim(self, most: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        """Claim up to `most` events in order of position: of those that are ready, and of those that only wait for one in this claim.

        With `after`, only what follows these events, and what is below that; with `only`, one event and nothing below it, and at once,
        even if it was to be tried again later.
        """
        ...

    def settle(self, claims: Sequence[Claim], now: int) -> int:
        """Count claims as handled, and make ready what they blocked; return how many still were the caller's."""
        ...

    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        """Let a claim be tried again at `retry_at`, or count it as dead (None). False: it was not the caller's any more."""
        ...

    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        """Let claims go that were not tried."""
        ...

    def redrive(self, keys: Sequence[bytes] | None, now: int) -> int:
        """Try what is dead again (None: all of it); return how many there were."""
        ...

    def forget(self, key: bytes, now: int) -> bool:
        """Count an event that is not handled yet, and in nobody's hands, as handled; whether there was one."""
        ...

    def states(self, keys: Sequence[bytes]) -> list[State | None]:
        """Return what each event is now; None for one that never came."""
        ...

    def followers(self, key: bytes) -> list[Caused]:
        """Return the events that wait for this one, in order of (occurred, id)."""
        ...

    def waits(self, limit: int) -> list[Wait]:
        """Return what waits, the longest first."""
        ...

    def counts(self) -> Counts:
        """Return what the scope came to."""
        ...

    def next_due(self) -> int | None:
        """Return when there is something to claim, or to expire, if nothing comes before."""
        ...

    def close(self) -> None:
        """Let go of what the home holds open."""
        ...
