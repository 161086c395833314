"""What must be shown of every home of the ordering, at any size: the suite takes sizes that it has time for, the soak the full ones."""

from __future__ import annotations

from support.ordering.events import START, Event, Home

CHAIN, FAN, FAR = 100_000, 10_000, 50_000
"""The full sizes."""


def a_reversed_chain(home: Home, size: int = CHAIN) -> None:
    """The last comes first, and the first last of all."""
    chain = [Event(f"{n}", f"{n - 1}" if n else None, 0) for n in range(size)]
    for start in range(size, 0, -size // 5):
        handled = home.step(list(reversed(chain[start - size // 5 : start])), START)
        assert bool(handled) == (start == size // 5)
    assert [one.id for one in sorted(handled, key=lambda one: one.position)] == [event.id for event in chain]
    assert [int(one.id) for one in handled] == list(range(size))


def followers_of_one_leader(home: Home, size: int = FAN) -> None:
    """All wait for the one, and come in order of time."""
    followers = [Event(f"{n}", "leader", n * 7919 % size) for n in range(size)]
    assert home.step(followers, START) == []
    handled = home.step([Event("leader", None, 0)], START)
    by_position = [one.id for one in sorted(handled, key=lambda one: one.position)]
    assert by_position == ["leader", *(event.id for event in sorted(followers, key=lambda event: event.occurred))]
    assert handled[0].id == "leader"


def a_leader_after_many_others(home: Home, size: int = FAR) -> None:
    """One waits while all the others pass."""
    assert home.step([Event("follower", "leader", 0)], START) == []
    assert len(home.step([Event(f"{n}", None, 0) for n in range(size)], START)) == size
    assert home.waiting() == {"follower"}
    assert [one.id for one in home.step([Event("leader", None, 0)], START)] == ["leader", "follower"]


CASES = {case.__name__.replace("_", " "): case for case in (a_reversed_chain, followers_of_one_leader, a_leader_after_many_others)}
