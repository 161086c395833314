"""Handling of released events: no follower is handled before its leader.

The law:

- A released event is *ready* when its leader is handled, or counts as handled, and *blocked* before. An event that is released as lost,
  or from a cycle, is ready immediately.
- A ready event can be claimed for the duration of a lease, together with the events that it blocks, to a requested depth. The claimer
  handles a part of a tree in order of position. After the end of the lease it can be claimed again, and the earlier claim is invalid.
- A failed event keeps its followers blocked, and is retried after increasing waits. After too many attempts it is *dead*. Then the policy
  decides about its followers: `hold` blocks them until it is redriven, `release` makes them ready (it is *skipped*).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from headrace.core.identity import event_key
from headrace.core.ordering.causal_order import CYCLE, LOST, CausalOrder, Offered, Released

State: TypeAlias = Literal["waiting", "blocked", "ready", "claimed", "dead", "skipped", "handled"]
DeadPolicy: TypeAlias = Literal["hold", "release"]

_FREE: Final = frozenset({LOST, CYCLE})
_PASSED: Final = frozenset({"skipped", "handled"})


class OrderedEvent(NamedTuple):
    """An event for an ordering store: its identity, its leader, its time (µs), and its body, which the store does not read.

    `key` identifies (source, id), and `leader_key` its leader, if it follows another event. `received` (µs) is its arrival, if that was
    before its offer: its age and its wait count from then. Create one with `of`.
    """

    source: str
    id: str
    follows: str | None
    occurred: int
    body: str | None
    key: bytes
    leader_key: bytes | None
    received: int | None = None

    @classmethod
    def of(cls, source: str, id: str, follows: str | None, occurred: int, body: str | None = None, received: int | None = None) -> Self:
        """Return an event with its keys."""
        leader = None if follows is None or follows == id else event_key(source, follows)
        return cls(source, id, follows, occurred, body, event_key(source, id), leader, received)


class Claim(NamedTuple):
    """A claimed event. `token` identifies the claim; `attempts` includes this one. `seq` is 0 if the event is not stored."""

    seq: int
    event: OrderedEvent
    position: int
    mark: str | None
    attempts: int
    token: str


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event that waits for its leader since `since` (µs): for its arrival (`waiting`) or until it is handled (`blocked`)."""

    event: OrderedEvent
    state: State
    since: int


@dataclass(frozen=True, slots=True)
class ScopeCounters:
    """Events of a scope by state, and its totals. `held` is the sum of the hold times of its released events (µs)."""

    waiting: int
    blocked: int
    ready: int
    claimed: int
    dead: int
    released: int
    handled: int
    lost: int
    late: int
    cycles: int
    held: int


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    """How a scope handles events: duration of a claim, retries, and the followers of a dead event. Times are in µs."""

    lease: int = 60_000_000
    max_attempts: int = 8
    first_wait: int = 1_000_000
    max_wait: int = 300_000_000
    dead: DeadPolicy = "hold"

    def retry_at(self, attempts: int, now: int, spread: float, at_least: int = 0) -> int | None:
        """Return the time of the retry after `attempts` failures, or None if the event is dead. `spread` in [0, 1) is its jitter."""
        if attempts >= self.max_attempts:
            return None
        wait = min(self.max_wait, self.first_wait << min(attempts - 1, 40))
        return now + max(at_least, int(wait * (1 - spread / 2)))


class ReleasedEvent(NamedTuple):
    """A released event. `blocked` says whether its leader must be handled first."""

    seq: int
    position: int
    mark: str | None
    waited: int
    blocked: bool


class OfferBatch:
    """One batch for a scope: its new events, and the decisions of the ordering."""

    def __init__(self, order: CausalOrder, known: Mapping[bytes, State]) -> None:
        self._order = order
        self._states: dict[bytes, State] = dict(known)
        self._keys: dict[int, tuple[bytes, bytes | None, bool]] = {}
        self.offered: list[Offered] = []
        self.received: dict[int, int] = {}
        self.passed: list[bytes] = []

    def add(self, seq: int, event: OrderedEvent, *, passes: bool = False) -> bool:
        """Add one event, and return whether it is new. One that `passes` needs no handling: it counts as handled when it is ready."""
        key, leader = event.key, event.leader_key
        if key in self._states:
            return False
        leader_seq = 0 if leader in self._states else -1
        self._states[key] = "waiting"
        self._keys[seq] = (key, leader, passes)
        self.offered.append((seq, key, leader, leader_seq, event.occurred, event.id))
        if event.received is not None:
            self.received[seq] = event.received
        return True

    def decide(self, now: int, limit: int | None = None, ahead: int = 0) -> list[ReleasedEvent]:
        """Offer the new events. Return the released ones in order of position, without passed ones. `ahead` as in `CausalOrder.offer`."""
        first = self._order.position + 1
        released = self._order.offer(self.offered, now, self.received, limit, ahead)
        return [event for event in map(self._apply, released_events(released, first)) if event is not None]

    def _apply(self, event: ReleasedEvent) -> ReleasedEvent | None:
        if event.seq not in self._keys:
            return event
        key, leader, passes = self._keys[event.seq]
        blocked = event.blocked and leader is not None and self._states[leader] not in _PASSED
        if passes and not blocked:
            self._states[key] = "handled"
            self.passed.append(key)
            return None
        self._states[key] = "blocked" if blocked else "ready"
        return event._replace(blocked=blocked)


def released_events(released: Released, first: int) -> list[ReleasedEvent]:
    """Return the released events with positions from `first` on. Their leaders are not handled yet, except with a mark of `_FREE`."""
    columns = zip(released.seqs, released.marks, released.waited, strict=True)
    return [ReleasedEvent(seq, position, mark, waited, mark not in _FREE) for position, (seq, mark, waited) in enumerate(columns, first)]


def trees(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Return claims as independent trees, each in order of position."""
    by_key: dict[bytes, list[Claim]] = {}
    for claim in sorted(claims, key=lambda claim: claim.position):
        tree = by_key.get(claim.event.leader_key or b"")
        if tree is None or claim.mark in _FREE:
            tree = []
        tree.append(claim)
        by_key[claim.event.key] = tree
    return list({id(tree): tree for tree in by_key.values()}.values())


def waits_for(claim: Claim, stopped: Collection[bytes]) -> bool:
    """Whether a claim must not be handled because its leader, one of `stopped`, was not handled."""
    return claim.event.leader_key in stopped and claim.mark not in _FREE
