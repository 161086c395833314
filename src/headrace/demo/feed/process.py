"""The feed as a process of its own: `python -m headrace.demo.feed.process --home HOME --seed N`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Final

from headrace.demo.feed.flights import Period
from headrace.demo.feed.manifest import Parameters
from headrace.demo.feed.writer import run_feed
from headrace.errors import HeadraceError

SECONDS: Final[dict[Period, float]] = {"january": 25.0, "year": 150.0}
SLICES_A_SECOND: Final = 4


def parameters(seed: int, period: Period, seconds: float | None = None) -> Parameters:
    """Return the parameters of a feed of `period` that is written within `seconds` (default: 25 for January, 150 for the year)."""
    seconds = SECONDS[period] if seconds is None else seconds
    return Parameters(seed=seed, period=period, seconds=seconds, slices=max(1, round(seconds * SLICES_A_SECOND)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the feed; return 0 if it is complete or was stopped, 1 if it cannot be written."""
    parser = argparse.ArgumentParser(prog="python -m headrace.demo.feed.process", description="Write the flights feed of the demo.")
    parser.add_argument("--home", type=Path, required=True, help="the demo's folder; files go to its feed/ folder")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--period", choices=("january", "year"), default="january")
    parser.add_argument("--seconds", type=float, default=None, help="wall-clock time to write it in")
    options = parser.parse_args(arguments)
    stop = Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    try:
        run_feed(options.home, parameters(options.seed, options.period, options.seconds), stop)
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n{error.hint or ''}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
