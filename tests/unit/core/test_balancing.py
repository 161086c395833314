"""Balancing of leases: all units are served, no stream is split, and moves end."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given, note, settings
from hypothesis import strategies as st

from headrace.core.balancing import LEAST, step, unassignable
from headrace.core.lease_units import Job, Trigger

DEFAULT = frozenset({"default"})
ROUNDS = 40


@dataclass
class World:
    """Triggers and jobs, moved as a store and its triggerers would move them."""

    triggers: dict[int, Trigger]
    jobs: dict[int, Job]
    moved: int = 0

    def load(self, job_id: int) -> bool:
        """Let a job take its step; return whether it had anything to do."""
        found = step(self.triggers.values(), list(self.jobs.values()), job_id)
        assert not set(found.acquire) & set(found.release)
        for one in found.acquire:
            assert self.triggers[one].holder is None
            assert self.triggers[one].stopping in (None, job_id)
            self.triggers[one] = self.triggers[one]._replace(holder=job_id, stopping=None)
        for one in found.release:
            assert self.triggers[one].holder == job_id
            self.triggers[one] = self.triggers[one]._replace(stopping=job_id)
        self.moved += len(found.release)
        self.check()
        assert not (found.settled and (found.acquire or found.release))
        return bool(found.acquire or found.release)

    def confirm(self, job_id: int) -> bool:
        """Let a job say that it stopped all that it was told to."""
        gone = [one.id for one in self.triggers.values() if one.stopping == job_id]
        for one in gone:
            holder = self.triggers[one].holder
            self.triggers[one] = self.triggers[one]._replace(holder=None if holder == job_id else holder, stopping=None)
        return bool(gone)

    def end(self, job_id: int) -> None:
        """Let a job die: it holds nothing any more."""
        del self.jobs[job_id]
        for one in self.triggers.values():
            holder = None if one.holder == job_id else one.holder
            self.triggers[one.id] = one._replace(holder=holder, stopping=None if one.stopping == job_id else one.stopping)

    def rest(self, chance: random.Random | None = None) -> int:
        """Let all jobs step, in any order, until nothing moves; return how many rounds that took."""
        for number in range(ROUNDS):
            order = sorted(self.jobs)
            if chance is not None:
                chance.shuffle(order)
            busy = [self.load(one) for one in order]
            busy += [self.confirm(one) for one in order if chance is None or chance.random() < 0.7]
            if not any(busy) and not any(one.stopping is not None for one in self.triggers.values()):
                return number
        raise AssertionError(f"still moving after {ROUNDS} rounds: {self}")

    def check(self) -> None:
        for stream in {one.stream for one in self.triggers.values()} - {None}:
            members = [one for one in self.triggers.values() if one.stream == stream]
            assert len({one.holder for one in members} - {None}) <= 1, f"{stream} is split: {members}"

    def units(self, job_id: int) -> int:
        mine = [one for one in self.triggers.values() if one.holder == job_id]
        return len({one.stream or one.id for one in mine})

    def size(self, job_id: int) -> int:
        return sum(one.holder == job_id for one in self.triggers.values())


def world(units: int, *capacities: int, size: int = 1) -> World:
    made = [Trigger(number * size + one + 1, f"s{number}", "default") for number in range(units) for one in range(size)]
    jobs = {number: Job(number, capacity, DEFAULT) for number, capacity in enumerate(capacities, start=1)}
    return World({one.id: one for one in made}, jobs)


def join(there: World, capacity: int = 100, queues: frozenset[str] = DEFAULT) -> int:
    new = max(there.jobs, default=0) + 1
    there.jobs[new] = Job(new, capacity, queues)
    return new


def unserved(there: World) -> list[int]:
    """Return the triggers that nobody can run."""
    return [one for unit in unassignable(there.triggers.values(), list(there.jobs.values())) for one in unit.ids()]


def test_the_first_job_acquires_units_up_to_its_capacity() -> None:
    there = world(6, 4)
    there.rest()
    assert [one.holder for one in there.triggers.values()] == [1, 1, 1, 1, None, None]
    assert unserved(there) == [5, 6]


def test_a_new_job_acquires_its_share_in_a_few_rounds_and_moves_end() -> None:
    there = world(300, 1_000)
    there.rest()
    join(there, 1_000)
    assert there.rest() <= 5
    assert (there.units(1), there.units(2)) == (150, 150)
    assert there.moved == 150
    join(there, 2_000)
    there.rest()
    assert [there.units(one) for one in (1, 2, 3)] == [75, 75, 150]
    assert there.moved <= 306, "150 had to move for each who joined"
    assert all(step(there.triggers.values(), list(there.jobs.values()), one).settled for one in there.jobs)


def test_a_step_releases_at_most_a_quarter_of_the_units() -> None:
    there = world(400, 1_000)
    there.rest()
    join(there, 1_000)
    assert len(step(there.triggers.values(), list(there.jobs.values()), 1).release) == 100
    few = world(20, 1_000)
    few.rest()
    join(few, 1_000)
    assert len(step(few.triggers.values(), list(few.jobs.values()), 1).release) == LEAST


def test_a_released_unit_is_acquired_after_it_has_stopped() -> None:
    there = world(2, 10)
    there.load(1)
    join(there, 10)
    assert there.load(1)
    assert not there.load(2)
    assert not there.load(1), "it does not take back what it gives"
    there.confirm(1)
    assert there.load(2)
    assert (there.units(1), there.units(2)) == (1, 1)


def test_units_of_an_ended_job_are_acquired_without_confirmation() -> None:
    there = world(2, 10)
    there.load(1)
    join(there, 10)
    there.load(1)
    there.end(1)
    there.load(2)
    assert there.units(2) == 2


def test_a_draining_job_releases_all_units_in_one_step_and_acquires_none() -> None:
    there = world(40, 100, 100)
    there.rest()
    there.jobs[1] = there.jobs[1]._replace(draining=True)
    assert len(step(there.triggers.values(), list(there.jobs.values()), 1).release) == 20
    there.rest()
    assert (there.units(1), there.units(2)) == (0, 40)


def test_the_last_job_to_drain_releases_its_units() -> None:
    there = world(4, 100)
    there.rest()
    there.jobs[1] = there.jobs[1]._replace(draining=True)
    there.rest()
    assert there.units(1) == 0


def test_units_are_acquired_by_priority_then_by_declaration() -> None:
    there = world(5, 3)
    there.triggers[4] = there.triggers[4]._replace(priority=7)
    there.rest()
    assert [one.id for one in there.triggers.values() if one.holder] == [1, 2, 4]


def test_a_unit_larger_than_any_capacity_goes_to_an_idle_job() -> None:
    there = world(2, 3, size=5)
    there.rest()
    assert (there.units(1), there.size(1)) == (1, 5)
    join(there, 2)
    there.rest()
    assert (there.units(1), there.units(2)) == (1, 1)


def test_a_job_over_its_capacity_releases_units_to_a_job_with_capacity() -> None:
    there = world(4, 100, size=5)
    there.rest()
    there.jobs[1] = there.jobs[1]._replace(capacity=10)
    join(there, 10)
    there.rest()
    assert (there.size(1), there.size(2)) == (10, 10)


def test_a_job_acquires_only_units_of_its_queues() -> None:
    there = world(4, 100)
    there.triggers[1] = there.triggers[1]._replace(queue="gpu")
    there.rest()
    assert unserved(there) == [1]
    gpu = join(there, 100, frozenset({"gpu"}))
    there.rest()
    assert (there.triggers[1].holder, there.units(gpu), there.units(1)) == (gpu, 1, 3)


def test_an_unserved_queue_does_not_affect_the_shares_of_other_queues() -> None:
    there = world(9, 100)
    there.triggers[1] = there.triggers[1]._replace(queue="gpu")
    there.rest()
    join(there)
    there.rest()
    assert (there.units(1), there.units(2)) == (4, 4)


def test_a_job_releases_units_of_queues_that_it_does_not_serve() -> None:
    there = world(2, 100)
    there.rest()
    there.triggers[2] = there.triggers[2]._replace(queue="gpu")
    there.rest()
    assert there.triggers[2].holder is None


def test_a_stream_of_two_queues_needs_a_job_that_serves_both() -> None:
    there = world(1, 100, size=2)
    there.triggers[2] = there.triggers[2]._replace(queue="gpu")
    there.rest()
    assert there.units(1) == 0
    both = join(there, 100, frozenset({"default", "gpu"}))
    there.rest()
    assert there.units(both) == 1


def test_a_changed_trigger_returns_to_the_job_that_polls_its_stream() -> None:
    there = world(1, 100, 100, size=2)
    there.load(1)
    there.triggers[2] = there.triggers[2]._replace(holder=None, stopping=1)
    assert not there.load(2)
    assert there.load(1)
    assert there.triggers[2].holder == 1


def test_a_trigger_with_a_new_stream_waits_until_its_previous_job_has_stopped_it() -> None:
    there = world(2, 100, 100, size=2)
    there.rest()
    holder = there.triggers[3].holder
    other = there.triggers[1].holder
    assert holder != other
    there.triggers[1] = Trigger(1, "s1", "default", stopping=other)
    assert holder is not None
    assert not there.load(holder)
    assert other is not None
    there.confirm(other)
    assert there.load(holder)
    assert there.triggers[1].holder == holder


def test_a_parked_trigger_stays_with_its_stream_and_is_not_acquired_alone() -> None:
    there = world(2, 100, size=2)
    there.triggers[1] = there.triggers[1]._replace(parked=True)
    there.rest()
    assert there.size(1) == 4
    there.triggers[2] = there.triggers[2]._replace(parked=True)
    there.rest()
    assert [one.holder for one in there.triggers.values()] == [None, None, 1, 1]
    assert unserved(there) == []


def test_an_unresponsive_job_retains_its_units_and_acquires_none() -> None:
    there = world(4, 100, 100)
    there.rest()
    there.jobs[2] = there.jobs[2]._replace(listening=False)
    for number in range(5, 9):
        there.triggers[number] = Trigger(number, None, "default")
    there.load(1)
    assert (there.units(1), there.units(2)) == (6, 2)
    assert not step(there.triggers.values(), list(there.jobs.values()), 1).settled
    there.jobs[2] = there.jobs[2]._replace(listening=True)
    there.rest()
    assert (there.units(1), there.units(2)) == (4, 4)


def test_an_unknown_job_acquires_no_units() -> None:
    there = world(2, 100)
    assert step(there.triggers.values(), list(there.jobs.values()), 9).acquire == []


queues = st.frozensets(st.sampled_from(["default", "gpu"]), min_size=1)
kinds = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from(["default", "default", "gpu"]), st.integers(0, 2), st.booleans()), min_size=1, max_size=30
)
workers = st.lists(st.tuples(st.integers(1, 40), queues), min_size=1, max_size=5)


def crowd(units: list[tuple[int, str, int, bool]], jobs: list[tuple[int, frozenset[str]]]) -> World:
    made: dict[int, Trigger] = {}
    for number, (size, queue, priority, alone) in enumerate(units):
        for _ in range(size):
            one = len(made) + 1
            made[one] = Trigger(one, None if alone else f"s{number}", queue, priority)
    return World(made, {number: Job(number, *job) for number, job in enumerate(jobs, start=1)})


@settings(deadline=None)
@given(kinds, workers, st.integers(0, 2**32))
def test_moves_end_and_all_units_are_served_for_any_change_of_jobs(
    units: list[tuple[int, str, int, bool]], jobs: list[tuple[int, frozenset[str]]], seed: int
) -> None:
    chance = random.Random(seed)
    note(f"seed {seed}")
    there = crowd(units, jobs)
    for _ in range(3):
        there.rest(chance)
        _assert_all_units_are_served(there)
        before = there.moved
        there.rest(chance)
        assert there.moved == before, "at rest, nothing moves"
        if len(there.jobs) > 1 and chance.random() < 0.5:
            there.end(chance.choice(sorted(there.jobs)))
        elif chance.random() < 0.5:
            one = chance.choice(sorted(there.jobs))
            there.jobs[one] = there.jobs[one]._replace(draining=not there.jobs[one].draining)
        else:
            join(there, chance.randint(1, 40))


@settings(deadline=None)
@given(st.integers(1, 120), st.lists(st.integers(200, 2_000), min_size=1, max_size=5), st.integers(0, 2**32))
def test_with_enough_capacity_no_move_improves_the_balance(units: int, capacities: list[int], seed: int) -> None:
    chance = random.Random(seed)
    note(f"seed {seed}")
    there = world(units, capacities[0])
    there.rest(chance)
    for capacity in capacities[1:]:
        join(there, capacity)
    there.rest(chance)
    for one in there.jobs.values():
        for other in there.jobs.values():
            mine, theirs = there.units(one.id), there.units(other.id)
            better = mine > 1 and (2 * mine - 1) * other.capacity > (2 * theirs + 1) * one.capacity
            assert one is other or not better, f"a unit of {one} would be better off with {other}"
    if len(capacities) <= 2:  # with more jobs of unlike capacities, no such shares are always within one unit of the quota
        for one in there.jobs.values():
            assert abs(there.units(one.id) - units * one.capacity / sum(capacities)) <= 1


def _assert_all_units_are_served(there: World) -> None:
    """What nobody holds is what nobody serves or has room for."""
    by_unit: dict[object, list[Trigger]] = {}
    for one in there.triggers.values():
        by_unit.setdefault(one.stream or one.id, []).append(one)
    for group in by_unit.values():
        if group[0].holder is None:
            for job in there.jobs.values():
                if not job.draining and {one.queue for one in group} <= job.queues:
                    assert there.size(job.id) + len(group) > job.capacity
                    assert there.size(job.id)
