"""Simulate a year of files, events and task runs on one database, and print what it holds: it must not grow once retention has begun.

A day is a turn of the clock; by default it brings 100 files of 10 events, and 100 runs. With --files 10000 it takes hours.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from store_kit import DATABASES, database_url
from year_kit import Shape, year


def main() -> int:
    """Print a line for each tenth day; return 0 if the last tenth of the days holds no more than 1.2 times the middle one."""
    asked = _arguments()
    shape = Shape(files=asked.files, runs=asked.runs, waiting=asked.waiting, payload=asked.payload, retention=asked.retention)
    sizes: list[float] = []
    with TemporaryDirectory(prefix="headrace-year-") as folder:
        home = Path(folder)
        for found in year(database_url(asked.database, home), home / "headrace.db", shape, asked.days):
            sizes.append(found.megabytes)
            if found.day % asked.every == asked.every - 1:
                rows = "  ".join(f"{name} {count:,}" for name, count in found.rows.items())
                sides = f"opened {found.opened * 1000:.0f} ms  marks {found.marks:,} B  heartbeat {found.heartbeat:,} B"
                print(f"day {found.day + 1:4}  {found.megabytes:7.1f} MB  {sides}  {rows}", flush=True)
    flat = sizes[-1] <= 1.2 * sizes[len(sizes) // 2]
    print("flat" if flat else f"it grew from {sizes[len(sizes) // 2]:.1f} MB to {sizes[-1]:.1f} MB")
    return 0 if flat else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    for name, default in {"days": 365, "every": 30, "files": 100, "runs": 100, "waiting": 200, "payload": 300, "retention": 30}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
