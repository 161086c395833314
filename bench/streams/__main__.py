"""Measures both sides and prints JSON: python -m bench.streams [--long] [--rounds N] [--only PART ...]"""

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
from bench.streams.feed import STRETCH
from bench.streams.latency import latency
from bench.streams.memory import memory
from bench.streams.sides import PEER_PYTHON, Worker
from bench.streams.throughput import acks, table

PARTS: Final = ("throughput", "acks", "memory", "latency")


def main() -> None:
    asked = _arguments()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    if not PEER_PYTHON.exists():
        raise SystemExit("error: there is no environment for the peer\nhint: make bench-streams")
    begun = monotonic()
    answer = measure(asked)
    answer["seconds"] = round(monotonic() - begun, 1)
    text = json.dumps(answer, indent=2, ensure_ascii=False)
    if asked.out is None:
        print(text)
    else:
        asked.out.write_text(text + "\n")
    say(f"{answer['seconds']:.0f} s in all; load {answer['machine']['load_before']} → {load()}")


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Return all that was asked for."""
    answer: dict[str, Any] = {"machine": machine(), "rounds": asked.rounds, "stretch": STRETCH}
    with Worker.start("airflow") as peer, Worker.start("headrace") as ours:
        answer["versions"] = {"airflow": peer.about, "headrace": {**ours.about, "commit": commit()}}
        runs: dict[str, Callable[[], Any]] = {
            "throughput": lambda: table(peer, ours, asked.rounds, say),
            "acks": lambda: acks(peer, ours, asked.rounds, say),
            "memory": lambda: memory(5_000_000 if asked.long else LONG.events, say),
            "latency": lambda: asyncio.run(latency(min(asked.rounds, 2), 5.0, say)),
        }
        for part in PARTS:
            if part in asked.only:
                say(part)
                answer[part] = runs[part]()
    answer["machine"]["load_after"] = load()
    return answer


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.streams", description="Headrace's shared streams and Airflow's, under one load.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (%(default)s)")
    parser.add_argument("--long", action="store_true", help="5,000,000 raw events in the memory run")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--out", type=Path, help="the file for the JSON, instead of standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
