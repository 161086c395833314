"""Leases under seeded interleavings of triggerers that join and end, with lost answers and merged instructions.

The parts are those of the processes: the store, the leases of a supervisor, its instructions, and the leases of its runner.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest
from sqlalchemy import select

from headrace.store import Store
from headrace.store.tables.control import triggers
from headrace.triggerer.ipc.messages import RunTriggers
from headrace.triggerer.runner.instructions import merge
from headrace.triggerer.runner.leases import Leases
from headrace.triggerer.supervisor.held_leases import HeldLeases
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.control.triggers import CleanupTriggers, DeclaredTrigger, DeclareProject, LoadTriggers
from support.processes.store import registration

SEED = int(os.environ["SCENARIO_SEED"])
STREAMS = 5
STEPS = 120


@dataclass
class Triggerer:
    """The leases of one triggerer: of its supervisor, in the instruction that waits, and of its runner."""

    store: Store
    job_id: int
    known: HeldLeases = field(default_factory=HeldLeases)
    epochs: dict[int, int] = field(default_factory=dict)
    waiting: RunTriggers | None = None
    leases: Leases = field(default_factory=Leases)
    running: dict[int, int] = field(default_factory=dict)

    def load(self, *, lost: bool = False) -> None:
        """Send a load. If its answer is lost, the supervisor sends the same request again later."""
        loaded = self.store.triggers.load(self.job_id, LoadTriggers(capacity=100, since=self.known.revision))
        if lost:
            return
        self.known.update(loaded)
        due = self.known.due(self.epochs)
        found = {one.trigger_id for one in self.store.triggers.workloads(self.job_id, due.start)}
        missing = [one for one in due.start if one not in found]
        released = [*due.stop, *(one for one in missing if one in self.epochs)]
        started = self.known.epochs(found)
        for one in released:
            del self.epochs[one]
        self.epochs.update(started)
        self.known.done(again=missing)
        instruction = RunTriggers(started, released, [], dict(self.known.revoked), {}, self.known.dropped())
        self.waiting = instruction if self.waiting is None else merge(self.waiting, instruction)

    def run(self) -> None:
        """Apply the instruction that waits, and confirm the triggers that have stopped."""
        if (leased := self.waiting) is None:
            return
        self.waiting = None
        _, stop = self.leases.changes(leased.epochs, leased.released)
        released = [one for one in stop if one not in leased.epochs]
        self.leases.update(leased.epochs, leased.released)
        for one in stop:
            del self.running[one]
        self.running.update(leased.epochs)
        stopped = self.leases.stopped(released, leased.cleanup)
        self.store.triggers.cleanup(self.job_id, CleanupTriggers(trigger_ids=list(stopped), epochs=stopped))
        self.leases.drop_released(())


def declare(store: Store, job_id: int, version: int) -> None:
    declared = [
        DeclaredTrigger(name=f"s{stream}-{n}", classpath="some.Trigger", kwargs={"v": version * (stream == 0)}, stream=f"s{stream}")
        for stream in range(STREAMS)
        for n in range(2)
    ]
    store.projects.declare(job_id, "flights", DeclareProject(triggers=declared, pipelines=[]))


def held(store: Store) -> dict[int, tuple[int | None, int, int | None]]:
    with store.reading() as connection:
        rows = connection.execute(select(triggers.c.id, triggers.c.job_id, triggers.c.epoch, triggers.c.revoked_job_id))
        return {row.id: (row.job_id, row.epoch, row.revoked_job_id) for row in rows}


def check_owners(live: list[Triggerer]) -> None:
    running = [one for triggerer in live for one in triggerer.running]
    assert len(running) == len(set(running)), {one.job_id: one.running for one in live}


@pytest.mark.parametrize("seed", range(SEED, SEED + 12))
def test_each_trigger_runs_once_after_any_interleaving(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    declarer = store.jobs.register(registration(kind="pipeline")).id
    version = 0
    declare(store, declarer, version)
    live = [Triggerer(store, store.jobs.register(registration()).id)]
    # From runners that apply each instruction to runners that are busy while several are merged.
    actions = {"load": 8, "run": chance.choice((1, 3, 8)), "join": 1, "end": 1, "declare": chance.choice((0, 1))}
    for action in chance.choices([*actions], [*actions.values()], k=STEPS):
        one = chance.choice(live)
        if action == "load":
            one.load(lost=chance.random() < 0.3)
        elif action == "run":
            one.run()
        elif action == "join" and len(live) < 4:
            live.append(Triggerer(store, store.jobs.register(registration()).id))
        elif action == "end" and len(live) > 1:
            live.remove(one)
            store.jobs.complete(one.job_id, CompleteJob(state="failed"))
        elif action == "declare":
            version += 1
            declare(store, declarer, version)
        check_owners(live)
    for _ in range(12):
        for triggerer in live:
            triggerer.load()
            triggerer.run()
            check_owners(live)
    expected = {one: (triggerer.job_id, epoch, None) for triggerer in live for one, epoch in triggerer.running.items()}
    assert held(store) == expected
    assert len(expected) == 2 * STREAMS
