"""Measure the pipeline from the event log to Parquet: `python -m bench.ordering.streaming`. Print JSON.

The API server on SQLite is a separate process; the pipeline driver on `local[2]` is in this process. The parts are large batches, slim
and with 300 bytes of payload; batches of 100 events, from the response of the API to the table; and reads of the log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow.parquet as pq
import structlog
from bench.api_process import KEY, ROOT, Api, all_processor_seconds, api_process, commit, load, machine
from bench.ordering.log import PROJECT, SHUFFLED, declaration, fill, history, registration
from pyspark.sql import DataFrame, SparkSession

from headrace.client.pipeline import PipelineClient
from headrace.client.triggerer import TriggererClient
from headrace.pipeline.driver import run_pipeline
from headrace.pipeline.options import PipelineOptions
from headrace.pipeline.spark.session import open_session
from headrace.project import Project
from headrace.wire.calls.execution import LOAD_TRIGGERS
from headrace.wire.control.jobs import Heartbeat
from headrace.wire.control.triggers import LoadTriggers
from headrace.wire.custody.events import EventBatch

PARTS: Final = ("latency", "slim", "payload", "reading")
SMALL: Final = 100
"""Number of events of a small batch."""


def project() -> Project:
    """Return a project whose pipeline writes each event to one table."""
    result = Project(PROJECT)

    @result.pipeline(on="*", table="legs", payload="n long, text string")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("position", "mark", "seq", "id", "follows", "occurred", "payload")

    return result


Alive = Callable[[], bool]
Driver = Callable[[Api, Path, SparkSession, int], AbstractContextManager[Alive]]


@contextmanager
def driver(api: Api, home: Path, spark: SparkSession, max_rows: int) -> Iterator[Alive]:
    """Run the driver of the pipeline in a thread."""
    options = PipelineOptions(api.url, KEY, home, home / "tables", scope=PROJECT, max_rows=max_rows)
    stop = threading.Event()
    thread = threading.Thread(target=run_pipeline, args=(project(), options, stop, spark))
    thread.start()
    try:
        yield thread.is_alive
    finally:
        stop.set()
        thread.join()


def stored(home: Path) -> int:
    """Return the number of rows of the table. Each file is read only once, because the measured driver runs in this process too."""
    return sum(map(_rows, (home / "tables" / "legs").glob("*.parquet")))


@cache
def _rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def wait_for(rows: int, home: Path, alive: Alive) -> None:
    """Poll until the table has `rows` rows. Exit if the pipeline ends before."""
    while stored(home) < rows:
        if not alive():
            raise SystemExit("The pipeline ended. Its output is above.")
        time.sleep(0.005)


async def throughput(spark: SparkSession, count: int, batch: int, payload: int, run: Driver = driver) -> dict[str, Any]:
    """Return events per second over a whole log, from the file of the first batch to the file of the last."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        await asyncio.to_thread(fill, home, count, payload)
        async with api_process(home) as api:
            with run(api, home, spark, batch) as alive:
                await asyncio.to_thread(wait_for, count // 2, home, alive)
                before, begun = all_processor_seconds(), stored(home)
                await asyncio.to_thread(wait_for, count, home, alive)
                used = all_processor_seconds() - before
        moments = sorted(path.stat().st_mtime for path in (home / "tables" / "legs").glob("*.parquet"))
        took = [round(later - earlier, 3) for earlier, later in pairwise(moments)]
        best, middle = min(took), median(took)
        return {
            "events": count,
            "events_per_batch": batch,
            "payload_bytes": payload,
            "seconds_between_batches": took,
            "events_per_second": round(batch / middle),
            "events_per_second_best": round(batch / best),
            "events_per_processor_second": round((count - begun) / used),
        }


async def send_heartbeats(feeder: TriggererClient) -> None:
    """Send heartbeats of the feeder until cancelled."""
    while True:
        await feeder.heartbeat(Heartbeat())
        await asyncio.sleep(2.0)


async def latency(spark: SparkSession, batches: int, run: Driver = driver) -> dict[str, Any]:
    """Return the milliseconds from the response of the API to 100 events until the table contains them."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        async with api_process(home) as api, TriggererClient(api.url, key=KEY) as feeder:
            await feeder.register(registration("triggerer"))
            await feeder.declare(PROJECT, declaration())
            (lease,) = (await feeder.request(LOAD_TRIGGERS, LoadTriggers(capacity=10, queues=["default"]))).leases
            took: list[float] = []
            beating = asyncio.create_task(send_heartbeats(feeder))
            with run(api, home, spark, 20_000) as alive:
                for number in range(batches + 5):
                    items = history(SMALL, 300, f"new{number}", lease.trigger_id)
                    await feeder.store(EventBatch(epochs={lease.trigger_id: lease.epoch}, events=items))
                    begun = time.perf_counter()
                    await asyncio.to_thread(wait_for, (number + 1) * SMALL, home, alive)
                    took.append(1000 * (time.perf_counter() - begun))
                    await asyncio.sleep(random.Random(number).uniform(0.2, 0.6))
            beating.cancel()
        took = sorted(took[5:])
        return {
            "batches": batches,
            "median_ms": round(median(took)),
            "p95_ms": round(took[int(0.95 * len(took))]),
            "worst_ms": round(took[-1]),
        }


async def reading(count: int, payload: int) -> dict[str, Any]:
    """Return the events per second that one reader gets from the API as Arrow."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        await asyncio.to_thread(fill, home, count, payload)
        async with api_process(home) as api:
            with PipelineClient(api.url, key=KEY) as client:
                client.register(registration("pipeline"))
                best = min(_read(client, count) for _ in range(3))
    return {"events": count, "payload_bytes": payload, "events_per_second": round(count / best)}


def _read(client: PipelineClient, count: int) -> float:
    begun = time.perf_counter()
    rows = sum(page.num_rows for page in client.pages(after=0, to=count, limit=20_000))
    if rows != count:
        raise SystemExit(f"{rows} of {count} events were read.")
    return time.perf_counter() - begun


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of the requested parts."""
    answer: dict[str, Any] = {"commit": commit(), **machine()}
    # Python workers of Spark unpickle functions of this package.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with TemporaryDirectory() as folder, open_session("bench", master="local[2]", work=Path(folder)) as spark:
        if "latency" in options.only:
            answer["latency_100_events"] = asyncio.run(latency(spark, options.batches))
        for name, payload in (("slim", 0), ("payload", 300)):
            if name in options.only:
                answer[f"throughput_{name}"] = asyncio.run(throughput(spark, options.events, options.batch, payload))
    for name, payload in (("slim", 0), ("payload", 300)):
        if "reading" in options.only:
            answer[f"reading_{name}"] = asyncio.run(reading(min(options.events, 200_000), payload))
    return {**answer, "load_after": load()}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=600_000, help="number of events of the log (%(default)s)")
    parser.add_argument("--batch", type=int, default=100_000, help="number of events per large batch (%(default)s)")
    parser.add_argument("--batches", type=int, default=40, help="number of small batches of the latency part (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="measure only these parts")
    options = parser.parse_args(argv)
    if options.batch < SHUFFLED:
        parser.error(f"invalid --batch {options.batch}: events are shuffled over {SHUFFLED:,}. Use at least {SHUFFLED:,}.")
    return options


def main() -> None:
    """Measure the requested parts and print JSON."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(json.dumps(measure(arguments()), indent=2))


if __name__ == "__main__":
    main()
