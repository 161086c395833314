"""The faults of a chaos run and their times, generated from a seed, so that a run can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["kill", "kill-runner", "pause", "database", "network", "clock"]

CLOCKS: Final = ("+90s", "-90s", "+7200s", "-7200s", "+200d", "-200d")
NETWORK: Final = ("drop", "lose", "delay", "mixed")


@dataclass(frozen=True)
class Shape:
    """How much of everything there is. `postgresql`: else one SQLite file, which has room for one api."""

    postgresql: bool
    apis: int = 2
    triggerers: int = 3
    queues: int = 16
    folders: int = 4
    triggers: int = 25  # of each stream
    seconds: float = 60.0
    messages: float = 80.0  # each second
    gap: float = 3.0  # seconds between faults, on the average
    clocks: bool = True
    threshold: int = 5  # seconds of silence after which a job is dead
    longest: float = 8.0  # seconds that a fault lasts; one whom the others are to take for dead is silent for so much more


@dataclass(frozen=True)
class Fault:
    """At `at` seconds, `kind` befalls `who`, for `lasts` seconds."""

    at: float
    kind: Kind
    who: str
    lasts: float
    how: str = ""

    def __str__(self) -> str:
        return f"{self.at:5.1f} s  {self.kind} {self.who} {self.how} for {self.lasts:.1f} s".replace("  for", " for")


def plan(seed: int, shape: Shape) -> list[Fault]:
    """Return the faults of a run. Every kind comes once before any comes twice, and in the last seconds none begins."""
    chance = random.Random(seed)
    kinds = _kinds(shape)
    left: list[Kind] = []
    faults: list[Fault] = []
    at = 3.0 + chance.uniform(0, shape.gap)  # the first may hit while they all start
    while at < shape.seconds - 2:
        if not left:
            left = chance.sample(kinds, len(kinds))
        faults.append(_fault(chance, shape, left.pop(), round(at, 2)))
        at += chance.uniform(0.1, 2 * shape.gap)
    return faults


def _kinds(shape: Shape) -> list[Kind]:
    kinds: list[Kind] = ["kill", "kill", "kill-runner", "pause", "network"]
    if shape.postgresql:
        kinds.append("database")
    if shape.clocks:
        kinds.append("clock")
    return kinds


def _fault(chance: random.Random, shape: Shape, kind: Kind, at: float) -> Fault:
    triggerer = f"triggerer-{chance.randrange(shape.triggerers)}"
    api = f"api-{chance.randrange(shape.apis)}"
    if kind == "kill":
        how = chance.choice(["", "replaced"])  # whether the next one says whom it stands in for
        return Fault(at, kind, chance.choice([triggerer, triggerer, api]), round(chance.uniform(0, shape.longest), 2), how)
    if kind == "pause":
        how = chance.choice(["supervisor", "runner", "both", "both"])
        return Fault(at, kind, triggerer, round(shape.threshold + chance.uniform(1, shape.longest), 2), how)
    if kind == "database":
        return Fault(at, kind, "postgresql", round(chance.uniform(0, shape.longest / 2), 2), chance.choice(["fast", "immediate"]))
    if kind == "network":
        return Fault(at, kind, "proxy", round(chance.uniform(1, shape.threshold + shape.longest / 2), 2), chance.choice(NETWORK))
    if kind == "clock":
        return Fault(
            at, kind, chance.choice(["api-0", "triggerer-1"]), round(chance.uniform(1, 2 * shape.longest), 2), chance.choice(CLOCKS)
        )
    return Fault(at, kind, triggerer, 0)
