"""Drivers plan, report, repeat calls, die, take over and are reset at random: after each step the store equals a small model."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from sqlalchemy import select

from headrace.errors import ApiRefused
from headrace.store import Store
from headrace.store.tables.pipelines import pipeline_dead_letters, plan_slices, planned_runs, scope_state, scopes
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.plans import Plan
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.plan_model import Ledger, Refused
from support.pipelines.plans import driver, plan, planned, report, stored_cursor
from support.processes.store import TurnedClock

STEPS = 150
SEEDS = [20261122, 20261123, 20261124]


def answered(call: Callable[[], Any]) -> Any:
    """Return the answer of a call, or the problem with which it is refused."""
    try:
        return call()
    except Refused as refusal:
        return str(refusal)
    except ApiRefused as refusal:
        return refusal.problem


class Drivers:
    """Takes random steps with a store and the model side by side."""

    def __init__(self, store: Store, clock: TurnedClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.random = Random(seed)
        self.model = Ledger()
        self.jobs = [driver(store), driver(store)]
        self.gone: list[int] = []
        """A job that has ended, and may still send something."""
        self.sent: list[Callable[[], None]] = []
        self.outcomes: set[str] = set()

    def step(self) -> None:
        steps = [self.acquire, self.plan, self.plan, self.report, self.report, self.report, self.repeat, self.end, self.reset, self.remove]
        self.random.choices(steps, [3, 5, 2, 5, 5, 5, 5, 1, 1, 0.3])[0]()

    def both(self, name: str, ours: Callable[[], Any], models: Callable[[], Any]) -> None:
        """Let the store and the model do the same: they answer or refuse alike."""
        expected, answer = answered(models), answered(ours)
        if isinstance(expected, str):
            assert answer == expected, name
            self.outcomes.add(f"{name} refused: {expected}")
        else:
            assert not isinstance(answer, str), (name, answer)
            assert expected is None or bool(answer) is expected, name
            self.outcomes.add(name)

    def acquire(self) -> None:
        job = self.random.choice([*self.jobs, *self.gone])
        self.both("lease", lambda: self.store.scope_leases.acquire(job, "s"), lambda: self.model.acquire(job))

    def end(self) -> None:
        """End a driver, or let one that is silent be taken over, and begin another."""
        number = self.random.randrange(len(self.jobs))
        job, self.jobs[number] = self.jobs[number], driver(self.store)
        if self.model.holder == job and self.random.random() < 0.5:
            self.take_over(self.jobs[number])
        else:
            self.store.jobs.complete(job, CompleteJob(state="failed"))
            self.model.end(job)
        self.gone = [job]

    def take_over(self, heir: int) -> None:
        for _ in range(7):
            with pytest.raises(ApiRefused, match="held"):
                self.store.scope_leases.acquire(heir, "s")
            self.clock.turn(1)
        self.model.end(self.model.holder or 0)
        self.both("take-over", lambda: self.store.scope_leases.acquire(heir, "s"), lambda: self.model.acquire(heir))

    def job(self) -> int:
        """Return the holder, or sometimes another one."""
        return (
            self.random.choice([*self.jobs, *self.gone]) if self.model.holder is None or self.random.random() < 0.1 else self.model.holder
        )

    def plan(self) -> None:
        job, made = self.job(), self.made_plan()
        self.send("plan", lambda: self.store.plans.store(job, "s", made), lambda: self.model.plan(job, made))

    def made_plan(self) -> Plan:
        before = self.model.cursor or Cursor(cursor=0, batch=0)
        batch = before.batch + self.random.choice([1] * 9 + [0, 2])
        epoch = self.model.epoch + self.random.choice([0] * 9 + [-1, 1])
        slices = self.random.randrange(4)
        runs = [planned(number, number % slices) for number in range(slices * self.random.randrange(1, 3))] if slices else []
        keys = {f"k{self.random.randrange(6)}": self.random.choice([None, self.random.randbytes(5)]) for _ in range(3)}
        moved = Cursor(cursor=before.cursor + self.random.randrange(3), batch=batch)
        return plan(batch, *runs, epoch=epoch, cursor=moved, state=keys)

    def report(self) -> None:
        job, made = self.job(), self.made_report()
        self.send(made.state, lambda: self.store.runs.report(job, [made]), lambda: self.model.report(job, made))

    def made_report(self) -> RunReport:
        last = self.model.cursor.batch if self.model.cursor is not None else 0
        some = [*self.model.runs] * 3 + [(self.random.randrange(last + 2), self.random.randrange(4))]
        batch, number = self.random.choice(some)
        run_id = f"{self.model.incarnations}.{batch}.{number}"
        state = self.random.choice(["running", "failed", "failed", "succeeded"])
        attempt = self.model.runs.get((batch, number), [0, 0, 0])[1] + (state == "running") or 1
        letter = self.random.choice([None, run_id]) if state != "running" else None
        return report(batch, number, run_id=run_id, state=state, attempt=attempt, dead_letter=letter, error=None)

    def send(self, name: str, ours: Callable[[], Any], models: Callable[[], Any]) -> None:
        def sent() -> None:
            self.both(name, ours, models)

        sent()
        self.sent.append(sent)

    def repeat(self) -> None:
        """Send something again, whose answer may have been lost, or that was on its way for long."""
        if self.sent:
            self.random.choice(self.sent[-5:])()

    def reset(self) -> None:
        self.both("reset", lambda: self.store.scopes.reset("s", 1), self.model.reset)
        self.sent.clear()

    def remove(self) -> None:
        self.both("remove", lambda: self.store.scopes.remove("s"), self.model.remove)
        self.sent.clear()

    def check(self) -> None:
        """Compare what the database has with what the model has."""
        run, slice, state, letter = planned_runs.c, plan_slices.c, scope_state.c, pipeline_dead_letters.c
        with self.store.reading() as connection:
            incarnations = set(connection.execute(select(scopes.c.incarnation)).scalars())
            runs = connection.execute(select(run.batch, run.number, run.slice, run.begun, run.ended, run.incarnation)).all()
            slices = connection.execute(select(slice.batch, slice.number, slice.data, slice.incarnation)).all()
            entries = connection.execute(select(state.key, state.value, state.incarnation)).all()
            letters = connection.execute(select(letter.id, letter.attempts)).all()
        assert {row.incarnation for row in (*runs, *slices, *entries)} <= incarnations
        assert {(row.batch, row.number): [*row[2:5]] for row in runs} == self.model.runs
        assert {(row.batch, row.number): row.data for row in slices} == self.model.slices
        assert {row.key: row.value for row in entries} == self.model.state
        assert {row.id: row.attempts for row in letters} == self.model.letters
        cursor = stored_cursor(self.store, "s")
        expected = self.model.cursor or Cursor(cursor=0, batch=0)
        assert (cursor.cursor, cursor.batch) == (expected.cursor, expected.batch)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_store_equals_its_model(store: Store, clock: TurnedClock, seed: int) -> None:
    drivers = Drivers(store, clock, seed)
    for _ in range(STEPS):
        drivers.step()
        drivers.check()
    assert {"lease", "plan", "running", "failed", "succeeded"} <= drivers.outcomes
    assert {"plan refused: fenced", "plan refused: conflict"} <= drivers.outcomes
