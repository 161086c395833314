"""Balancing of lease units over jobs: which units a job claims, and which it releases so that each job has its share.

The law:
- a unit is on one job, which serves all of its queues and has capacity for it; a unit that fits on no job goes to an otherwise idle job;
- units are claimed by priority, then in the order of declaration; no running unit is stopped for a higher priority;
- a job's share is in units, by capacity. A unit moves only if that takes it off a job over its capacity, or lowers the sum of
  units² / capacity. Both can happen only a finite number of times, so that moving ends and no unit oscillates;
- the smallest units move, at most a quarter of a job's units in one step (and at least `LEAST`);
- a job that drains, or no longer serves a unit, releases it immediately, and so does a job whose triggers are all parked;
- a released unit is claimed only after its job has confirmed that it stopped; until then it counts for the job that it goes to;
- if a part of a unit is being released, the rest is released too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.core.lease_units import Job, LeaseUnit, Trigger, by_claim, units

LEAST = 8  # units; a few streams change hands in one step


@dataclass(frozen=True, slots=True)
class RebalanceStep:
    """The next step of one job, in triggers. `settled`: no job has anything to claim or release until something changes."""

    acquire: list[int]
    release: list[int]
    settled: bool


def step(triggers: Iterable[Trigger], jobs: Sequence[Job], job_id: int) -> RebalanceStep:
    """Return the next step of a job. `jobs` are the running jobs with a known capacity."""
    plan = _Plan(units(triggers), jobs, job_id)
    claim = plan.claims(job_id)
    give_back = plan.gives(job_id, surplus=not claim)
    settled = not claim and not give_back and all(one.listening for one in jobs) and plan.settled()
    return RebalanceStep(claim, give_back, settled)


def unassignable(triggers: Iterable[Trigger], jobs: Sequence[Job]) -> list[LeaseUnit]:
    """Return the units that no job can run: no running job serves their queues, or none has capacity."""
    return _Plan(units(triggers), jobs).unassignable


@dataclass(slots=True)
class _Load:
    """The current or planned load of one job."""

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
        """The cost of one more unit. The job with the lowest is the furthest below its share."""
        return (2 * self.units + 1) / self.job.capacity

    def gains_over(self, other: _Load) -> bool:
        """Whether moving one unit from `other` lowers the total cost. The comparison is exact, so that no unit moves back."""
        return other.units > 1 and (2 * other.units - 1) * self.job.capacity > (2 * self.units + 1) * other.job.capacity


class _Plan:
    """The target of every unit."""

    def __init__(self, lease_units: Sequence[LeaseUnit], jobs: Sequence[Job], asking: int | None = None) -> None:
        self._asking = asking
        self._loads = {job.id: _Load(job) for job in jobs}
        self._takers = [load for load in self._loads.values() if not load.job.draining and load.job.listening]
        self._must_go: dict[int, list[LeaseUnit]] = {job.id: [] for job in jobs}
        self._pending: list[LeaseUnit] = []
        self.unassignable: list[LeaseUnit] = []
        self._targets: list[tuple[LeaseUnit, _Load]] = []
        for unit in lease_units:
            self._settle(unit)
        self._assign(self._pending, self._targets, self.unassignable)

    def claims(self, job_id: int) -> list[int]:
        """Return the triggers that the job may claim now."""
        load = self._loads.get(job_id)
        if load is None:
            return []
        own = [trigger for unit in load.keeps for trigger in unit.free_for(job_id)]
        return own + [trigger for unit, target in self._targets if target is load for trigger in _claimable(unit, job_id)]

    def gives(self, job_id: int, *, surplus: bool = True) -> list[int]:
        """Return the triggers that the job must release now; without `surplus`, only triggers that it must not run."""
        load = self._loads.get(job_id)
        if load is None:
            return []
        moving = self._must_go[job_id] or (self._surplus(load) if surplus else [])
        return [trigger for unit in moving for trigger in unit.held()]

    def settled(self) -> bool:
        """Whether no job has anything to claim or release."""
        return not any(self.claims(job_id) or self.gives(job_id) for job_id in self._loads)

    def _settle(self, unit: LeaseUnit) -> None:
        """Record the job of the unit, and whether the unit stays there."""
        owner = unit.holder if unit.holder is not None else _last(unit)
        load = None if owner is None else self._loads.get(owner)
        if unit.holder is not None and load is None:
            return  # held by a job whose capacity is not known yet
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

    def _assign(self, pending: Iterable[LeaseUnit], targets: list[tuple[LeaseUnit, _Load]], unassigned: list[LeaseUnit]) -> None:
        """Assign each unit to the job that is the furthest below its share, among the jobs that serve it and have capacity."""
        serving: dict[frozenset[str], list[_Load]] = {}
        for unit in pending:
            if unit.queues not in serving:
                serving[unit.queues] = [load for load in self._takers if load.job.serves(unit)]
            able = serving[unit.queues]
            target = min((load for load in able if load.has_room(unit)), key=self._price, default=None)
            if target is None:
                target = max((load for load in able if not load.units), key=lambda load: load.job.capacity, default=None)
            if target is None:
                unassigned.append(unit)
            else:
                target.add(unit)
                targets.append((unit, target))

    def _price(self, load: _Load) -> tuple[float, bool, int]:
        """The sort key of jobs by load. Among equal ones the requesting job is first, since it is known to be alive."""
        return load.next_price, load.job.id != self._asking, load.job.id

    def _surplus(self, giver: _Load) -> list[LeaseUnit]:
        """Return the units that the job releases to bring all nearer to their shares: fewer, if others could not take all of them."""
        moving = self._choose(giver)
        while moving and not self._would_leave(giver, moving):
            moving = moving[: len(moving) // 2]
        return moving

    def _choose(self, giver: _Load) -> list[LeaseUnit]:
        before = [(load, load.units, load.size) for load in self._loads.values()]
        left = sorted((unit for unit in giver.keeps if unit.holder is not None), key=lambda unit: (unit.size, unit.priority, -unit.order))
        moving: list[LeaseUnit] = []
        while len(moving) < max(LEAST, len(giver.keeps) // 4):
            move = self._next_move(giver, left)
            if move is None:
                break
            index, taker = move
            unit = left.pop(index)
            giver.add(unit, -1)
            taker.add(unit)
            moving.append(unit)
        for load, count, size in before:
            load.units, load.size = count, size
        return moving

    def _next_move(self, giver: _Load, left: Sequence[LeaseUnit]) -> tuple[int, _Load] | None:
        """Return the index of the smallest unit that moves, and its new job, or None."""
        over = giver.size > giver.job.capacity
        for taker in sorted(self._takers, key=self._price):
            if taker is giver or not (over or taker.gains_over(giver)):
                continue
            index = next((at for at, unit in enumerate(left) if taker.has_room(unit) and taker.job.serves(unit)), None)
            if index is not None:
                return index, taker
        return None

    def _would_leave(self, giver: _Load, moving: Sequence[LeaseUnit]) -> bool:
        """Whether these units, once released, would all go to other jobs, and no unit would return to the job that it leaves."""
        before = [(load, load.units, load.size) for load in self._loads.values()]
        for unit, target in self._targets:
            target.add(unit, -1)
        for unit in moving:
            giver.add(unit, -1)
        targets: list[tuple[LeaseUnit, _Load]] = []
        unassigned: list[LeaseUnit] = []
        moved = {unit.order for unit in moving}
        again = sorted([*self._pending, *moving], key=by_claim)
        self._assign(again, targets, unassigned)
        for load, count, size in before:
            load.units, load.size = count, size
        back = any((unit.order in moved or unit.leaving) and target.job.id == unit.holder for unit, target in targets)
        return len(unassigned) <= len(self.unassignable) and not back


def _last(unit: LeaseUnit) -> int | None:
    """Return the job that still has to stop an unleased unit: the unit changed, and is best run where it was."""
    return next(iter(unit.stopping)) if len(unit.stopping) == 1 else None


def _claimable(unit: LeaseUnit, job_id: int) -> list[int]:
    """Return the triggers of the unit that the job may claim: none while another job holds it or still has to stop it."""
    if unit.holder is not None or not unit.stopping <= {job_id}:
        return []
    return unit.ids()
