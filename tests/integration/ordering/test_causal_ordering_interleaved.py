"""Several ordering stores of one scope in a user's database, with random steps: each event is handled once, after its leader.

Their clocks are apart by up to two minutes, leases are over before handlers are, and handlers fail or are given back as chance has it.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from headrace.core.ordering.causal_order import CYCLE, LOST
from headrace.core.ordering.delivery import Claim, DeliveryPolicy
from headrace.store.ordering.standalone.store import StandaloneOrderingStore
from support.ordering.events import START, Event, History, caused, history, seeds
from support.processes.postgres import database_of
from support.processes.store import database_url

SECOND = 1_000_000
LOOKBACK = 3_600 * SECOND
POLICY = DeliveryPolicy(lease=60 * SECOND, max_attempts=1_000)


class Team:
    """Homes that share a scope, and what each has in hand."""

    def __init__(self, url: str, scope: str, told: History, chance: Random) -> None:
        self.homes = [StandaloneOrderingStore(url, scope, LOOKBACK, policy=POLICY, by_age=False) for _ in range(3)]
        self.apart = [chance.randint(-61, 61) * SECOND for _ in self.homes]
        self.hands: list[list[Claim]] = [[] for _ in self.homes]
        self.events = told.events
        self.arrivals = [event for batch in told.batches for event in batch]
        self.chance = chance
        self.now = START
        self.done: list[str] = []

    def run(self) -> None:
        while self.arrivals or self.chance.random() < 0.9:
            self._step(self.chance.randrange(len(self.homes)))
        self.now += 2 * LOOKBACK
        for _ in range(20 * len(self.events) + 20):
            for at in range(len(self.homes)):
                while self.hands[at]:
                    self._finish(at)
                self.homes[at].expire(self._clock(at))
                self._take(at, self.homes[at].take_ready(3, self._clock(at)))
            if len(self.done) == len(self.events):
                break
        assert sorted(self.done) == sorted(self.events), "each is handled once"
        counts = self.homes[0].counts()
        assert (counts.handled, counts.claimed, counts.ready, counts.waiting, counts.blocked) == (len(self.events), 0, 0, 0, 0)

    def close(self) -> None:
        for home in self.homes:
            home.close()

    def _clock(self, at: int) -> int:
        return self.now + self.apart[at]

    def _step(self, at: int) -> None:
        home, now = self.homes[at], self._clock(at)
        action = self.chance.choice(["bring", "bring", "bring", "finish", "finish", "take", "fail", "give back", "offer", "expire", "wait"])
        if action == "bring" and self.arrivals:
            found = home.enter(caused(self.arrivals.pop()), now)
            self._take(at, [found] if isinstance(found, Claim) else [])
        elif action == "offer" and self.arrivals:
            home.offer([caused(self.arrivals.pop())], now)
        elif action == "take":
            self._take(at, home.take_ready(self.chance.randint(1, 4), now))
        elif action == "expire":
            home.expire(now)
        elif action == "wait":
            self.now += self.chance.choice([1, 30 * SECOND, 61 * SECOND])
        elif self.hands[at]:
            if action == "finish":
                self._finish(at)
            else:
                claim = self.hands[at].pop(self.chance.randrange(len(self.hands[at])))
                if action == "fail":
                    assert home.fail(claim, now, "bad", now + SECOND)
                else:
                    home.give_back([claim], now)

    def _finish(self, at: int) -> None:
        claim = self.hands[at].pop(self.chance.randrange(len(self.hands[at])))
        followers = self.homes[at].finish(claim, self._clock(at), self.chance.randint(0, 3))
        assert followers is not None, "it was in nobody else's hands"
        self.done.append(claim.event.id)
        self._take(at, followers.claims)

    def _take(self, at: int, claims: list[Claim]) -> None:
        in_hand = {claim.event.id for hand in self.hands for claim in hand}
        for claim in claims:
            id, leader = claim.event.id, self._leader(claim)
            assert id not in in_hand, f"{id} is in two hands"
            assert id not in self.done, f"{id} was handled"
            assert leader is None or leader in self.done or claim.mark in {LOST, CYCLE}, f"{id} comes before {leader}"
            in_hand.add(id)
        self.hands[at] += claims

    def _leader(self, claim: Claim) -> str | None:
        event: Event = self.events[claim.event.id]
        return event.leader


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_stores_with_different_clocks_release_each_event_once(kind: str, tmp_path: Path) -> None:
    url = database_url(kind, tmp_path) if kind == "sqlite" else database_of(tmp_path, empty=True)
    for seed, chance in seeds(1, 12):
        team = Team(url, f"seed {seed}", history(chance), chance)
        try:
            team.run()
        finally:
            team.close()
