"""Measure both sides and print JSON: python -m bench.streams [--long] [--rounds N] [--only PART ...]"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, Final

import structlog
from bench.api_process import commit, load, machine
from bench.streams.case import LONG
from bench.streams.feed import YIELD_INTERVAL_EVENTS
from bench.streams.latency import latency
from bench.streams.memory import memory
from bench.streams.sides import PEER_PYTHON, Worker
from bench.streams.throughput import acks, table

PARTS: Final = ("throughput", "acks", "memory", "latency")


def main() -> None:
    options = _arguments()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    if not PEER_PYTHON.exists():
        raise SystemExit("error: The environment of the peer is missing.\nhint: Create it: make bench-streams")
    begun = monotonic()
    answer = measure(options)
    answer["seconds"] = round(monotonic() - begun, 1)
    text = json.dumps(answer, indent=2, ensure_ascii=False)
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text + "\n")
    say(f"{answer['seconds']:.0f} s in total; load {answer['machine']['load_before']} → {load()}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of the requested parts."""
    answer: dict[str, Any] = {"machine": machine(), "rounds": options.rounds, "events_between_yields": YIELD_INTERVAL_EVENTS}
    with Worker.start("airflow") as peer, Worker.start("headrace") as ours:
        answer["versions"] = {"airflow": peer.about, "headrace": {**ours.about, "commit": commit()}}
        runs: dict[str, Callable[[], Any]] = {
            "throughput": lambda: table(peer, ours, options.rounds, say),
            "acks": lambda: acks(peer, ours, options.rounds, say),
            "memory": lambda: memory(5_000_000 if options.long else LONG.events, say),
            "latency": lambda: asyncio.run(latency(min(options.rounds, 2), 5.0, say)),
        }
        for part in PARTS:
            if part in options.only:
                say(part)
                answer[part] = runs[part]()
    answer["machine"]["load_after"] = load()
    return answer


def say(text: str) -> None:
    """Print a progress message."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.streams", description="Compare the shared streams of Headrace and Airflow under the same load."
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds of each measurement (%(default)s)")
    parser.add_argument("--long", action="store_true", help="use 5,000,000 raw events in the memory run")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure only these parts")
    parser.add_argument("--out", type=Path, help="write the JSON to this file instead of standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
