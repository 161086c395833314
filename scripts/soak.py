"""The demo, many times: over many seeds, and with each of its processes killed once at a random moment. Stops at the first failure.

Prints what is needed to run a failure again: `--first-seed` and `--chance`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import psutil

PROCESSES = {
    "api": ("headrace", "api"),
    "triggerer": ("headrace", "triggerer"),
    "pipeline": ("headrace", "pipeline"),
    "feed": ("headrace", "demo-feed"),
    "spark": ("org.apache.spark.deploy.SparkSubmit",),
}
"""How to find each process: words of its command line."""

LIMIT = 400.0  # seconds for one run


@dataclass
class Run:
    """One run of the demo: its folder, what it cost, and what was done to it."""

    seed: int
    home: Path
    seconds: float = 0.0
    kills: list[str] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)
    """Largest resident size of each process in MiB."""


def main() -> int:
    """Run what was asked for; return 0 if every check held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="runs left alone, one for each seed")
    parser.add_argument("--kills", type=int, default=10, help="runs in which each process is killed once")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--chance", type=int, default=1, help="what the moments of the kills follow from")
    parser.add_argument("--supervisor", action="store_true", help="kill the supervisor too, and run the same command again")
    asked = parser.parse_args()
    for number in range(asked.seeds):
        if not one_run(asked.first_seed + number, None, supervisor=False):
            return 1
    for number in range(asked.kills):
        if not one_run(asked.first_seed + number, random.Random(asked.chance + number), supervisor=asked.supervisor):
            return 1
    print("soak: all checks held", flush=True)
    return 0


def one_run(seed: int, chance: random.Random | None, *, supervisor: bool) -> bool:
    """Run the demo once and say how it went; its folder stays only if the check failed."""
    run = Run(seed, Path(mkdtemp(prefix="headrace-soak-")) / "demo")
    began = time.monotonic()
    plan = dict(kill_plan(chance, supervisor=supervisor)) if chance is not None else {}
    with (run.home.parent / "output.txt").open("w+") as output:
        code = drive(run, plan, output.fileno())
        run.seconds = time.monotonic() - began
        output.seek(0)
        text = output.read()
    peak = " ".join(f"{name}={size}" for name, size in sorted(run.peak.items()))
    print(f"seed {seed}: exit {code}, {run.seconds:.0f} s, peak MiB: {peak}; killed: {', '.join(run.kills) or 'nobody'}", flush=True)
    if code != 0:
        print(f"{text[-6000:]}\nThe folder is kept: {run.home}", flush=True)
        return False
    shutil.rmtree(run.home.parent)
    return True


def kill_plan(chance: random.Random, *, supervisor: bool) -> Iterator[tuple[str, float]]:
    """Yield for each process the moment of its death, in seconds from the start."""
    for name in PROCESSES:
        yield name, chance.uniform(4.0, 24.0 if name == "feed" else 45.0)
    if supervisor:
        yield "supervisor", chance.uniform(4.0, 45.0)


def drive(run: Run, plan: dict[str, float], output: int) -> int:
    """Run the demo, kill by plan, measure; return the exit code. A demo whose supervisor was killed is started again."""
    began = time.monotonic()
    demo = start(run, output)
    while True:
        elapsed = time.monotonic() - began
        if demo.poll() is not None:
            return int(demo.returncode)
        if elapsed > LIMIT:
            demo.terminate()
            demo.wait()
            return 124
        found = processes_of(demo, run) | {"supervisor": demo}
        for name in [name for name, due in plan.items() if due <= elapsed and name in found]:
            found[name].kill()
            del plan[name]
            run.kills.append(f"{name} at {elapsed:.1f} s")
            if name == "supervisor":
                demo.wait()
                demo = start(run, output)
        time.sleep(0.1)


def start(run: Run, output: int) -> psutil.Popen:
    """Start the demo."""
    command = [sys.executable, "-m", "headrace", "demo", "--seed", str(run.seed), "--home", str(run.home), "--port", "0"]
    return psutil.Popen(command, stdout=output, stderr=output)


def processes_of(demo: psutil.Process, run: Run) -> dict[str, psutil.Process]:
    """Return the demo's processes by name, and note how large they are."""
    found: dict[str, psutil.Process] = {}
    try:
        for process in demo.children(recursive=True):
            line = process.cmdline()
            name = next((name for name, words in PROCESSES.items() if all(word in line for word in words)), "workers")
            size = process.memory_info().rss >> 20
            run.peak[name] = max(run.peak.get(name, 0), size)
            found.setdefault(name, process)
    except psutil.NoSuchProcess:
        return found
    return found


if __name__ == "__main__":
    sys.exit(main())
