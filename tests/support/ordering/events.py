"""Random histories of a scope, the homes of the ordering that they are run through, and the law that all of them keep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, Protocol

from headrace.core.ordering.causal_order import CYCLE, LATE, LOST
from headrace.core.ordering.delivery import Claim, DeliveryPolicy, OrderedEvent, trees, waits_for
from headrace.ports.ordering_store import OrderingStore

LOOKBACK = 1_000
WIDE = 1_000 * LOOKBACK  # of a case in which nothing is ever lost
LEASE = 300
START = 1_000_000
SOURCE = "tests"
FREE = {LOST, CYCLE}


class Event(NamedTuple):
    """One event of a history. `occurred` counts from its begin."""

    id: str
    follows: str | None
    occurred: int

    @property
    def leader(self) -> str | None:
        return None if self.follows == self.id else self.follows


class Handled(NamedTuple):
    """One event as a home handed it on."""

    id: str
    mark: str | None
    position: int


@dataclass
class History:
    """What arrives, batch by batch, and how long after the batch before it."""

    batches: list[list[Event]]
    pauses: list[int]

    @property
    def events(self) -> dict[str, Event]:
        """Each event by its id; the copies are all alike."""
        return {event.id: event for batch in self.batches for event in batch}


class Home(Protocol):
    """A home, as far as all of them go: events in, and what is ready out, handled at once."""

    def step(self, events: list[Event], now: int) -> list[Handled]: ...

    def waiting(self) -> set[str]: ...


def caused(event: Event) -> OrderedEvent:
    return OrderedEvent.of(SOURCE, event.id, event.follows, START + event.occurred, event.id)


class Handling:
    """A home that hands out claims, used by one worker that never fails."""

    def __init__(self, home: OrderingStore, *, most: int = 50) -> None:
        self.home = home
        self.most = most

    def step(self, events: list[Event], now: int) -> list[Handled]:
        self.home.offer([caused(event) for event in events], now)
        handled = self._all(now)
        self.home.expire(now)
        return handled + self._all(now)

    def waiting(self) -> set[str]:
        return {wait.event.id for wait in self.home.waits(1_000_000)}

    def _all(self, now: int) -> list[Handled]:
        out: list[Handled] = []
        while claims := self.home.claim(self.most, now):
            out += [Handled(claim.event.id, claim.mark, claim.position) for claim in claims]
            assert self.home.settle(claims, now) == len(claims)
        return out


def history(chance: Random, *, most: int = 14) -> History:
    """Any forest, with cycles, copies, leaders that come late or never, in any order of arrival, cut anywhere."""
    names = [f"e{i}" for i in range(chance.randint(1, most))]
    leaders = [*names, *names, None, "never-1", "never-2"]
    shape = chance.choice(["any", "chain", "star", "forest"])
    events = []
    for place, name in enumerate(names):
        follows = chance.choice(leaders)
        if shape == "chain":
            follows = names[place - 1] if place else None
        elif shape == "star":
            follows = names[0] if place else None
        elif shape == "forest":
            follows = chance.choice([None, *names[:place]])
        events.append(Event(name, follows, chance.randint(0, 3)))
    arrivals = events + [chance.choice(events) for _ in range(chance.randint(0, 4))]
    chance.shuffle(arrivals)
    cuts = sorted(chance.randint(0, len(arrivals)) for _ in range(chance.randint(0, 5)))
    bounds = [0, *cuts, len(arrivals)]
    batches = [arrivals[start:end] for start, end in itertools.pairwise(bounds)]
    return History(batches, [chance.choice([0, 1, LOOKBACK // 2, LOOKBACK]) for _ in batches])


def on_a_cycle(id: str, events: dict[str, Event]) -> bool:
    above = events[id].leader
    for _ in events:
        if above is None or above not in events or above == id:
            break
        above = events[above].leader
    return above == id


def run(home: Home, told: History) -> list[Handled]:
    """Run a history to its end, and then until nothing can wait any more; assert that all of the law holds."""
    now, handled, batches = START, list[Handled](), list[list[Handled]]()
    for batch, pause in zip(told.batches, told.pauses, strict=True):
        now += pause
        batches.append(home.step(batch, now))
        handled += batches[-1]
    left = home.waiting()
    events = told.events
    assert set(events) == left | {one.id for one in handled}, "an event is neither handled nor waits"
    place = {one.id: one for one in handled}
    for id in left:
        leader = events[id].leader
        assert leader in left or leader not in place, f"{id} waits for {leader}, which was handled"
    if not any(told.pauses):
        assert {one.id for one in handled if one.mark == CYCLE} == {id for id in events if on_a_cycle(id, events)}
        assert {one.mark for one in handled} <= {None, CYCLE}
    handled += home.step([], now + LOOKBACK)
    keep_the_law(events, handled)
    assert not home.waiting(), "nothing waits for longer than the lookback"
    assert {one.id for one in handled} == set(events)
    assert len(handled) == len(events), "an event was handled twice"
    for one in batches:
        siblings_in_order(events, one)
    return handled


def keep_the_law(events: dict[str, Event], handled: Iterable[Handled], let_go: Collection[str] = ()) -> None:
    """Assert that leaders come first, by time and by number, and that marks say why where they do not. Repeats count by their first.

    `let_go` are the dead whose followers do not wait for them.
    """
    place: dict[str, int] = {}
    first: dict[str, Handled] = {}
    for at, one in enumerate(handled):
        if place.setdefault(one.id, at) == at:
            first[one.id] = one
    for id, one in first.items():
        leader = events[id].leader
        if one.mark == CYCLE:
            assert on_a_cycle(id, events)
        elif one.mark == LOST:
            assert leader is not None
        elif leader is not None and (leader in first or leader not in let_go):
            assert leader in first, f"{id} was handled before {leader}"
            assert place[leader] < place[id], f"{id} was handled before {leader}"
            assert first[leader].position < one.position
        if one.mark == LATE:
            before = [
                other for other in events if events[other].leader == id and (other not in first or first[other].position < one.position)
            ]
            assert before, f"{id} is not late"
    assert len({one.position for one in first.values()}) == len(first), "two events have one position"


def siblings_in_order(events: dict[str, Event], handled: list[Handled]) -> None:
    """Assert that followers of one leader that wait for it, and the members of a cycle, get positions by (occurred, id)."""
    here = {one.id for one in handled}
    groups: dict[str | None, list[tuple[int, str]]] = {}
    for one in sorted(handled, key=lambda one: one.position):
        event = events[one.id]
        if one.mark == CYCLE and sum(other.mark == CYCLE for other in handled) == 2:
            groups.setdefault(None, []).append((event.occurred, one.id))
        elif one.mark not in FREE and event.leader is not None and event.leader not in here:
            continue
    for group in groups.values():
        assert group == sorted(group)


@dataclass
class Worker:
    """One of several who share a scope: what it holds, what it has handled of that, and whether it ever was careless."""

    held: list[Claim] = field(default_factory=list)
    done: list[Claim] = field(default_factory=list)
    failed: set[bytes] = field(default_factory=set)
    until: int = 0


class SubscriberSet:
    """Several workers on one scope, who claim, handle, fail, settle, crash and dawdle as chance has it."""

    def __init__(self, home: OrderingStore, chance: Random, *, workers: int = 3) -> None:
        self.home = home
        self.chance = chance
        self.workers = [Worker() for _ in range(workers)]
        self.now = START
        self.handled: list[Handled] = []
        self.repeatable: set[str] = set()
        self.failures = 0

    def run(self, told: History) -> None:
        """Run a history to its end, then go on until nothing is left that is not dead; assert the law of handling."""
        for batch, pause in zip(told.batches, told.pauses, strict=True):
            self._wait(pause)
            self.home.offer([caused(event) for event in batch], self.now)
            for _ in range(self.chance.randint(0, 6)):
                self._act(self.chance.choice(self.workers))
        events = told.events
        self._finish()
        counts = self.home.counts()
        assert (counts.waiting, counts.ready, counts.claimed) == (0, 0, 0), counts
        states = dict(zip(events, self.home.states([caused(event).key for event in events.values()]), strict=True))
        keep_the_law(events, self.handled, {id for id, state in states.items() if state == "skipped"})
        ids = [one.id for one in self.handled]
        assert {id for id in ids if ids.count(id) > 1} <= self.repeatable, "handled twice, and nobody had crashed"
        settled = {id for id, state in states.items() if state == "handled"}
        assert counts.handled == len(settled), "what was handled is not counted once"
        assert settled <= set(ids), "settled, and nobody handled it"
        assert set(ids) - settled <= self.repeatable, "handled, and not settled"
        for id, state in states.items():
            assert state in {"handled", "dead", "skipped", "blocked"}, (id, state)
            if state == "blocked":  # only what a dead one holds
                leader = events[id].leader
                assert leader is not None
                assert states[leader] in {"dead", "blocked"}, (id, leader, states[leader])

    def _act(self, worker: Worker) -> None:
        action = self.chance.choice(
            ["claim", "claim", "handle", "handle", "handle", "settle", "settle", "fail", "crash", "dawdle", "expire"]
        )
        if action == "claim" and not worker.held:
            worker.held = self.home.claim(self.chance.randint(1, 6), self.now)
            worker.until = self.now + LEASE
            assert sum(map(len, trees(worker.held))) == len(worker.held)
        elif action == "handle":
            self._handle(worker)
        elif action == "settle":
            self._settle(worker)
        elif action == "fail" and worker.held:
            self._fail(worker)
        elif action == "crash":
            self.repeatable |= {claim.event.id for claim in worker.done}
            worker.held, worker.done, worker.failed = [], [], set()
        elif action == "dawdle":
            self._wait(self.chance.choice([1, LEASE // 2, LEASE]))
        elif action == "expire":
            self.home.expire(self.now)

    def _wait(self, time: int) -> None:
        """Let time pass; whoever holds claims whose lease ends then may lose them, and does not know."""
        self.now += time
        late = [one for one in self.workers if one.until <= self.now]
        self.repeatable |= {claim.event.id for one in late for claim in [*one.held, *one.done]}

    def _handle(self, worker: Worker) -> None:
        while worker.held:
            claim = worker.held[0]
            if waits_for(claim, worker.failed):
                worker.failed.add(claim.event.key)
                self.home.give_back([worker.held.pop(0)], self.now)
                continue
            worker.done.append(worker.held.pop(0))
            self.handled.append(Handled(claim.event.id, claim.mark, claim.position))
            return

    def _fail(self, worker: Worker) -> None:
        claim = worker.held[0]
        if waits_for(claim, worker.failed):
            return self._handle(worker)
        worker.held.pop(0)
        worker.failed.add(claim.event.key)
        self._settle(worker, keep=True)
        again = self.home.policy.retry_at(claim.attempts, self.now, self.chance.random())
        self.home.fail(claim, self.now, "it failed", again)
        return None

    def _settle(self, worker: Worker, *, keep: bool = False) -> None:
        self.home.settle(worker.done, self.now)
        worker.done = []
        if not keep and not worker.held:
            worker.failed = set()

    def _finish(self) -> None:
        for worker in self.workers:
            while worker.held:
                self._handle(worker)
            self._settle(worker)
        for _ in range(200):
            self.now += LOOKBACK
            self.home.expire(self.now)
            worker = self.workers[0]
            worker.held, worker.failed = self.home.claim(50, self.now), set()
            if not worker.held and self.home.next_due() is None:
                return
            while worker.held:
                self._handle(worker)
            self._settle(worker)
        raise AssertionError("it does not come to an end")


POLICY = DeliveryPolicy(lease=LEASE, max_attempts=3, first_wait=50, max_wait=200)
Maker = Callable[[], OrderingStore]


def seeds(first: int, count: int) -> Iterator[tuple[int, Random]]:
    """Yield numbers and what each of them makes of chance."""
    for seed in range(first, first + count):
        yield seed, Random(seed)
