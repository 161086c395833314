"""Read 1,000,000 messages of each broker with one triggerer, and check that its memory, threads and descriptors do not grow.

The messages are sent in ten parts. One in 100 matches. At the end, the broker is advanced to its last message, and each event is stored
once. The exit code is 1 if an event is missing or repeated, or if a figure of the last part exceeds that of the third.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import time
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.brokers.broker import BROKERS, Advanced, Broker, running
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
"""Threads, and descriptors, by which the last part may exceed the third."""
MIB: Final = 2**20


class Figures(NamedTuple):
    """The figures of a triggerer and its children after a part."""

    mib: float
    threads: int
    descriptors: int

    def has_grown(self, since: Figures) -> bool:
        """Return whether one of them is above that of an earlier part."""
        return (
            self.mib - since.mib > MAX_GROWTH_MIB
            or self.threads - since.threads > MAX_GROWTH
            or self.descriptors - since.descriptors > MAX_GROWTH
        )


async def soak(broker: Broker, kind: str, messages: int) -> list[str]:
    """Read the messages, and return the problems."""
    await asyncio.to_thread(broker.create, SOURCE)
    async with reader_of(broker, kind, CASE, SOURCE) as reader:
        series = await asyncio.to_thread(_read_parts, broker, kind, messages, reader)
        problems = _check_events(reader, messages)
    if series[-1].has_grown(series[WARM_UP_PARTS - 1]):
        problems.append(f"{kind}: the triggerer grows: {series[WARM_UP_PARTS - 1]} -> {series[-1]}")
    return problems


def _read_parts(broker: Broker, kind: str, messages: int, reader: Reader) -> list[Figures]:
    series: list[Figures] = []
    ends = [messages * part // PARTS for part in range(PARTS + 1)]
    with broker.observer(SOURCE) as advanced, broker.sender(SOURCE) as send:
        for start, end in pairwise(ends):
            begun = time.perf_counter()
            for number in range(start, end, broker.max_batch):
                send(range(number, min(number + broker.max_batch, end)))
            sent = time.perf_counter() - begun
            _wait_until_advanced(advanced, end, reader)
            series.append(figures(reader))
            print(
                f"{kind}: {end:>9,} messages, part sent in {sent:.1f} s and advanced in {time.perf_counter() - begun:.1f} s: "
                f"{series[-1].mib:.0f} MiB, {series[-1].threads} threads, {series[-1].descriptors} descriptors",
                flush=True,
            )
    return series


def figures(reader: Reader) -> Figures:
    """Return the sums over the processes of a reader."""
    processes = [psutil.Process(reader.pid), *psutil.Process(reader.pid).children(recursive=True)]
    sums = [0.0, 0, 0]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            sums = [sums[0] + process.memory_info().rss / MIB, sums[1] + process.num_threads(), sums[2] + process.num_fds()]
    return Figures(sums[0], int(sums[1]), int(sums[2]))


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
    parser.add_argument("--broker", nargs="+", choices=BROKERS, default=BROKERS, metavar="NAME", help=f"only these of {', '.join(BROKERS)}")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages of each broker (%(default)s)")
    arguments = parser.parse_args()
    problems: list[str] = []
    for kind in arguments.broker:
        with running(kind) as broker:
            problems += asyncio.run(soak(broker, kind, arguments.messages))
    print("\n".join(problems) or f"soak-brokers: {arguments.messages:,} messages of {', '.join(arguments.broker)}, each event stored once")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
