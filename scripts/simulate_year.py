"""Simulate days of files, events and task runs at full rate, with retention after each, and compare the first week with the last.

Files pass the real Directory, manager and uploader into the store, without HTTP. The script advances the clock of the store. Some of the
task runs execute every call; the others are inserted as rows with the same columns. The exit code is 1 if a figure grows.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import structlog

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support/projects"))

from headrace.store.db.migrations import upgrade
from headrace.store.retention.pruner import PAUSE_SECONDS
from support.processes.postgres import Postgres
from support.processes.store import DATABASES, sqlite_of
from support.year.kit import WEEK, Day, Shape, Step, Year, steady_from

GROWTH = 1.1
SLACK = {
    "disk MB": 5.0,  # freed pages
    "write-ahead log MB": 1_000.0,  # PostgreSQL's max_wal_size is 1 GB
    "journal bytes": 5e6,  # it is compacted at 4 MiB
    "resident MB": 60.0,  # caches of the databases
    "Python objects": 20_000.0,
    "status ms": 20.0,
    "rows: subscriber sets": 200.0,  # they are merged in bulk
    "rows: triggers": 50.0,
}
"""Allowed increase of a figure between the weeks, in addition to GROWTH."""


def main() -> int:
    """Print a line for each day and a table of all figures; return 1 if one of them grows."""
    arguments = _arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    shape = _shape(arguments)
    print(f"{arguments.database}, seed {shape.seed}: {shape}", flush=True)
    days: list[Day] = []
    with TemporaryDirectory(prefix="headrace-year-", dir=arguments.folder) as folder:
        home = Path(folder)
        for day in Year(_database(arguments.database, home), home, shape).days(arguments.days):
            days.append(day)
            _progress(day)
    _paces(days, shape)
    return 1 if _grown(days, steady_from(shape)) else 0


def _database(kind: str, home: Path) -> str:
    if kind == "sqlite":
        return sqlite_of(home)
    server = Postgres(fsync=True)
    server.admin("CREATE DATABASE {}", "year")
    upgrade(server.url("year"))
    return server.url("year")


def _progress(day: Day) -> None:
    parts = "  ".join(f"{name} {took:.1f} s" for name, took in day.pace.items())
    slowest = max(day.retention, default=Step(0, 0, "none"))
    size = f"{day.figures['disk MB']:,.0f} MB  {day.figures['resident MB']:,.0f} MB resident"
    spent = sum(step.wall for step in day.retention)
    print(f"day {day.number + 1:4}  {size}  {parts}  retention {spent:.1f} s, longest {slowest.wall * 1000:.0f} ms", flush=True)


def _paces(days: Sequence[Day], shape: Shape) -> None:
    if shape.files:
        took = fmean(day.pace["files"] for day in days)
        files, events = shape.files / took, shape.files * shape.lines / took
        print(f"\n{files:,.0f} files/s, {events:,.0f} events/s; required {shape.files / 86_400:.2f} files/s")
    live = fmean(day.pace["live runs"] for day in days)
    print(f"{shape.live / live:,.0f} task runs/s with every call; required {shape.runs / 86_400:.1f}/s")
    for name in ("opening of the store", "opening of the folder"):
        opened = [day.pace[name] for day in days if name in day.pace]
        print(f"{name}, by week: {'  '.join(f'{took * 1000:.0f} ms' for took in opened)}")
    _retention(days)


def _retention(days: Sequence[Day]) -> None:
    last = days[-1].retention
    spent = sum(step.wall for step in last)
    print(f"retention, last day: {len(last):,} transactions, {spent:.1f} s, {spent + PAUSE_SECONDS * len(last):.0f} s with pauses")
    by_name: dict[str, list[Step]] = defaultdict(list)
    for step in sorted(chain.from_iterable(day.retention for day in days)):
        by_name[step.name].append(step)
    for name, steps in sorted(by_name.items()):
        p99 = steps[len(steps) * 99 // 100].wall * 1000
        processor = max(step.processor for step in steps) * 1000
        maximum = f"longest {steps[-1].wall * 1000:6.1f} ms (at most {processor:6.1f} ms of processor time of this process)"
        print(f"  {name:24} {len(steps):7,} transactions  p99 {p99:6.1f} ms  {maximum}")


def _grown(days: Sequence[Day], steady: int) -> list[str]:
    """Print the figures of the first days after `steady` and of the last; return the names of growing figures."""
    width = min(WEEK, (len(days) - steady) // 2)
    if width < 1:
        print(f"\nToo few days to compare: figures are not steady before day {steady + 1}.")
        return []
    first, last = days[steady : steady + width], days[-width:]
    print(f"\n{'figure':26} days {steady + 1}-{steady + width:<12} days {len(days) - width + 1}-{len(days)}")
    grown = []
    for name in days[-1].figures:
        before, after = (fmean(day.figures[name] for day in some) for some in (first, last))
        grows = after > before * GROWTH + SLACK.get(name, 1.0)
        grown += [name] if grows else []
        print(f"{name:26} {before:15,.1f} {after:15,.1f}  {'GROWS' if grows else 'flat'}")
    return grown


def _shape(arguments: argparse.Namespace) -> Shape:
    files, lines = arguments.files_per_day, arguments.events_per_file
    return Shape(
        files=files,
        lines=lines,
        line_bytes=round(arguments.bytes_per_day / (files * lines)) if files else 0,
        runs=arguments.runs_per_day,
        live=arguments.live_runs,
        waiting=arguments.waiting_runs,
        retention=arguments.retention_days,
        seed=arguments.seed,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=DATABASES, default="sqlite", help="database (%(default)s)")
    parser.add_argument("--folder", type=Path, help="folder for the database and the files (default: the temporary folder of the system)")
    numbers = {
        "days": (14, "days to simulate"),
        "files-per-day": (10_000, "files per day"),
        "events-per-file": (10, "events per file, one per line"),
        "bytes-per-day": (1_000_000_000, "bytes of all files per day"),
        "runs-per-day": (864_000, "task runs that end per day"),
        "live-runs": (500, "task runs per day that execute every call"),
        "waiting-runs": (200, "number of these that wait at any time"),
        "retention-days": (1, "retention of ended task runs in days"),
        "seed": (1, "seed of all random choices"),
    }
    for name, (default, words) in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{words} ({default:,})")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
