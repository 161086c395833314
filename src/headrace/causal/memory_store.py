"""In-memory ordering store, for tests and for consumers whose state ends with their process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from typing_extensions import override

from headrace.causal.memory_state import NEVER, OPEN, MemoryState, claim_of
from headrace.core.ordering.delivery import (
    Claim,
    DeliveryPolicy,
    OfferBatch,
    OrderedEvent,
    ScopeCounters,
    State,
    WaitingEvent,
    released_events,
)
from headrace.ports.ordering_store import RETENTION_MICROS, Followers, OrderingStore

P = ParamSpec("P")
T = TypeVar("T")


def _atomic(method: Callable[Concatenate[MemoryOrderingStore, P], T]) -> Callable[Concatenate[MemoryOrderingStore, P], T]:
    """Make a method atomic."""

    def call(self: MemoryOrderingStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.lock:
            return method(self, *args, **kwargs)

    call.__doc__ = method.__doc__
    return call


class MemoryOrderingStore(MemoryState, OrderingStore):
    """One scope in memory. `lookback` in µs. With `by_age`, events that are older than it on arrival do not wait.

    Handled events are dropped after `retention` (µs). Waiting and retention use the steady clock `ticks` (µs), or
    without it the `now` of each call. Claims of `enter`, `finish` and `take_ready` have no lease: they end with this
    process.
    """

    def __init__(
        self,
        lookback: int,
        *,
        policy: DeliveryPolicy | None = None,
        by_age: bool = True,
        retention: int = RETENTION_MICROS,
        ticks: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(lookback, policy=policy or DeliveryPolicy(), by_age=by_age, retention=retention, ticks=ticks)

    @override
    def enter(self, event: OrderedEvent, now: int) -> Claim | State:
        key = event.key
        with self.lock:
            entry = self._open.get(key)
            if entry is None:
                if key in self._handled:
                    return "handled"
                if key in self._in_hand:
                    return "claimed"
                if event.leader_key is None or event.leader_key in self._handled:
                    self._in_hand.add(key)
                    return Claim(0, event, 0, None, 1, "")
                self.offer([event], now)
                entry = self._open[key]
            clock = self._advance_clock(now)
            if entry.state != "ready" and not (entry.state == "claimed" and entry.due <= clock):
                return entry.state
            return self._claim_entries([entry])[0]

    @override
    def finish(self, claim: Claim, now: int, limit: int) -> Followers | None:
        key = claim.event.key
        with self.lock:
            if not claim.seq:
                if not self._count_handled(claim.event, now):
                    return None
            else:
                entry = self._claimed_entry(claim)
                if entry is None:
                    return None
                self._finish(entry, self._advance_clock(now))
            if key not in self._followers:
                return Followers([])
            followers = self.take_followers(key, limit, now)
            for entry in self._following(key):
                if entry.state == "blocked":
                    self._make_ready(entry, self._clock)
            return followers

    @override
    @_atomic
    def take_ready(self, limit: int, now: int) -> list[Claim]:
        return self._claim_entries(self._pop_due(limit, self._advance_clock(now)))

    @override
    @_atomic
    def take_followers(self, key: bytes, limit: int, now: int) -> Followers:
        clock = self._advance_clock(now)
        free = [entry for entry in self._following(key) if entry.state == "blocked" or (entry.state == "ready" and entry.due <= clock)]
        return Followers(self._claim_entries(free[:limit]), len(free) > limit)

    @override
    @_atomic
    def ready(self, limit: int, now: int) -> list[tuple[OrderedEvent, str | None]]:
        clock = self._advance_clock(now)
        free = sorted((entry.due, entry.position, entry.seq) for entry in self._open.values() if self._is_claimable(entry, clock))
        return [(self._by_seq[seq].event, self._by_seq[seq].mark) for _, _, seq in free[:limit] if self._by_seq[seq].due <= clock]

    @override
    @_atomic
    def renew(self, claims: Sequence[Claim], now: int) -> list[Claim]:
        clock = self._advance_clock(now)
        mine = []
        for claim in claims:
            entry = self._claimed_entry(claim)
            if entry is not None:
                mine.append(claim)
                if entry.state == "claimed" and entry.due != NEVER:
                    self._lease(entry, clock)
        return mine

    @override
    @_atomic
    def offer(self, events: Sequence[OrderedEvent], now: int) -> list[State]:
        batch = OfferBatch(self._order, self._known(events))
        clock = self._advance_clock(now)
        age = self._scope_time(clock)
        for event in events:
            seq = next(self._seqs)
            if event.key not in self._in_hand and batch.add(seq, event):
                self._add(seq, event, age if event.received is None else min(age, event.received - clock + age))
        self._apply_released(batch.decide(age, None, clock - age))
        return [self._state(event.key) or "handled" for event in events]

    @override
    @_atomic
    def expire(self, now: int) -> int:
        age, first, before = self._scope_time(self._advance_clock(now)), self._order.position + 1, self._order.lost
        self._drop_old(age)
        self._apply_released(released_events(self._order.expire(age), first))
        return self._order.lost - before

    @override
    @_atomic
    def claim(self, limit: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        clock, token = self._advance_clock(now), f"{next(self._tokens)}"
        if only is not None:
            taken = [entry for entry in [self._open.get(only)] if entry is not None and self._is_claimable(entry, clock)]
        elif after is not None:
            ready = [entry for key in after for entry in self._following(key) if entry.state == "ready" and entry.due <= clock]
            taken = self._with_blocked(ready[:limit], limit)
        else:
            taken = self._with_blocked(self._pop_due(limit, clock), limit)
        for entry in taken:
            entry.token, entry.attempts = token, entry.attempts + 1
            if entry.state != "blocked":  # a follower that waits only for an event of this claim is claimed and released with it
                self._lease(entry, clock)
        taken.sort(key=lambda entry: entry.position)
        return [claim_of(entry) for entry in taken]

    @override
    @_atomic
    def settle(self, claims: Sequence[Claim], now: int) -> int:
        clock = self._advance_clock(now)
        mine = [entry for entry in map(self._claimed_entry, claims) if entry is not None]
        for entry in mine:
            self._finish(entry, clock)
        self._unblock(mine, clock)
        return len(mine)

    @override
    @_atomic
    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        entry = self._claimed_entry(claim) if claim.seq else self._create_claimed(claim, now)
        if entry is None:
            return False
        entry.error, entry.token = error, ""
        if retry_at is not None:
            self._make_ready(entry, retry_at)
            return True
        entry.state = "dead" if self.policy.dead == "hold" else "skipped"
        if entry.state == "skipped":
            self._unblock([entry], self._advance_clock(now))
        return True

    @override
    @_atomic
    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        clock = self._advance_clock(now)
        for claim in claims:
            entry = self._claimed_entry(claim) if claim.seq else self._create_claimed(claim, now)
            if entry is not None:
                entry.attempts, entry.token = entry.attempts - 1, ""
                if entry.state == "claimed":
                    self._make_ready(entry, clock)

    @override
    @_atomic
    def redrive(self, keys: Sequence[bytes] | None, now: int) -> int:
        clock = self._advance_clock(now)
        chosen = self._open.values() if keys is None else [self._open[key] for key in keys if key in self._open]
        dead = [entry for entry in chosen if entry.state in {"dead", "skipped"}]
        for entry in dead:
            entry.attempts = 0
            self._make_ready(entry, clock)
        return len(dead)

    @override
    @_atomic
    def mark_handled(self, key: bytes, now: int) -> bool:
        clock = self._advance_clock(now)
        entry = self._open.get(key)
        if entry is None or (entry.state == "claimed" and entry.due > clock):
            return False
        if entry.state == "waiting":
            first = self._order.position + 1
            self._apply_released(released_events(self._order.remove(key, self._scope_time(clock)), first))
        self._finish(entry, clock)
        self._unblock([entry], clock)
        return True

    @override
    @_atomic
    def states(self, keys: Sequence[bytes]) -> list[State | None]:
        return [self._state(key) for key in keys]

    @override
    @_atomic
    def followers(self, key: bytes) -> list[OrderedEvent]:
        waits = [entry for entry in self._following(key) if entry.state in {"waiting", "blocked", "ready"}]
        return [entry.event for entry in sorted(waits, key=lambda entry: (entry.event.occurred, entry.event.id))]

    @override
    @_atomic
    def waits(self, limit: int) -> list[WaitingEvent]:
        waiting = sorted((entry for entry in self._open.values() if entry.state in {"waiting", "blocked"}), key=lambda entry: entry.seq)
        ahead = self._clock - self._scope_time(self._clock)
        return [WaitingEvent(entry.event, entry.state, entry.since + ahead) for entry in waiting[:limit]]

    @override
    @_atomic
    def counts(self) -> ScopeCounters:
        states = dict.fromkeys(OPEN, 0)
        for entry in self._open.values():
            states[entry.state] += 1
        return ScopeCounters(
            waiting=states["waiting"],
            blocked=states["blocked"],
            ready=states["ready"],
            claimed=states["claimed"],
            dead=states["dead"] + states["skipped"],
            released=self._order.position,
            handled=self._count,
            lost=self._order.lost,
            late=self._order.late,
            cycles=self._order.cycles,
            held=self._waited,
        )

    @override
    @_atomic
    def next_due(self, now: int | None = None) -> int | None:
        clock = self._clock if now is None else self._advance_clock(now)
        self._drop_stale()
        moments = [self._due[0][0]] if self._due else []
        if (expiry := self._order.next_expiry()) is not None:
            moments.append(expiry + clock - self._scope_time(clock))
        return min(moments, default=None)

    @override
    def close(self) -> None:
        """Do nothing: the store holds no resources."""
