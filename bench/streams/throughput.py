"""Measure events per second of Headrace and of the peer in alternating rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.streams.case import ACKS, ROWS, Case, Row
from bench.streams.drive import Took
from bench.streams.sides import Worker
from bench.streams.summary import Summary, ratio

Say = Callable[[str], None]
Jobs = Mapping[str, tuple[Worker, Case]]


def alternate(jobs: Jobs, rounds: int) -> dict[str, Summary]:
    """Run each job once per round, in reverse order in each second round."""
    took: dict[str, list[Took]] = {name: [] for name in jobs}
    for number in range(rounds):
        for name in list(jobs)[:: 1 if number % 2 == 0 else -1]:
            worker, case = jobs[name]
            took[name].append(worker.run(case))
    return {name: Summary(case, took[name]) for name, (_, case) in jobs.items()}


def table(peer: Worker, ours: Worker, rounds: int, say: Say) -> list[dict[str, Any]]:
    """Return the rows of the table of goals."""
    return [_row(row, peer, ours, rounds, say) for row in ROWS]


def _row(row: Row, peer: Worker, ours: Worker, rounds: int, say: Say) -> dict[str, Any]:
    sums = alternate({"airflow": (peer, row.peer), "declared": (ours, row.declared), "filters": (ours, row.filters)}, rounds)
    judged = sums[row.goal_form]
    say(
        f"  {row.name:<42} airflow {sums['airflow'].best:>9,.0f}   declared {sums['declared'].best:>9,.0f}   "
        f"filters {sums['filters'].best:>9,.0f}   goal {row.goal:>7,} ({row.goal_form}; by cpu {judged.best_by_cpu:,.0f})"
    )
    return {
        "case": row.name,
        "airflow": sums["airflow"].on_wire(),
        "headrace_declared": sums["declared"].on_wire(),
        "headrace_filters": sums["filters"].on_wire(),
        "ratio_declared": ratio(sums["declared"], sums["airflow"]),
        "ratio_filters": ratio(sums["filters"], sums["airflow"]),
        "goal": row.goal,
        "goal_for": row.goal_form,
        "reached": judged.best >= row.goal,
        "reached_by_cpu": judged.best_by_cpu >= row.goal,
    }


def acks(peer: Worker, ours: Worker, rounds: int, say: Say) -> list[dict[str, Any]]:
    """Return the cost of acks on each side: the same load with and without acks."""
    return [_cost(cases, peer, ours, rounds, say) for cases in ACKS]


def _cost(cases: Sequence[Case], peer: Worker, ours: Worker, rounds: int, say: Say) -> dict[str, Any]:
    theirs, mine = cases
    sums = alternate(
        {
            "airflow acks": (peer, theirs),
            "airflow": (peer, replace(theirs, acks=False)),
            "headrace acks": (ours, mine),
            "headrace": (ours, replace(mine, acks=False)),
        },
        rounds,
    )
    row: dict[str, Any] = {"case": mine.name}
    for side in ("airflow", "headrace"):
        acked, fast = sums[f"{side} acks"], sums[side]
        # additional processor time of a delivery with acks, in µs
        cost = 1e6 * (acked.case.events / acked.best_by_cpu - fast.case.events / fast.best_by_cpu) / acked.case.deliveries
        row[side] = {
            "acks": acked.on_wire(),
            "fast_path": fast.on_wire(),
            "additional_us_per_delivery": round(cost, 3),
            "times_slower": round(fast.best_by_cpu / acked.best_by_cpu, 2),
        }
        say(
            f"  {mine.name:<42} {side:<8} acks {acked.best:>9,.0f}   fast path {fast.best:>9,.0f}   "
            f"acks cost {cost:.2f} µs per delivery ({row[side]['times_slower']} times)"
        )
    return row
