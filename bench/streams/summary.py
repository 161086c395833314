"""Summarize several rounds of one measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.streams.case import Case
from bench.streams.drive import Took


@dataclass(frozen=True, slots=True)
class Summary:
    """Events per second of wall time and of the side's processor time, of the best and the median round.

    Processor time approximates the wall time on a machine without other load.
    """

    case: Case
    rounds: Sequence[Took]

    @property
    def best(self) -> float:
        """Return events per second in the best round."""
        return max(took.events / took.seconds for took in self.rounds)

    @property
    def median(self) -> float:
        """Return events per second in the median round."""
        return median(took.events / took.seconds for took in self.rounds)

    @property
    def best_by_cpu(self) -> float:
        """Return events per second of processor time in the best round."""
        return max(took.events / took.cpu for took in self.rounds)

    @property
    def median_by_cpu(self) -> float:
        """Return events per second of processor time in the median round."""
        return median(took.events / took.cpu for took in self.rounds)

    def on_wire(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "events": self.case.events,
            "best": round(self.best),
            "median": round(self.median),
            "best_by_cpu": round(self.best_by_cpu),
            "median_by_cpu": round(self.median_by_cpu),
            "us_per_delivery": round(1e6 * self.case.events / self.best / self.case.deliveries, 3),
        }


def ratio(ours: Summary, peers: Summary) -> dict[str, float]:
    """Return the ratios of Headrace's events per second to those of the peer."""
    return {
        "best": round(ours.best / peers.best, 2),
        "median": round(ours.median / peers.median, 2),
        "best_by_cpu": round(ours.best_by_cpu / peers.best_by_cpu, 2),
        "median_by_cpu": round(ours.median_by_cpu / peers.median_by_cpu, 2),
    }
