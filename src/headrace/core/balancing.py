"""Which job runs what: what a job may claim, and what it must give back so that each has its share.

The law:
- a unit is on one job, which serves all of its queues, and has room for it; a unit that fits nowhere goes to a job that is otherwise idle;
- higher priorities are claimed first, then what was declared first; nothing that runs is stopped for a higher priority;
- a job's share is in units, by capacity. A unit moves only where that takes it off a job that is over its capacity, or lowers the sum
  of units² / capacity: either can only happen so often, so that moving ends and nothing goes to and fro;
- the smallest units move, at most a quarter of a job's units with one step (and no fewer than `LEAST`);
- a job that drains, or no longer serves a unit, gives it back at once, and so does one whose triggers are all parked;
- what is given back is claimed only after its job has said that it stopped; until then it counts as that of whom it goes to;
- a unit of which some is given back already goes on that way: the rest of it follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.core.lease_units import Job, LeaseUnit, Trigger, by_claim, units

LEAST = 8  # units; a few streams change hands in one step


@dataclass(frozen=True, slots=True)
class RebalanceStep:
    """What one job does next, in triggers. `settled`: neither this job nor any other has anything to do until something changes."""

    claim: list[int]
    give_back: list[int]
    settled: bool


def step(triggers: Iterable[Trigger], jobs: Sequence[Job], job_id: int) -> RebalanceStep:
    """Return what the job claims and gives back now, and whether all is settled. `jobs` are those that run and have said their capacity."""
    made = units(triggers)
    plan = _Plan(made, jobs, job_id)
    claim = plan.claims(job_id)
    give_back = plan.gives(job_id, surplus=not claim)
    settled = not claim and not give_back and all(one.listening for one in jobs) and plan.settled()
    return RebalanceStep(claim, give_back, settled)


def unassignable(triggers: Iterable[Trigger], jobs: Sequence[Job]) -> list[LeaseUnit]:
    """Return the units that wait although they should run: no running job serves their queues, or none has room."""
    return _Plan(units(triggers), jobs).unassignable


@dataclass(slots=True)
class _Load:
    """What one job has, or is to have."""

    job: Job
    units: int = 0
    size: int = 0
    keeps: list[LeaseUnit] = field(default_factory=list)

    def has_room(self, unit: LeaseUnit) -> bool:
        return self.size + unit.size <= self.job.capacity

    def add(self, unit: LeaseUnit, sign: int = 1) -> None:
        self.units += sign
        self.size += sign * unit.size

    @property
    def next_price(self) -> float:
        """What one unit more would cost; the job with the lowest is the furthest below its share."""
        return (2 * self.units + 1) / self.job.capacity

    def gains_over(self, other: _Load) -> bool:
        """Whether all are better off with one unit of `other` here: exactly, so that what moved does not move back."""
        return other.units > 1 and (2 * other.units - 1) * self.job.capacity > (2 * self.units + 1) * other.job.capacity


class _Plan:
    """The target of every unit."""

    def __init__(self, made: Sequence[LeaseUnit], jobs: Sequence[Job], asking: int | None = None) -> None:
        self._asking = asking
        self._loads = {job.id: _Load(job) for job in jobs}
        self._takers = [load for load in self._loads.values() if not load.job.draining and load.job.listening]
        self._must_go: dict[int, list[LeaseUnit]] = {job.id: [] for job in jobs}
        self._pending: list[LeaseUnit] = []
        self.unassignable: list[LeaseUnit] = []
        self._targets: list[tuple[LeaseUnit, _Load]] = []
        for unit in made:
            self._settle(unit)
        self._assign(self._pending, self._targets, self.unassignable)

    def claims(self, job_id: int) -> list[int]:
        """Return what the job may claim now."""
        load = self._loads.get(job_id)
        if load is None:
            return []
        own = [trigger for unit in load.keeps for trigger in unit.free_for(job_id)]
        return own + [trigger for unit, target in self._targets if target is load for trigger in _claimable(unit, job_id)]

    def gives(self, job_id: int, *, surplus: bool = True) -> list[int]:
        """Return what the job is to give back now; without `surplus`, only what it must not keep."""
        load = self._loads.get(job_id)
        if load is None:
            return []
        moving = self._must_go[job_id] or (self._surplus(load) if surplus else [])
        return [trigger for unit in moving for trigger in unit.held()]

    def settled(self) -> bool:
        """Whether no job has anything to do."""
        return not any(self.claims(job_id) or self.gives(job_id) for job_id in self._loads)

    def _settle(self, unit: LeaseUnit) -> None:
        """Note who has the unit, and whether it stays there."""
        owner = unit.holder if unit.holder is not None else _last(unit)
        load = None if owner is None else self._loads.get(owner)
        if unit.holder is not None and load is None:
            return  # held by a job that has not said yet what it takes
        if unit.leaving or load is None:
            if load is not None and unit.held():
                self._must_go[load.job.id].append(unit)
            if not unit.idle:
                self._pending.append(unit)
        elif not unit.idle and not load.job.draining and load.job.serves(unit):
            load.add(unit)
            load.keeps.append(unit)
        else:
            if unit.holder is not None:
                self._must_go[load.job.id].append(unit)
            if not unit.idle:
                self._pending.append(unit)

    def _assign(self, pending: Iterable[LeaseUnit], targets: list[tuple[LeaseUnit, _Load]], homeless: list[LeaseUnit]) -> None:
        """Give each unit to the job that is the furthest below its share, of those that serve it and have room."""
        serving: dict[frozenset[str], list[_Load]] = {}
        for unit in pending:
            if unit.queues not in serving:
                serving[unit.queues] = [load for load in self._takers if load.job.serves(unit)]
            able = serving[unit.queues]
            target = min((load for load in able if load.has_room(unit)), key=self._price, default=None)
            if target is None:
                target = max((load for load in able if not load.units), key=lambda load: load.job.capacity, default=None)
            if target is None:
                homeless.append(unit)
            else:
                target.add(unit)
                targets.append((unit, target))

    def _price(self, load: _Load) -> tuple[float, bool, int]:
        """Of jobs that are as far below their shares, the one that asks is first: it is there."""
        return load.next_price, load.job.id != self._asking, load.job.id

    def _surplus(self, giver: _Load) -> list[LeaseUnit]:
        """Return what the job gives up so that all come nearer to their shares: fewer, where the others could not take it as planned."""
        moving = self._choose(giver)
        while moving and not self._would_leave(giver, moving):
            moving = moving[: len(moving) // 2]
        return moving

    def _choose(self, giver: _Load) -> list[LeaseUnit]:
        before = [(load, load.units, load.size) for load in self._loads.values()]
        left = sorted((unit for unit in giver.keeps if unit.holder is not None), key=lambda unit: (unit.size, unit.priority, -unit.order))
        moving: list[LeaseUnit] = []
        while len(moving) < max(LEAST, len(giver.keeps) // 4):
            found = self._next_move(giver, left)
            if found is None:
                break
            place, taker = found
            unit = left.pop(place)
            giver.add(unit, -1)
            taker.add(unit)
            moving.append(unit)
        for load, count, size in before:
            load.units, load.size = count, size
        return moving

    def _next_move(self, giver: _Load, left: Sequence[LeaseUnit]) -> tuple[int, _Load] | None:
        """Return the place of the smallest unit that is to move, and to whom."""
        over = giver.size > giver.job.capacity
        for taker in sorted(self._takers, key=self._price):
            if taker is giver or not (over or taker.gains_over(giver)):
                continue
            place = next((at for at, unit in enumerate(left) if taker.has_room(unit) and taker.job.serves(unit)), None)
            if place is not None:
                return place, taker
        return None

    def _would_leave(self, giver: _Load, moving: Sequence[LeaseUnit]) -> bool:
        """Whether these, given back, would all go to others, and nothing else come back to whom it leaves."""
        before = [(load, load.units, load.size) for load in self._loads.values()]
        for unit, target in self._targets:
            target.add(unit, -1)
        for unit in moving:
            giver.add(unit, -1)
        targets: list[tuple[LeaseUnit, _Load]] = []
        homeless: list[LeaseUnit] = []
        gone = {unit.order for unit in moving}
        again = sorted([*self._pending, *moving], key=by_claim)
        self._assign(again, targets, homeless)
        for load, count, size in before:
            load.units, load.size = count, size
        back = any((unit.order in gone or unit.leaving) and target.job.id == unit.holder for unit, target in targets)
        return len(homeless) <= len(self.unassignable) and not back


def _last(unit: LeaseUnit) -> int | None:
    """Return the job that still has to release an unheld unit: it changed, and is best run where it was."""
    return next(iter(unit.stopping)) if len(unit.stopping) == 1 else None


def _claimable(unit: LeaseUnit, job_id: int) -> list[int]:
    """Return the triggers of the unit that the job may claim: none, while another job has it or still has to stop it."""
    if unit.holder is not None or not unit.stopping <= {job_id}:
        return []
    return unit.ids()
