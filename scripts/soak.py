"""Run the demo with many seeds, and with each of its processes killed once at a random moment. Stop at the first failure.

To repeat a failed run, pass its seed as `--first-seed` and the seed of its kills as `--kill-seed`.
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
"""Words of the command line that identify each process."""

MAX_RUN_SECONDS = 400.0


@dataclass
class Run:
    """One run of the demo: its folder, duration, memory and kills."""

    seed: int
    home: Path
    seconds: float = 0.0
    kills: list[str] = field(default_factory=list)
    peak: dict[str, int] = field(default_factory=dict)
    """Largest resident size of each process in MiB."""


def main() -> int:
    """Execute the requested runs; return 0 if all checks passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="number of runs without kills, one for each seed (%(default)s)")
    parser.add_argument("--kills", type=int, default=10, help="number of runs in which each process is killed once (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="seed of the first run (%(default)s)")
    parser.add_argument("--kill-seed", type=int, default=1, help="seed of the times of the kills (%(default)s)")
    parser.add_argument("--supervisor", action="store_true", help="kill the supervisor too, and run the same command again")
    options = parser.parse_args()
    for number in range(options.seeds):
        if not one_run(options.first_seed + number, None, supervisor=False):
            return 1
    for number in range(options.kills):
        if not one_run(options.first_seed + number, random.Random(options.kill_seed + number), supervisor=options.supervisor):
            return 1
    print("soak: all checks passed", flush=True)
    return 0


def one_run(seed: int, generator: random.Random | None, *, supervisor: bool) -> bool:
    """Run the demo once and print the result. Delete its folder unless the run failed."""
    run = Run(seed, Path(mkdtemp(prefix="headrace-soak-")) / "demo")
    began = time.monotonic()
    plan = dict(kill_plan(generator, supervisor=supervisor)) if generator is not None else {}
    with (run.home.parent / "output.txt").open("w+") as output:
        code = drive(run, plan, output.fileno())
        run.seconds = time.monotonic() - began
        output.seek(0)
        text = output.read()
    peak = " ".join(f"{name}={size}" for name, size in sorted(run.peak.items()))
    print(f"seed {seed}: exit {code}, {run.seconds:.0f} s, peak MiB: {peak}; killed: {', '.join(run.kills) or 'none'}", flush=True)
    if code != 0:
        print(f"{text[-6000:]}\nThe folder is not deleted: {run.home}", flush=True)
        return False
    shutil.rmtree(run.home.parent)
    return True


def kill_plan(generator: random.Random, *, supervisor: bool) -> Iterator[tuple[str, float]]:
    """Yield the time at which each process is killed, in seconds from the start."""
    for name in PROCESSES:
        yield name, generator.uniform(4.0, 24.0 if name == "feed" else 45.0)
    if supervisor:
        yield "supervisor", generator.uniform(4.0, 45.0)


def drive(run: Run, plan: dict[str, float], output: int) -> int:
    """Run the demo, execute the plan of kills, and measure; return the exit code. Restart the demo after a kill of its supervisor."""
    began = time.monotonic()
    demo = start(run, output)
    while True:
        elapsed = time.monotonic() - began
        if demo.poll() is not None:
            return int(demo.returncode)
        if elapsed > MAX_RUN_SECONDS:
            demo.terminate()
            demo.wait()
            return 124
        processes = processes_of(demo, run) | {"supervisor": demo}
        for name in [name for name, due in plan.items() if due <= elapsed and name in processes]:
            processes[name].kill()
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
    """Return the processes of the demo by name, and record their resident memory."""
    processes: dict[str, psutil.Process] = {}
    try:
        for process in demo.children(recursive=True):
            line = process.cmdline()
            name = next((name for name, words in PROCESSES.items() if all(word in line for word in words)), "workers")
            size = process.memory_info().rss >> 20
            run.peak[name] = max(run.peak.get(name, 0), size)
            processes.setdefault(name, process)
    except psutil.NoSuchProcess:
        return processes
    return processes


if __name__ == "__main__":
    sys.exit(main())
