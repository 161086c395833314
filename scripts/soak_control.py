"""Inject faults into three triggerers and two API servers on PostgreSQL, with 500 triggers on 20 streams. The seed determines the faults.

Stops at the first run with a lost, repeated or misassigned event, and prints the command that repeats it.
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
    options = _arguments()
    shape = Shape(
        postgresql=options.database == "postgresql",
        apis=2 if options.database == "postgresql" else 1,
        seconds=options.seconds,
        gap=options.gap,
        messages=options.messages,
        clocks=clock_library() is not None,
    )
    if not shape.clocks:
        print("clock faults are skipped: Debian's libfaketime is not installed", flush=True)
    generator = random.Random(options.seed)
    for number in range(options.runs):
        seed = options.seed if number == 0 else generator.randrange(1, 10**9)
        if not one_run(shape, seed, options.keep):
            return 1
    print("soak-control: no event lost or repeated", flush=True)
    return 0


def one_run(shape: Shape, seed: int, keep: bool) -> bool:
    """Execute one run and print the result. Delete its files unless it failed."""
    folder = Path(mkdtemp(prefix="headrace-chaos-"))
    command = f"scripts/soak_control.py --seed {seed} --seconds {shape.seconds:g} --gap {shape.gap:g} --messages {shape.messages:g}"
    command += "" if shape.postgresql else " --database sqlite"
    print(f"--- {command}", flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f}  {text}", flush=True)

    try:
        result = chaos(folder, shape, seed, say)
    except (AssertionError, OSError):
        traceback.print_exc()
        print(f"FAILED in {time.monotonic() - began:.0f} s; files in {folder}; to repeat: {command}", flush=True)
        return False
    print(f"passed in {time.monotonic() - began:.0f} s: {json.dumps(result)}", flush=True)
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
    options = parser.parse_args()
    if options.plan:
        shape = Shape(postgresql=options.database == "postgresql", seconds=options.seconds, gap=options.gap)
        print("\n".join(map(str, plan(options.seed, shape))))
        raise SystemExit(0)
    return options


if __name__ == "__main__":
    sys.exit(main())
