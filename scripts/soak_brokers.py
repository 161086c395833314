"""Read 1,000,000 messages of each broker with one triggerer, and check that its memory, tasks, threads and descriptors do not grow.

The messages are sent in ten parts. One in 100 matches. At the end, the broker is advanced to its last message, and each event is stored
once. The exit code is 1 if an event is missing or repeated, or if a figure of the last part exceeds that of the third.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.api_process import ROOT
from bench.brokers.broker import SOAKED, Advanced, Broker, running
from bench.brokers.case import Case
from bench.brokers.readers import Reader, reader_of

CASE: Final = Case("1 watch, one in 100 matches", 1, "one in 100")
SOURCE: Final = "soak"
PARTS: Final = 10
WARM_UP_PARTS: Final = 3
STALL_SECONDS: Final = 120.0
"""The time without an advance after which the soak fails."""
MAX_GROWTH_MIB: Final = 32.0
MAX_GROWTH: Final = 4
"""Tasks, threads, and descriptors, by which the last part may exceed the third."""
SETTLE_SECONDS: Final = 2.0
"""From the last advance of a part to its figures: a poll without messages ends within a second, and tasks are counted twice a second."""
MIB: Final = 2**20


class Figures(NamedTuple):
    """The figures of a triggerer and its children after a part."""

    mib: float
    tasks: int
    threads: int
    descriptors: int

    def has_grown(self, since: Figures) -> bool:
        """Return whether one of them is above that of an earlier part."""
        growth = max(now - before for now, before in zip(self[1:], since[1:], strict=True))
        return self.mib - since.mib > MAX_GROWTH_MIB or growth > MAX_GROWTH

    def __str__(self) -> str:
        return f"{self.mib:.0f} MiB, {self.tasks} tasks, {self.threads} threads, {self.descriptors} descriptors"


class Soaked(NamedTuple):
    """The figures after each part, and the time from the first message of a part to its last advance, of all parts together."""

    series: list[Figures]
    seconds: float


async def soak(broker: Broker, kind: str, messages: int, tasks: Path) -> list[str]:
    """Read the messages, and return the problems. `tasks` is the folder with the number of tasks of each process."""
    load = os.getloadavg()[0]
    await asyncio.to_thread(broker.create, SOURCE)
    async with reader_of(broker, kind, CASE, SOURCE) as reader:
        series, seconds = await asyncio.to_thread(_read_parts, broker, kind, messages, reader, tasks)
        problems = _check_events(reader, messages)
    print(
        f"{kind}: {messages:,} messages, {messages / seconds:,.0f} per second; load {load:.1f} to {os.getloadavg()[0]:.1f}; "
        f"after the first part: {series[0]}; at the end: {series[-1]}; {'; '.join(problems) or 'exact'}",
        flush=True,
    )
    if series[-1].has_grown(series[WARM_UP_PARTS - 1]):
        problems.append(f"{kind}: the triggerer grows: {series[WARM_UP_PARTS - 1]} -> {series[-1]}")
    return problems


def _read_parts(broker: Broker, kind: str, messages: int, reader: Reader, tasks: Path) -> Soaked:
    series: list[Figures] = []
    seconds = 0.0
    ends = [messages * part // PARTS for part in range(PARTS + 1)]
    with broker.observer(SOURCE) as advanced, broker.sender(SOURCE) as send:
        for start, end in pairwise(ends):
            begun = time.perf_counter()
            for number in range(start, end, broker.max_batch):
                send(range(number, min(number + broker.max_batch, end)))
            sent = time.perf_counter() - begun
            _wait_until_advanced(advanced, end, reader)
            took = time.perf_counter() - begun
            time.sleep(SETTLE_SECONDS)
            seconds += took
            series.append(figures(reader, tasks))
            print(f"{kind}: {end:>9,} messages, part sent in {sent:.1f} s and advanced in {took:.1f} s: {series[-1]}", flush=True)
    return Soaked(series, seconds)


def figures(reader: Reader, tasks: Path) -> Figures:
    """Return the sums over the processes of a reader."""
    processes = [psutil.Process(reader.pid), *psutil.Process(reader.pid).children(recursive=True)]
    result = Figures(0.0, 0, 0, 0)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            file = tasks / str(process.pid)
            counted = int(file.read_text()) if file.exists() else 0
            result = Figures(
                result.mib + process.memory_info().rss / MIB,
                result.tasks + counted,
                result.threads + process.num_threads(),
                result.descriptors + process.num_fds(),
            )
    return result


def _wait_until_advanced(advanced: Advanced, messages: int, reader: Reader) -> None:
    done, since = sum(advanced()), time.perf_counter()
    while done < messages:
        time.sleep(0.05)
        now = sum(advanced())
        if now > done:
            done, since = now, time.perf_counter()
        if not psutil.pid_exists(reader.pid):
            raise SystemExit("error: The triggerer has ended. Its output is above.")
        if time.perf_counter() - since > STALL_SECONDS:
            raise SystemExit(f"error: The broker stands at {done:,} of {messages:,} messages for {STALL_SECONDS:g} s.")


def _check_events(reader: Reader, messages: int) -> list[str]:
    assert reader.database is not None
    with closing(sqlite3.connect(f"file:{reader.database}?mode=ro", uri=True)) as database:
        stored = [int(id) for (id,) in database.execute("SELECT id FROM events")]
    expected = {number for number in range(messages) if CASE.matches(number)}
    missing, repeated = len(expected - set(stored)), len(stored) - len(set(stored))
    return [f"{missing:,} events are missing, {repeated:,} are stored twice"] if missing or repeated else []


def main() -> None:
    """Run the soak on each broker."""
    parser = argparse.ArgumentParser(prog="soak_brokers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", nargs="+", choices=SOAKED, default=SOAKED, metavar="NAME", help=f"only these of {', '.join(SOAKED)}")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of each broker (%(default)s)")
    arguments = parser.parse_args()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headrace-soak-tasks-") as tasks:
        path = os.pathsep.join(filter(None, [str(ROOT / "bench" / "brokers" / "counted"), os.environ.get("PYTHONPATH")]))
        os.environ |= {"PYTHONPATH": path, "BENCH_TASKS": tasks}
        for kind in arguments.broker:
            with running(kind) as broker:
                problems += asyncio.run(soak(broker, kind, arguments.messages, Path(tasks)))
    print("\n".join(problems) or f"soak-brokers: {arguments.messages:,} messages of {', '.join(arguments.broker)}, each event stored once")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
