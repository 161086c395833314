"""The ledger of one scope as plainly as it can be written: what drivers do to it, and what it has then."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.plans import Plan
from headrace.wire.pipelines.runs import RunReport

Place = tuple[int, int]


class Refused(Exception):
    """The model does not do this; nothing changes."""


@dataclass
class Ledger:
    """A scope that is there from its first lease on. A refusal names the problem."""

    holder: int | None = None
    ended: set[int] = field(default_factory=set)
    """The jobs that have ended."""
    epoch: int = 0
    incarnations: int = 0
    cursor: Cursor | None = None
    planned_at: int = 0
    runs: dict[Place, list[int]] = field(default_factory=dict)
    """The slice of each open run, and its attempts that began and ended."""
    slices: dict[Place, bytes] = field(default_factory=dict)
    state: dict[str, bytes] = field(default_factory=dict)
    letters: dict[str, int] = field(default_factory=dict)

    def end(self, job: int) -> None:
        self.ended.add(job)
        self.holder = None if self.holder == job else self.holder

    def acquire(self, job: int) -> None:
        if job in self.ended:
            raise Refused("fenced")
        if self.holder not in (None, job):
            raise Refused("held")
        self.epoch += self.holder is None
        self.holder = job
        if self.cursor is None:
            self.begin()

    def begin(self) -> None:
        self.cursor = Cursor(cursor=0, batch=0)
        self.incarnations += 1
        self.planned_at = 0
        for left in (self.runs, self.slices, self.state):
            left.clear()

    def plan(self, job: int, plan: Plan) -> None:
        if self.cursor is None or (job, plan.epoch) != (self.holder, self.epoch):
            raise Refused("fenced")
        batch = plan.cursor.batch
        if (self.planned_at, self.cursor.batch, self.cursor.cursor) == (plan.epoch, batch, plan.cursor.cursor):
            return
        if batch != self.cursor.batch + 1:
            raise Refused("conflict")
        self.cursor, self.planned_at = plan.cursor, plan.epoch
        self.runs |= {(batch, run.number): [run.slice, 0, 0] for run in plan.runs}
        self.slices |= {(batch, number): data for number, data in enumerate(plan.slices)}
        for key, value in plan.state.items():
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value

    def report(self, job: int, report: RunReport) -> None:
        if self.cursor is None or job != self.holder:
            raise Refused("fenced")
        if report.batch > self.cursor.batch:
            raise Refused("conflict")
        run = self.runs.get((report.batch, report.number or 0))
        if run is None:
            return
        run[1] = max(run[1], report.attempt)
        if report.state != "running":
            run[2] = max(run[2], report.attempt)
        if report.state == "failed" and report.dead_letter is not None:
            self.letters[report.dead_letter] = report.attempt
        if report.state == "succeeded" or (report.state == "failed" and report.dead_letter is not None):
            self._close((report.batch, report.number or 0))

    def _close(self, place: Place) -> None:
        slice = self.runs.pop(place)[0]
        if all((batch, run[0]) != (place[0], slice) for (batch, _), run in self.runs.items()):
            del self.slices[place[0], slice]

    def reset(self) -> bool:
        if self.holder is not None:
            raise Refused("held")
        if self.cursor is not None:
            self.begin()
        return self.cursor is not None

    def remove(self) -> bool:
        if self.holder is not None:
            raise Refused("held")
        was_there = self.cursor is not None
        if was_there:
            self.begin()
        self.cursor, self.epoch = None, 0
        return was_there
