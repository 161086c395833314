"""Run the scenarios of shared streams at scale: hundreds of kills, 100,000 events during API failures, a burst of 100,000 messages.

Each is a test of `tests/acceptance`, run with larger numbers and its own seed. Stops at the first failure, and
prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

TESTS = Path(__file__).parent.parent / "tests" / "acceptance"
KILLS = f"{TESTS / 'test_scenario_kills.py'}::test_the_triggerer_is_killed_at_random_moments"
API_FAILURES = f"{TESTS / 'test_scenario_kills.py'}::test_events_are_stored_once_with_an_unreliable_api_server"
BURST = str(TESTS / "test_scenario_burst.py")
OTHERS = [str(TESTS / f"test_scenario_{name}.py") for name in ("stuck", "restart", "advance", "owners", "change")]


def main() -> int:
    """Run the requested scenarios; return 0 if no event was lost or repeated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="number of kills of the triggerer")
    parser.add_argument("--kills-per-run", type=int, default=20, help="kills of one deployment before its check")
    parser.add_argument("--events", type=int, default=100_000, help="events during API failures")
    parser.add_argument("--burst", type=int, default=100_000, help="messages in one burst")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of the other scenarios")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10**9), help="seed that determines all other seeds")
    options = parser.parse_args()
    print(f"soak-streams: --seed {options.seed}", flush=True)
    generator = random.Random(options.seed)
    runs: list[tuple[list[str], dict[str, int]]] = [([BURST], {"BURST": options.burst})] if options.burst else []
    left = options.kills
    while left > 0:
        kills = min(options.kills_per_run, left)
        runs.append(([KILLS], {"KILLS": kills, "SEED": generator.randrange(1, 10**9)}))
        left -= kills
    if options.events:
        runs.append(([API_FAILURES], {"EVENTS": options.events, "SEED": generator.randrange(1, 10**9)}))
    runs += [(OTHERS, {})] * options.rounds
    for tests, sizes in runs:
        if not one_run(tests, {f"SCENARIO_{name}": str(value) for name, value in sizes.items()}):
            return 1
    print("soak-streams: no event lost or repeated", flush=True)
    return 0


def one_run(tests: list[str], sizes: dict[str, str]) -> bool:
    """Run tests with these sizes and print the result. Their files are deleted unless a test failed."""
    folder = Path(mkdtemp(prefix="headrace-soak-"))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={folder / 'runs'}", *tests]
    repeat = " ".join([*(f"{name}={value}" for name, value in sizes.items()), *command])
    began = time.monotonic()
    with (folder / "output.txt").open("w+") as output:
        done = subprocess.run(command, env=os.environ | sizes, stdout=output, stderr=subprocess.STDOUT, check=False)
        output.seek(0)
        text = output.read()
    names = " ".join(Path(test).name for test in tests)
    print(f"{names} {sizes or ''}: {'passed' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - began:.0f} s", flush=True)
    if done.returncode != 0:
        print(f"{text[-6000:]}\nfiles in {folder}; to repeat: {repeat}", flush=True)
        return False
    shutil.rmtree(folder)
    return True


if __name__ == "__main__":
    sys.exit(main())
