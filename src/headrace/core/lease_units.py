"""What leases are balanced in: triggers that share a stream are one unit, and a trigger that polls alone is a unit of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Trigger(NamedTuple):
    """One trigger and who has it: `holder` holds its lease, `stopping` was told to let it go and has not yet said that it did."""

    id: int
    stream: str | None
    queue: str
    priority: int = 0
    holder: int | None = None
    stopping: int | None = None
    parked: bool = False


class Job(NamedTuple):
    """One running triggerer. A `draining` one gives all back; one that is not `listening` is given nothing while others can have it."""

    id: int
    capacity: int
    queues: frozenset[str]
    draining: bool = False
    listening: bool = True

    def serves(self, unit: LeaseUnit) -> bool:
        """Whether the job serves the queues of all of the unit's triggers."""
        return unit.queues <= self.queues


class LeaseUnit(NamedTuple):
    """Triggers that go together: `size` of them, of which the one with the id `order` was declared first.

    `stopping` are the jobs that have yet to say that they let go of some of it; it is `leaving` where its holder was told to give it back,
    and `idle` where nothing of it would run. There is one for each trigger that polls alone, so it is made to be made quickly.
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
        """Return its triggers, in the order in which they were declared."""
        return [trigger.id for trigger in self.triggers]

    def held(self) -> list[int]:
        """Return its triggers that are held and not given back yet."""
        return [trigger.id for trigger in self.triggers if trigger.holder not in (None, trigger.stopping)]

    def free_for(self, job_id: int) -> list[int]:
        """Return its triggers that the job could claim now: those that no job holds or still has to stop."""
        return [trigger.id for trigger in self.triggers if trigger.holder is None and trigger.stopping in (None, job_id)]


NOBODY: frozenset[int] = frozenset()


def units(triggers: Iterable[Trigger]) -> list[LeaseUnit]:
    """Return the units that the triggers make; in the order in which to claim them."""
    made: list[LeaseUnit] = []
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
        told = NOBODY if stopping is None else frozenset({stopping})
        made.append(LeaseUnit(one, 1, (trigger,), queues, priority, holder, told, holder is not None and stopping == holder, parked))
    made += [_together(sorted(group)) for group in groups.values()]
    return sorted(made, key=by_claim)


def by_claim(unit: LeaseUnit) -> tuple[int, int]:
    """Sort units in the order in which they are claimed."""
    return -unit.priority, unit.order


def _together(group: Sequence[Trigger]) -> LeaseUnit:
    # one pass with plain names: there may be 10,000 triggers, looked at in the writer's transaction
    queues: set[str] = set()
    told: set[int] = set()
    holder: int | None = None
    leaving, idle = False, True
    priority = group[0].priority
    for _, _, queue, urgency, held_by, stopping, parked in group:
        queues.add(queue)
        priority = max(priority, urgency)
        if stopping is not None:
            told.add(stopping)
        if held_by is not None:
            holder = held_by if holder is None else holder
            leaving = leaving or held_by == stopping
        idle = idle and parked
    return LeaseUnit(group[0].id, len(group), tuple(group), frozenset(queues), priority, holder, frozenset(told), leaving, idle)
