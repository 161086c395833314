"""What becomes of events after the ordering has released them: handled one after the other, a follower never before its leader.

Its law:

- A released event is *ready* when its leader was handled, or counts as handled; it is *blocked* as long as that is not so. One that is
  released as lost, or out of a cycle, waits for no other.
- What is ready may be claimed for a while (the lease); with it, what it blocks, as far down as is asked for: the claimer of a part of a
  tree handles it in order of position. A claim whose lease has ended may be claimed again, and the first claim is worth nothing then.
- What fails keeps what it blocks waiting, and is tried again later each time; after too many attempts it is *dead*. Then the policy
  says what becomes of those below: `hold` keeps them until it is redriven, `release` lets them go (it is *skipped*).
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
    """An event as a home takes it: who it is, whom it follows, when it occurred (µs), and its body, which a home keeps and never reads.

    `key` stands for (source, id), `leader_key` for its leader, if it follows another. `received` (µs) is when it came, if that was before
    it is offered: how old it is and how long it waits count from then. Make one with `of`.
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
    """An event to handle now. `token` says whose it is; `attempts` counts this one. Its `seq` is 0 where no home has written it down."""

    seq: int
    event: OrderedEvent
    position: int
    mark: str | None
    attempts: int
    token: str


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """`event` waits for the one it follows, since `since` (µs): until that comes (`waiting`) or until it is handled (`blocked`)."""

    event: OrderedEvent
    state: State
    since: int


@dataclass(frozen=True, slots=True)
class ScopeCounters:
    """What a scope came to: `held` is how long all its released events waited (µs)."""

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
    """How a scope handles: how long a claim lasts, how often and when it is tried again, and what a dead event means. Times in µs."""

    lease: int = 60_000_000
    max_attempts: int = 8
    first_wait: int = 1_000_000
    longest_wait: int = 300_000_000
    dead: DeadPolicy = "hold"

    def retry_at(self, attempts: int, now: int, spread: float, at_least: int = 0) -> int | None:
        """Return when to try again what failed for the `attempts`th time, or None: it is dead. `spread` in [0, 1) tells failures apart."""
        if attempts >= self.max_attempts:
            return None
        wait = min(self.longest_wait, self.first_wait << min(attempts - 1, 40))
        return now + max(at_least, int(wait * (1 - spread / 2)))


class ReleasedEvent(NamedTuple):
    """What the ordering says of an event that it released: `blocked` is whether its leader has to be handled first."""

    seq: int
    position: int
    mark: str | None
    waited: int
    blocked: bool


class OfferBatch:
    """One batch on its way into a scope: what is new in it, and what the ordering makes of it."""

    def __init__(self, order: CausalOrder, known: Mapping[bytes, State]) -> None:
        self._order = order
        self._states: dict[bytes, State] = dict(known)
        self._keys: dict[int, tuple[bytes, bytes | None, bool]] = {}
        self.offered: list[Offered] = []
        self.received: dict[int, int] = {}
        self.passed: list[bytes] = []

    def add(self, seq: int, event: OrderedEvent, *, passes: bool = False) -> bool:
        """Take one event; False if it was here before. One that `passes` needs no handling: it counts as handled when it is ready."""
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
        """Offer what is new; return what is released, in order of position, without what passed. `ahead` is that of `CausalOrder.offer`."""
        first = self._order.position + 1
        released = self._order.offer(self.offered, now, self.received, limit, ahead)
        return [place for place in map(self._gated, placed(released, first)) if place is not None]

    def _gated(self, place: ReleasedEvent) -> ReleasedEvent | None:
        if place.seq not in self._keys:
            return place
        key, leader, passes = self._keys[place.seq]
        blocked = place.blocked and leader is not None and self._states[leader] not in _PASSED
        if passes and not blocked:
            self._states[key] = "handled"
            self.passed.append(key)
            return None
        self._states[key] = "blocked" if blocked else "ready"
        return place._replace(blocked=blocked)


def placed(released: Released, first: int) -> list[ReleasedEvent]:
    """Return what was released, with positions from `first` on; it was waiting, so its leader is not handled yet."""
    columns = zip(released.seqs, released.marks, released.waited, strict=True)
    return [ReleasedEvent(seq, position, mark, waited, mark not in _FREE) for position, (seq, mark, waited) in enumerate(columns, first)]


def trees(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Return claims as trees that do not wait for one another, each in order of position."""
    found: dict[bytes, list[Claim]] = {}
    for claim in sorted(claims, key=lambda claim: claim.position):
        tree = found.get(claim.event.leader_key or b"")
        if tree is None or claim.mark in _FREE:
            tree = []
        tree.append(claim)
        found[claim.event.key] = tree
    return list({id(tree): tree for tree in found.values()}.values())


def waits_for(claim: Claim, stopped: Collection[bytes]) -> bool:
    """Whether a claim may not be handled because its leader, one of `stopped`, was not."""
    return claim.event.leader_key in stopped and claim.mark not in _FREE
