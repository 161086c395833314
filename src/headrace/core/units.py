"""What leases are balanced in: triggers that share a stream are one unit, and a trigger that polls alone is a unit of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

    def serves(self, unit: Unit) -> bool:
        """Whether the job serves the queues of all of the unit's triggers."""
        return unit.queues <= self.queues


@dataclass(frozen=True, slots=True)
class Unit:
    """Triggers that go together.

    `stopping` are the jobs that have yet to say that they let go of some of it; it is `leaving` where its holder was told to give it back.
    """

    triggers: tuple[Trigger, ...]
    queues: frozenset[str]
    priority: int
    holder: int | None
    stopping: frozenset[int]
    leaving: bool

    @property
    def order(self) -> int:
        """What was declared first goes first."""
        return self.triggers[0].id

    @property
    def size(self) -> int:
        """How many triggers it is."""
        return len(self.triggers)

    @property
    def idle(self) -> bool:
        """Whether nothing of it would run."""
        return all(trigger.parked for trigger in self.triggers)

    def ids(self) -> list[int]:
        """Return its triggers, in the order in which they were declared."""
        return [trigger.id for trigger in self.triggers]

    def held(self) -> list[int]:
        """Return its triggers that somebody holds."""
        return [trigger.id for trigger in self.triggers if trigger.holder is not None]

    def free_for(self, job_id: int) -> list[int]:
        """Return its triggers that the job could claim now: those that nobody holds, and nobody else has yet to stop."""
        return [trigger.id for trigger in self.triggers if trigger.holder is None and trigger.stopping in (None, job_id)]


def units(triggers: Iterable[Trigger]) -> list[Unit]:
    """Return the units that the triggers make; those that are to be claimed first are first."""
    groups: dict[str | int, list[Trigger]] = {}
    for trigger in triggers:
        groups.setdefault(trigger.id if trigger.stream is None else trigger.stream, []).append(trigger)
    made = [_unit(sorted(group)) if len(group) > 1 else _alone(group[0]) for group in groups.values()]
    return sorted(made, key=lambda unit: (-unit.priority, unit.order))


def _alone(trigger: Trigger) -> Unit:
    stopping = frozenset() if trigger.stopping is None else frozenset({trigger.stopping})
    return Unit((trigger,), frozenset({trigger.queue}), trigger.priority, trigger.holder, stopping, _leaves(trigger))


def _unit(group: Sequence[Trigger]) -> Unit:
    return Unit(
        triggers=tuple(group),
        queues=frozenset(trigger.queue for trigger in group),
        priority=max(trigger.priority for trigger in group),
        holder=next((trigger.holder for trigger in group if trigger.holder is not None), None),
        stopping=frozenset(trigger.stopping for trigger in group if trigger.stopping is not None),
        leaving=any(_leaves(trigger) for trigger in group),
    )


def _leaves(trigger: Trigger) -> bool:
    return trigger.holder is not None and trigger.stopping == trigger.holder
