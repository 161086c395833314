"""Which events follow a blocked event: the result equals a walk through the whole forest."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.kernel.followers import Above, Link, first_without_leader, followers

EVENTS = 12


def key(number: int) -> bytes:
    return bytes([number])


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int | None], set[int], set[int], int]:
    """Return each event's leader, which events the pipeline takes, which it failed on, and how many it has taken before."""
    leaders = [draw(st.none() | st.integers(0, number - 1)) if number else None for number in range(EVENTS)]
    taken = draw(st.sets(st.integers(0, EVENTS - 1)))
    before = draw(st.integers(0, EVENTS))
    failed = {number for number in taken if number < before and draw(st.booleans())}
    return leaders, taken, failed, before


class Log:
    def __init__(self, leaders: list[int | None], taken: set[int], forgotten: Collection[int] = ()) -> None:
        self.leaders, self.taken, self.forgotten = leaders, taken, forgotten
        self.requests = 0

    def __call__(self, keys: Collection[bytes]) -> Mapping[bytes, Above]:
        self.requests += 1
        numbers = [one[0] for one in keys if one[0] not in self.forgotten]
        return {key(number): Above(self.leader(number), number in self.taken) for number in numbers}

    def leader(self, number: int) -> bytes | None:
        leader = self.leaders[number]
        return None if leader is None else key(leader)

    def above(self, number: int) -> set[int]:
        found: set[int] = set()
        leader = self.leaders[number]
        while leader is not None:
            found.add(leader)
            leader = self.leaders[leader]
        return found


@given(forests())
def test_an_event_is_blocked_if_an_event_above_it_failed(forest: tuple[list[int | None], set[int], set[int], int]) -> None:
    leaders, taken, failed, before = forest
    log = Log(leaders, taken)
    blocked = failed | {number for number in taken if number < before and log.above(number) & failed}
    new = [number for number in range(before, EVENTS) if number in taken]
    links = [Link(key(number), log.leader(number)) for number in new]
    assert followers(links, {key(number) for number in blocked}, log) == [bool(log.above(number) & failed) for number in new]


@given(forests())
def test_leading_events_do_not_follow_each_other(forest: tuple[list[int | None], set[int], set[int], int]) -> None:
    leaders, taken, _, before = forest
    log = Log(leaders, taken)
    new = [number for number in range(before, EVENTS) if number in taken]
    count = first_without_leader([Link(key(number), log.leader(number)) for number in new], log)
    follows = [any(above in new[:place] for above in log.above(number)) for place, number in enumerate(new)]
    assert count == (follows.index(True) if True in follows else len(new))


def test_a_chain_ends_at_a_pruned_event() -> None:
    log = Log([None, 0, 1, 2], {0, 3})
    links = [Link(key(3), key(2))]
    assert followers(links, {key(0)}, log) == [True]
    assert log.requests == 2, "one for each event between two that the pipeline takes"
    assert followers(links, {key(0)}, Log([None, 0, 1, 2], {0, 3}, forgotten={1})) == [False]
    assert followers(links, set(), log) == [False]
    assert log.requests == 2


def test_the_search_for_leaders_ends_at_a_cycle_outside_the_pipeline() -> None:
    log = Log([None, 2, 1], {0})
    assert followers([Link(key(0), key(1)), Link(key(3), key(3))], {key(9)}, log) == [False, False]
    assert first_without_leader([Link(key(0), key(1)), Link(key(3), key(3))], log) == 2
