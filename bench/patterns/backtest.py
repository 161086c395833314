"""Measure a backtest of watches with Spark and in Python, and print JSON: python -m bench.patterns.backtest [--events N] [--watches N ...]

The history is an ordered one of `headrace replay`, with five columns of flights, as Parquet columns or as JSON text. It is written to a
temporary folder. Python matches the first `--python-events` of it, in one process.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench.api_process import commit, load, machine
from bench.ordering.memory import PeakMemory
from pyspark.sql import SparkSession

from headrace import Memory
from headrace.pipeline.spark.session import open_session
from headrace.replay.backtest import backtest
from headrace.replay.options import HistoryColumns
from headrace.replay.raw_events import RawEvents
from headrace.replay.spark_tasks import Tasks
from headrace.replay.watch_matches import SparkMatcher
from headrace.triggers.watch import WatchTrigger

_FILE_ROWS: Final = 500_000
_ROW_GROUP: Final = 100_000
_CARRIERS: Final = 20
_AIRPORTS: Final = 300
_BEGIN_SECONDS: Final = 1_700_000_000
_NAMES: Final = {"parquet": HistoryColumns("id", "departed", None), "json": HistoryColumns("id", "occurred", "payload")}


def main() -> None:
    """Print the figures of each format and number of watches."""
    options = _arguments()
    answer: dict[str, Any] = {"machine": machine(), "commit": commit(), "events": options.events, "cases": []}
    with (
        TemporaryDirectory(dir=options.folder) as scratch,
        open_session("bench", master=options.master, work=Path(scratch) / "work", is_batch=True) as spark,
    ):
        for name in options.format:
            events = RawEvents(Path(scratch) / name, _NAMES[name])
            _write(events.folder, name, options.events)
            sample = RawEvents(Path(scratch) / f"sample-{name}", _NAMES[name])
            _write(sample.folder, name, options.python_events)
            for number in options.watches:
                case = {"format": name, "watches": number, **_case(spark, Path(scratch) / "work", events, sample, number)}
                case["python_seconds_for_all"] = round(case["python_seconds"] * options.events / options.python_events)
                answer["cases"].append(case)
                print(f"  {json.dumps(case)}", file=sys.stderr, flush=True)
    answer["machine"]["load_after"] = load()
    print(json.dumps(answer, indent=2))


def _case(spark: SparkSession, work: Path, events: RawEvents, sample: RawEvents, number: int) -> dict[str, Any]:
    watches = dict(_watches(number))
    matcher = SparkMatcher(spark, work, Tasks(spark, lambda *_: None, threading.Event()))
    with PeakMemory() as memory:
        begun = perf_counter()
        reports = backtest(watches, events, lambda *_: None, matcher)
        seconds = perf_counter() - begun
    in_spark = {report.trigger: report.fired for report in backtest(watches, sample, lambda *_: None, matcher)}
    begun = perf_counter()
    in_python = {report.trigger: report.fired for report in backtest(watches, sample, lambda *_: None)}
    python_seconds = perf_counter() - begun
    assert in_spark == in_python
    return {
        "firings": sum(report.fired for report in reports),
        "seconds": round(seconds, 1),
        "load": load(),
        "python_seconds": round(python_seconds, 1),
        "peak_mib": memory.mib(),
    }


def _watches(number: int) -> Iterator[tuple[str, WatchTrigger]]:
    """Yield watches of flights: by route, by airport and delay, by flight, and by all but some carriers."""
    seeded = random.Random(20261127)
    for n in range(number):
        airports = [f"A{seeded.randrange(_AIRPORTS):03}" for _ in range(3)]
        matches: list[dict[str, Any]] = [
            {"carrier": [f"C{seeded.randrange(_CARRIERS)}"], "origin": airports, "delay": [{"numeric": [">", 100]}]},
            {"origin": [{"prefix": airports[0]}], "delay": [{"numeric": [">=", 480]}]},
            {"id": [{"wildcard": f"leg-{seeded.randrange(10, 100)}*7"}], "carrier": [{"prefix": "C1"}]},
            {"carrier": [{"anything-but": ["C1", "C2"]}], "origin": airports[:1], "departed": [{"exists": True}]},
        ]
        yield f"watch-{n:04}", WatchTrigger(upstream=Memory("flights"), match=matches[n % len(matches)], id="$.id", occurred="$.departed")


def _write(folder: Path, name: str, count: int) -> None:
    folder.mkdir()
    seeded = np.random.default_rng(20261127)
    for number, start in enumerate(range(0, count, _FILE_ROWS)):
        table = _flights(seeded, start, min(_FILE_ROWS, count - start))
        pq.write_table(
            table if name == "parquet" else _texts(table),
            folder / f"part-{number:05}.parquet",
            row_group_size=_ROW_GROUP,
            compression="lz4",
        )


def _flights(seeded: np.random.Generator, start: int, count: int) -> pa.Table:
    numbers = np.arange(start, start + count)
    return pa.table(
        {
            "position": numbers + 1,
            "mark": pa.nulls(count, pa.string()),
            "id": [f"leg-{number}" for number in numbers.tolist()],
            "carrier": [f"C{number}" for number in seeded.integers(0, _CARRIERS, count).tolist()],
            "origin": [f"A{number:03}" for number in seeded.integers(0, _AIRPORTS, count).tolist()],
            "delay": seeded.integers(-10, 500, count),
            "departed": pa.array((numbers + _BEGIN_SECONDS) * 1_000_000).cast(pa.timestamp("us", "UTC")),
        }
    )


def _texts(flights: pa.Table) -> pa.Table:
    moments = flights.column("departed")
    times = moments.cast(pa.string()).to_pylist()
    columns = (flights.column(name).to_pylist() for name in ("id", "carrier", "origin", "delay"))
    texts = [
        json.dumps({"id": id, "carrier": carrier, "origin": origin, "delay": delay, "departed": time.replace(" ", "T")})
        for id, carrier, origin, delay, time in zip(*columns, times, strict=True)
    ]
    return flights.select(["position", "mark", "id"]).append_column("occurred", moments).append_column("payload", pa.array(texts))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.patterns.backtest", description="Measure a backtest of watches.")
    parser.add_argument("--events", type=int, default=10_000_000, help="events of the history (%(default)s)")
    parser.add_argument("--python-events", type=int, default=500_000, help="events that Python matches (%(default)s)")
    parser.add_argument("--watches", nargs="+", type=int, default=[10, 100], help="numbers of watches (%(default)s)")
    parser.add_argument("--format", nargs="+", choices=list(_NAMES), default=list(_NAMES), help="columns or JSON text")
    parser.add_argument("--master", default="local[*]", help="master of Spark (%(default)s)")
    parser.add_argument("--folder", help="where the temporary folder is created")
    return parser.parse_args()


if __name__ == "__main__":
    main()
