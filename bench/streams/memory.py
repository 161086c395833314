"""Measure resident memory during a long run, each side in a new process."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any, Final

from bench.streams.case import LONG, Case, SideName
from bench.streams.drive import Took
from bench.streams.sides import Worker
from bench.streams.throughput import Say

FLAT: Final = 4.0
"""Maximum growth from the second to the last tenth, in MiB."""

MIB: Final = 1 << 20


def memory(events: int, say: Say) -> dict[str, Any]:
    """Return the memory of both sides over `events` raw events."""
    cases: list[tuple[str, SideName, Case]] = [
        ("airflow", "airflow", LONG),
        ("headrace_filters", "headrace", LONG),
        ("headrace_declared", "headrace", replace(LONG, declared=True)),
    ]
    answer: dict[str, Any] = {"events": events}
    for name, side, case in cases:
        with Worker.start(side) as worker:
            answer[name] = shape = _shape(worker.run(case.with_events(events)))
        say(
            f"  {name:<18} {events:,} events in {shape['seconds']:.0f} s: {shape['from_mib']:.1f} → {shape['to_mib']:.1f} MiB "
            f"({shape['growth_mib']:+.2f}, maximum {shape['max_mib']:.1f})"
        )
    return answer


def _shape(took: Took) -> dict[str, Any]:
    """Compare the second tenth with the last. The first tenth is warm-up."""
    held = [size / MIB for size in took.resident]
    tenth = max(1, len(held) // 10)
    begin, end = median(held[tenth : 2 * tenth]), median(held[-tenth:])
    return {
        "seconds": round(took.seconds, 2),
        "from_mib": round(begin, 2),
        "to_mib": round(end, 2),
        "max_mib": round(max(held), 2),
        "growth_mib": round(end - begin, 2),
        "flat": end - begin <= FLAT,
        "series_mib": [round(size, 1) for size in held],
    }
