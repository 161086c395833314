"""Lease units: triggers that share a stream are one unit, and a trigger that polls alone is a unit of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Trigger(NamedTuple):
    """One trigger and its jobs: `holder` holds its lease; `stopping` was requested to release it, and has not confirmed it yet."""

    id: int
    stream: str | None
    queue: str
    priority: int = 0
    holder: int | None = None
    stopping: int | None = None
    parked: bool = False


class Job(NamedTuple):
    """One running triggerer. A `draining` one releases all units. One that is not `listening` gets units only if no other can."""

    id: int
    capacity: int
    queues: frozenset[str]
    draining: bool = False
    listening: bool = True

    def serves(self, unit: LeaseUnit) -> bool:
        """Whether the job serves the queues of all of the unit's triggers."""
        return unit.queues <= self.queues


class LeaseUnit(NamedTuple):
    """Triggers that are leased together: `size` of them; the one with the id `order` was declared first.

    `stopping` are the jobs that have not confirmed the release of some of its triggers. It is `leaving` if its holder was requested to
    release it, and `idle` if none of its triggers would run. There is one for each trigger that polls alone, so its creation is fast.
    """

    order: int
    size: int
    triggers: tuple[Trigger, ...]
    queues: frozenset[str]
    priority: int
    holder: int | None
    stopping: frozenset[int]
    leaving: bool
    idle: bool

    def ids(self) -> list[int]:
        """Return its triggers in the order of declaration."""
        return [trigger.id for trigger in self.triggers]

    def held(self) -> list[int]:
        """Return its triggers that are leased and not being released."""
        return [trigger.id for trigger in self.triggers if trigger.holder not in (None, trigger.stopping)]

    def free_for(self, job_id: int) -> list[int]:
        """Return its triggers that the job could claim now: no other job holds them or still has to stop them."""
        return [trigger.id for trigger in self.triggers if trigger.holder is None and trigger.stopping in (None, job_id)]


NO_JOBS: frozenset[int] = frozenset()


def units(triggers: Iterable[Trigger]) -> list[LeaseUnit]:
    """Return the units of the triggers, in the order in which to claim them."""
    result: list[LeaseUnit] = []
    groups: dict[str, list[Trigger]] = {}
    alone: dict[str, frozenset[str]] = {}
    for trigger in triggers:
        if trigger.stream is not None:
            groups.setdefault(trigger.stream, []).append(trigger)
            continue
        queues = alone.get(trigger.queue)
        if queues is None:
            queues = alone[trigger.queue] = frozenset({trigger.queue})
        one, _, _, priority, holder, stopping, parked = trigger
        stopping_jobs = NO_JOBS if stopping is None else frozenset({stopping})
        result.append(
            LeaseUnit(one, 1, (trigger,), queues, priority, holder, stopping_jobs, holder is not None and stopping == holder, parked)
        )
    result += [_unit_of(sorted(group)) for group in groups.values()]
    return sorted(result, key=by_claim)


def by_claim(unit: LeaseUnit) -> tuple[int, int]:
    """Sort units in the order in which they are claimed."""
    return -unit.priority, unit.order


def _unit_of(group: Sequence[Trigger]) -> LeaseUnit:
    # one pass with local names: there may be 10,000 triggers, and this runs in the writer's transaction
    queues: set[str] = set()
    stopping_jobs: set[int] = set()
    holder: int | None = None
    leaving, idle = False, True
    priority = group[0].priority
    for _, _, queue, urgency, held_by, stopping, parked in group:
        queues.add(queue)
        priority = max(priority, urgency)
        if stopping is not None:
            stopping_jobs.add(stopping)
        if held_by is not None:
            holder = held_by if holder is None else holder
            leaving = leaving or held_by == stopping
        idle = idle and parked
    return LeaseUnit(group[0].id, len(group), tuple(group), frozenset(queues), priority, holder, frozenset(stopping_jobs), leaving, idle)
