"""The loads of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

SideName: TypeAlias = Literal["airflow", "headrace"]


@dataclass(frozen=True, slots=True)
class Case:
    """One load of `events` raw events. `selective`: each raw event matches one subscriber, otherwise all of them.

    `declared`: the subscribers are declared watches (Headrace only), not Python filters.
    """

    name: str
    subscribers: int
    events: int
    selective: bool = False
    declared: bool = False
    acks: bool = True
    lanes: int = 1
    samples: int = 0
    """Number of samples of the process's resident memory."""

    @property
    def deliveries(self) -> int:
        """Return the number of trigger events of the load."""
        return self.events if self.selective else self.events * self.subscribers

    def on_wire(self) -> dict[str, Any]:
        """Return the case as plain JSON."""
        return asdict(self)

    @classmethod
    def off_wire(cls, fields: Mapping[str, Any]) -> Self:
        """Return the case of a JSON object from `on_wire`."""
        return cls(**fields)

    def with_events(self, events: int) -> Case:
        """Return the same load with another number of raw events."""
        return replace(self, events=events)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: the loads of the peer, of declared watches and of Python filters, and the goal in events per second."""

    name: str
    peer: Case
    declared: Case
    filters: Case
    goal: int
    goal_form: Literal["declared", "filters"]


def _row(name: str, subscribers: int, selective: bool, goal: int, events: tuple[int, int, int]) -> Row:
    peer, declared, filters = (Case(name, subscribers, count, selective=selective) for count in events)
    return Row(name, peer, replace(declared, declared=True), filters, goal, "declared" if selective else "filters")


# Each measurement takes about a second. With the load of the fast side, the slow side would take minutes.
ROWS: Final = (
    _row("1 subscriber", 1, False, 200_000, (60_000, 100_000, 100_000)),
    _row("100 subscribers, each event matches all", 100, False, 4_000, (600, 40_000, 3_000)),
    _row("100 subscribers, each event matches one", 100, True, 120_000, (1_200, 100_000, 3_000)),
    _row("1,000 subscribers, each event matches one", 1_000, True, 100_000, (200, 100_000, 500)),
)

ACKS: Final = (
    (Case("1 subscriber", 1, 60_000), Case("1 subscriber", 1, 100_000)),
    (Case("100 subscribers, each event matches all", 100, 600), Case("100 subscribers, each event matches all", 100, 3_000)),
)
"""Loads of the peer and of Headrace, each measured with and without acks."""

LONG: Final = Case("1 subscriber, 8 lanes", 1, 1_000_000, lanes=8, samples=40)
