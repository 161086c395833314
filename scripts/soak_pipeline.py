"""A pipeline killed before, in and after its sink's commit, on a shuffled, duplicated and lossy feed; its tables must be exact.

With `--rivals 3`, three drivers fight for the scope meanwhile: paused, killed, cut off from the api, with wrong clocks.
With `--power-cuts`, the tables lie in a file system of their own, which loses at each kill what was not synced (only as root).

Prints what runs a failure again; what it left behind stays.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from contextlib import nullcontext
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support/projects"))

from support.pipelines.kills import PHASES, Shape, soak
from support.pipelines.power_cut_volume import Volume, missing
from support.pipelines.rivals import fight


def main() -> int:
    """Run the soak test; return 0 if the tables are exact and the kills covered each phase often enough."""
    asked = _arguments()
    again = f"scripts/soak_pipeline.py --seed {asked.seed} --events {asked.events} --kills {asked.kills}"
    again += f" --rivals {asked.rivals}" if asked.rivals else ""
    again += " --power-cuts" if asked.power_cuts else ""
    if asked.power_cuts and (lacking := missing()):
        print(f"error: --power-cuts is not possible: {lacking}.", file=sys.stderr)
        return 2
    print(f"--- {again}", file=sys.stderr, flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f}  {text}", file=sys.stderr, flush=True)

    folder: Path = asked.folder or Path(mkdtemp(prefix="headrace-soak-pipeline-"))
    folder.mkdir(parents=True, exist_ok=True)
    shape = Shape(asked.events, asked.kills, ahead=max(1_000, min(50_000, asked.events // 40)), lookback=asked.lookback)
    try:
        if asked.rivals:
            return _judge_rivals(asked, fight(folder, shape, asked.rivals, asked.seed, say), folder)
        with Volume(folder / "tables") if asked.power_cuts else nullcontext() as volume:
            told = soak(folder, shape, asked.seed, say, 60 * asked.minutes, volume)
    except (AssertionError, OSError):
        traceback.print_exc()
        print(f"FAILED, files in {folder}; to repeat: {again}", file=sys.stderr, flush=True)
        return 1
    if told is None:
        print(f"not finished; continue with: {again} --folder {folder}", file=sys.stderr, flush=True)
        return 75
    shutil.rmtree(folder)
    if asked.json:
        print(json.dumps(told, indent=2))
    phases = told["phases"]
    rare = [phase for phase in PHASES if phases[phase] < asked.kills // 4]
    if told["kills"] < asked.kills or rare:
        print(f"soak-pipeline: the tables are exact, but too few kills hit: {phases}", file=sys.stderr, flush=True)
        return 1
    print(
        f"soak-pipeline: {asked.events:,} events exact after {told['kills']} kills, {phases}, {told['marks']}", file=sys.stderr, flush=True
    )
    return 0


def _judge_rivals(asked: argparse.Namespace, told: dict[str, Any], folder: Path) -> int:
    """Return 0 if all faults happened."""
    shutil.rmtree(folder)
    if asked.json:
        print(json.dumps(told, indent=2))
    happened = sum(told["faults"].values())
    print(
        f"soak-pipeline: {asked.events:,} events exact after {happened} faults of {asked.rivals} rivals: {told}",
        file=sys.stderr,
        flush=True,
    )
    return 0 if happened == asked.kills else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="number of different events (%(default)s)")
    parser.add_argument("--kills", type=int, default=20, help="number of kills of the pipeline (%(default)s)")
    parser.add_argument(
        "--rivals",
        type=int,
        default=0,
        help="number of drivers that compete for the scope; --kills is then the number of faults (0: one driver)",
    )
    parser.add_argument("--power-cuts", action="store_true", help="cut the power of the tables at each kill (only as root)")
    parser.add_argument("--lookback", type=float, default=30.0, help="seconds that a follower waits for its leader (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9), help="seed of all random choices")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time, to continue later (exit code 75)")
    parser.add_argument("--folder", type=Path, help="folder of the database and the tables; continues a stopped run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
