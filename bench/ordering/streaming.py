"""The pipeline from the api's log to Parquet: `python -m bench.ordering.streaming`, as JSON.

The real api in a process of its own on SQLite, the real pipeline driver on `local[2]` in this one. Measured: large batches, slim and with
300 bytes of payload; batches of 100 events, from the API's answer to the table; and reading the log.
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
"""Events of a small batch."""


def project() -> Project:
    """Return what is run: each event into one table."""
    made = Project(PROJECT)

    @made.pipeline(on="*", table="legs", payload="n long, text string")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("position", "mark", "seq", "id", "follows", "occurred", "payload")

    return made


Alive = Callable[[], bool]
Driver = Callable[[Api, Path, SparkSession, int], AbstractContextManager[Alive]]


@contextmanager
def driver(api: Api, home: Path, spark: SparkSession, max_rows: int) -> Iterator[Alive]:
    """Run the product's pipeline in a thread."""
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
    """Return how many rows the table has; each file is looked at once: what is measured runs in this process too."""
    return sum(map(_rows, (home / "tables" / "legs").glob("*.parquet")))


@cache
def _rows(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def wait_for(rows: int, home: Path, alive: Alive) -> None:
    """Wait until the table has so many rows."""
    while stored(home) < rows:
        if not alive():
            raise SystemExit("The pipeline ended; what it said stands above.")
        time.sleep(0.005)


async def throughput(spark: SparkSession, count: int, batch: int, payload: int, run: Driver = driver) -> dict[str, Any]:
    """Return events a second over a whole log: from the first batch's file to the last one's."""
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
            "events_a_batch": batch,
            "payload_bytes": payload,
            "seconds_between_batches": took,
            "events_a_second": round(batch / middle),
            "events_a_second_best": round(batch / best),
            "events_a_processor_second": round((count - begun) / used),
        }


async def beats(feeder: TriggererClient) -> None:
    """Say again and again that the feeder lives."""
    while True:
        await feeder.heartbeat(Heartbeat())
        await asyncio.sleep(2.0)


async def latency(spark: SparkSession, batches: int, run: Driver = driver) -> dict[str, Any]:
    """Return the milliseconds from the api's answer to 100 events until their table has them."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        async with api_process(home) as api, TriggererClient(api.url, key=KEY) as feeder:
            await feeder.register(registration("triggerer"))
            await feeder.declare(PROJECT, declaration())
            (lease,) = (await feeder.request(LOAD_TRIGGERS, LoadTriggers(capacity=10, queues=["default"]))).leases
            took: list[float] = []
            beating = asyncio.create_task(beats(feeder))
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
    """Return how many events a second one reader gets from the api, as Arrow."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        await asyncio.to_thread(fill, home, count, payload)
        async with api_process(home) as api:
            with PipelineClient(api.url, key=KEY) as client:
                client.register(registration("pipeline"))
                best = min(_read(client, count) for _ in range(3))
    return {"events": count, "payload_bytes": payload, "events_a_second": round(count / best)}


def _read(client: PipelineClient, count: int) -> float:
    begun = time.perf_counter()
    rows = sum(page.num_rows for page in client.pages(after=0, to=count, limit=20_000))
    if rows != count:
        raise SystemExit(f"{rows} events were read of {count}.")
    return time.perf_counter() - begun


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run what is asked for."""
    found: dict[str, Any] = {"commit": commit(), **machine()}
    # Python workers of Spark's unpickle what this package defines.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with TemporaryDirectory() as folder, open_session("bench", master="local[2]", work=Path(folder)) as spark:
        if "latency" in asked.only:
            found["latency_100_events"] = asyncio.run(latency(spark, asked.batches))
        for name, payload in (("slim", 0), ("payload", 300)):
            if name in asked.only:
                found[f"throughput_{name}"] = asyncio.run(throughput(spark, asked.events, asked.batch, payload))
    for name, payload in (("slim", 0), ("payload", 300)):
        if "reading" in asked.only:
            found[f"reading_{name}"] = asyncio.run(reading(min(asked.events, 200_000), payload))
    return {**found, "load_after": load()}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what to measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=40, help="small ones, for the latency")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    asked = parser.parse_args(given)
    if asked.batch < SHUFFLED:
        parser.error(f"a batch has at least {SHUFFLED:,} events: so many are shuffled among themselves, and smaller ones would wait")
    return asked


def main() -> None:
    """Measure, and print JSON."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(json.dumps(measure(arguments()), indent=2))


if __name__ == "__main__":
    main()
