"""Inject faults into three triggerers and two API servers on PostgreSQL, with 500 triggers on 20 streams. The seed determines the faults.

Stops at the first run that loses, repeats or mixes anything, and prints what runs it again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support/projects"))

from support.chaos.kit import clock_library
from support.chaos.plan import Shape, plan
from support.chaos.run import chaos


def main() -> int:
    """Run the requested runs; return 0 if no event was lost or repeated."""
    asked = _arguments()
    shape = Shape(
        postgresql=asked.database == "postgresql",
        apis=2 if asked.database == "postgresql" else 1,
        seconds=asked.seconds,
        gap=asked.gap,
        messages=asked.messages,
        clocks=clock_library() is not None,
    )
    if not shape.clocks:
        print("clock faults are skipped: Debian's libfaketime is not installed", flush=True)
    chance = random.Random(asked.seed)
    for number in range(asked.runs):
        seed = asked.seed if number == 0 else chance.randrange(1, 10**9)
        if not one_run(shape, seed, asked.keep):
            return 1
    print("soak-control: no event lost or repeated", flush=True)
    return 0


def one_run(shape: Shape, seed: int, keep: bool) -> bool:
    """Do one run and say how it went; what it left behind stays only if it failed."""
    folder = Path(mkdtemp(prefix="headrace-chaos-"))
    again = f"scripts/soak_control.py --seed {seed} --seconds {shape.seconds:g} --gap {shape.gap:g} --messages {shape.messages:g}"
    again += "" if shape.postgresql else " --database sqlite"
    print(f"--- {again}", flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f}  {text}", flush=True)

    try:
        told = chaos(folder, shape, seed, say)
    except (AssertionError, OSError):
        traceback.print_exc()
        print(f"FAILED in {time.monotonic() - began:.0f} s; files in {folder}; to repeat: {again}", flush=True)
        return False
    print(f"held in {time.monotonic() - began:.0f} s: {json.dumps(told)}", flush=True)
    if not keep:
        shutil.rmtree(folder)
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9), help="seed of all faults")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the load in seconds (%(default)g)")
    parser.add_argument("--runs", type=int, default=1, help="number of runs; the first seed determines the others")
    parser.add_argument("--gap", type=float, default=3.0, help="mean seconds between faults (%(default)g)")
    parser.add_argument("--messages", type=float, default=80.0, help="messages per second (%(default)g)")
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--keep", action="store_true", help="do not delete the folder of a successful run")
    parser.add_argument("--plan", action="store_true", help="only print the plan")
    asked = parser.parse_args()
    if asked.plan:
        shape = Shape(postgresql=asked.database == "postgresql", seconds=asked.seconds, gap=asked.gap)
        print("\n".join(map(str, plan(asked.seed, shape))))
        raise SystemExit(0)
    return asked


if __name__ == "__main__":
    sys.exit(main())
