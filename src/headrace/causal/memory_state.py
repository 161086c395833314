"""State of the in-memory ordering store, and its transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, takewhile
from threading import RLock
from typing import Final

from headrace.core.ordering.causal_order import CausalOrder
from headrace.core.ordering.delivery import Claim, DeliveryPolicy, OfferBatch, OrderedEvent, ReleasedEvent, State

NEVER: Final = 1 << 62
_AHEAD_MICROS: Final = 5_000_000
_EXPIRE_INTERVAL: Final = 256
OPEN: Final[tuple[State, ...]] = ("waiting", "blocked", "ready", "claimed", "dead", "skipped")


@dataclass(slots=True)
class Entry:
    """One event that is not handled yet."""

    seq: int
    event: OrderedEvent
    since: int
    state: State = "waiting"
    position: int = 0
    mark: str | None = None
    due: int = 0
    attempts: int = 0
    token: str = ""
    error: str | None = None


class MemoryState:
    """One scope in memory. Call its methods under `lock`."""

    def __init__(
        self, lookback: int, *, policy: DeliveryPolicy, by_age: bool, retention: int, ticks: Callable[[], int] | None = None
    ) -> None:
        self.policy = policy
        self.lock = RLock()
        self._order = CausalOrder(lookback, by_age=by_age)
        self._retention = max(retention, lookback)
        self._clock = 0
        self._ticks = ticks
        self._offset: int | None = None  # of the scope time from the steady clock
        self._seqs = count(1)
        self._tokens = count(1)
        self._open: dict[bytes, Entry] = {}
        self._by_seq: dict[int, Entry] = {}
        self._in_hand: set[bytes] = set()  # claimed on arrival, without waiting; they have no entry
        self._handled: dict[bytes, int] = {}  # -> time of handling, oldest first
        self._count = 0
        self._followers: dict[bytes, dict[bytes, Entry]] = {}
        self._due: list[tuple[int, int, bytes]] = []
        self._waited = 0

    def _advance_clock(self, now: int) -> int:
        if now + _AHEAD_MICROS < self._clock:
            self._set_clock_back(now)
        elif now > self._clock:
            self._clock = now
        return self._clock

    def _scope_time(self, clock: int) -> int:
        """Return the scope time. It starts at the wall clock's time, and later changes of the wall clock do not move it."""
        if self._ticks is None:
            return clock
        if self._offset is None:
            self._offset = clock - self._ticks()
        return self._offset + self._ticks()

    def _set_clock_back(self, now: int) -> None:
        """Set the clock back, because an earlier call passed a time in the future."""
        self._clock = now
        if self._ticks is None:
            self._order.turn_back(now)
        for entry in self._open.values():
            if self._ticks is None:
                entry.since = min(entry.since, now)
            if entry.state == "ready" and entry.due > now:
                self._make_ready(entry, now)
            elif entry.state == "claimed" and now + self.policy.lease < entry.due < NEVER:
                self._lease(entry, now)

    def _count_handled(self, event: OrderedEvent, now: int) -> bool:
        """Count an event without an entry as handled, and release its followers."""
        key = event.key
        self._in_hand.discard(key)
        if key in self._handled or key in self._open:
            return False
        if key not in self._followers and not self._order.is_given_up(key):
            self._order.position += 1
            self._remember(key, self._scope_time(now))
            return True
        known = self._known([event])
        if event.leader_key is not None:
            known.setdefault(event.leader_key, "handled")
        batch, clock = OfferBatch(self._order, known), self._advance_clock(now)
        batch.add(next(self._seqs), event, passes=True)
        age = self._scope_time(clock)
        self._apply_released(batch.decide(age, None, clock - age))
        self._remember(key, age)
        return True

    def _create_claimed(self, claim: Claim, now: int) -> Entry | None:
        """Create the entry of a claim that had none."""
        event = claim.event
        self._in_hand.discard(event.key)
        if event.key in self._handled or event.key in self._open:
            return None
        known = self._known([event])
        if event.leader_key is not None:
            known.setdefault(event.leader_key, "handled")
        batch, clock, seq = OfferBatch(self._order, known), self._advance_clock(now), next(self._seqs)
        batch.add(seq, event)
        age = self._scope_time(clock)
        entry = self._add(seq, event, age)
        self._apply_released(batch.decide(age, None, clock - age))
        entry.state, entry.attempts = "claimed", 1
        return entry

    def _add(self, seq: int, event: OrderedEvent, since: int) -> Entry:
        entry = self._open[event.key] = self._by_seq[seq] = Entry(seq, event, since)
        if event.leader_key is not None:
            self._followers.setdefault(event.leader_key, {})[event.key] = entry
        return entry

    def _claim_entries(self, entries: Iterable[Entry]) -> list[Claim]:
        """Claim entries until they are finished, failed or released."""
        claims = []
        for entry in entries:
            entry.state, entry.due, entry.attempts, entry.token = "claimed", NEVER, entry.attempts + 1, f"{next(self._tokens)}"
            claims.append(claim_of(entry))
        return claims

    def _remember(self, key: bytes, age: int) -> None:
        self._handled[key] = age
        self._count += 1
        if not self._count % _EXPIRE_INTERVAL:
            self._drop_old(age)

    def _drop_old(self, age: int) -> None:
        """Drop handled events that are older than the retention."""
        old = takewhile(lambda one: one[1] + self._retention <= age, self._handled.items())
        for key in [key for key, _ in old]:
            del self._handled[key]

    def _known(self, events: Iterable[OrderedEvent]) -> dict[bytes, State]:
        keys = {key for event in events for key in (event.key, event.leader_key) if key is not None}
        # An event that is being handled does not count as known: its followers wait, and so get positions after it.
        return {key: state for key in keys if key not in self._in_hand and (state := self._state(key)) is not None}

    def _state(self, key: bytes) -> State | None:
        if (entry := self._open.get(key)) is not None:
            return entry.state
        if key in self._in_hand:
            return "claimed"
        return "handled" if key in self._handled else None

    def _apply_released(self, released: Iterable[ReleasedEvent]) -> None:
        for event in released:
            entry = self._by_seq[event.seq]
            entry.position, entry.mark = event.position, event.mark
            self._waited += event.waited
            if event.blocked:
                entry.state = "blocked"
            else:
                self._make_ready(entry, self._clock)

    def _make_ready(self, entry: Entry, due: int) -> None:
        entry.state, entry.due = "ready", due
        heappush(self._due, (due, entry.position, entry.event.key))

    def _lease(self, entry: Entry, clock: int) -> None:
        entry.state, entry.due = "claimed", clock + self.policy.lease
        heappush(self._due, (entry.due, entry.position, entry.event.key))

    def _is_claimable(self, entry: Entry, clock: int) -> bool:
        return entry.state == "ready" or (entry.state == "claimed" and entry.due <= clock)

    def _drop_stale(self) -> None:
        while self._due:
            due, _, key = self._due[0]
            entry = self._open.get(key)
            if entry is not None and entry.due == due and entry.state in {"ready", "claimed"}:
                return
            heappop(self._due)

    def _pop_due(self, limit: int, clock: int) -> list[Entry]:
        entries: dict[bytes, Entry] = {}
        while len(entries) < limit:
            self._drop_stale()
            if not self._due or self._due[0][0] > clock:
                break
            key = heappop(self._due)[2]
            entries[key] = self._open[key]
        return list(entries.values())

    def _following(self, key: bytes) -> list[Entry]:
        return sorted(self._followers.get(key, {}).values(), key=lambda entry: entry.position)

    def _with_blocked(self, ready: list[Entry], limit: int) -> list[Entry]:
        taken = ready[:limit]
        for entry in taken:  # a worklist: it grows in the loop
            if len(taken) >= limit:
                break
            taken += [below for below in self._following(entry.event.key) if below.state == "blocked"][: limit - len(taken)]
        return taken

    def _claimed_entry(self, claim: Claim) -> Entry | None:
        entry = self._open.get(claim.event.key)
        return entry if entry is not None and entry.state in {"claimed", "blocked"} and entry.token == claim.token else None

    def _finish(self, entry: Entry, clock: int) -> None:
        del self._open[entry.event.key], self._by_seq[entry.seq]
        self._remember(entry.event.key, self._scope_time(clock))
        if entry.event.leader_key is not None:
            siblings = self._followers[entry.event.leader_key]
            del siblings[entry.event.key]
            if not siblings:
                del self._followers[entry.event.leader_key]

    def _unblock(self, done: Iterable[Entry], clock: int) -> None:
        """Make the followers of these entries ready. A follower in the same claim gets a lease instead."""
        for leader in done:
            for entry in self._following(leader.event.key):
                if entry.state == "blocked" and entry.token and entry.token == leader.token:
                    self._lease(entry, clock)
                elif entry.state == "blocked":
                    self._make_ready(entry, clock)


def claim_of(entry: Entry) -> Claim:
    """Return the claim of an entry."""
    return Claim(entry.seq, entry.event, entry.position, entry.mark, entry.attempts, entry.token)
