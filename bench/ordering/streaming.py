"""The streaming pipeline from the api's log to Parquet: `python -m bench.ordering.streaming`, as JSON.

The real api in a process of its own on SQLite, the real pipeline driver on `local[2]` in this one. Measured: large batches, slim and with
300 bytes of payload; batches of 100 events, from the api's answer to the table; and reading the log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

import pyarrow.parquet as pq
import structlog
from bench.api_process import KEY, Api, api_process, commit, load, machine
from pyspark.sql import DataFrame, SparkSession

from headrace.client.pipeline import PipelineClient
from headrace.client.triggerer import TriggererClient
from headrace.pipeline.driver import run_pipeline
from headrace.pipeline.options import PipelineOptions
from headrace.pipeline.session import open_session
from headrace.project import Project
from headrace.store import Liveness, open_store
from headrace.wire.events import EventBatch, EventItem
from headrace.wire.jobs import Heartbeat, RegisterJob
from headrace.wire.triggers import DeclaredTrigger, DeclareProject, LoadTriggers

PROJECT: Final = "bench"
CHAIN: Final = 10
SHUFFLED: Final = 50_000
"""Events that are shuffled among themselves."""
SMALL: Final = 100
"""Events of a small batch."""


def registration(kind: Any) -> RegisterJob:
    """Return a new process of this kind."""
    return RegisterJob(registration_id=uuid4().hex, kind=kind, hostname="bench", pid=1, project=PROJECT)


def declaration() -> DeclareProject:
    """Return a project of one trigger."""
    return DeclareProject(triggers=[DeclaredTrigger(name="legs", classpath="bench.Legs", kwargs={})], pipelines=[])


def history(count: int, payload: int, name: str, firing: int) -> list[EventItem]:
    """Return shuffled chains of CHAIN events."""
    text = json.dumps({"n": 1, "text": "x" * max(0, payload - 20)})
    items = [
        EventItem.model_construct(
            id=f"{name}-{number}",
            source="bench",
            type="leg",
            follows=f"{name}-{number - 1}" if number % CHAIN else None,
            payload=text,
            firings=[firing],
        )
        for number in range(count)
    ]
    shuffled: list[EventItem] = []
    for start in range(0, count, SHUFFLED):
        part = items[start : start + SHUFFLED]
        random.Random(start).shuffle(part)
        shuffled += part
    return shuffled


def fill(home: Path, count: int, payload: int) -> None:
    """Fill a new database's log before anybody serves it."""
    store = open_store(f"sqlite:///{home / 'headrace.db'}", liveness=Liveness(threshold=3_600_000_000))
    job = store.jobs.register(registration("triggerer"))
    store.projects.declare(job.id, PROJECT, declaration())
    (lease,) = store.triggers.load(job.id, LoadTriggers(capacity=10)).leases
    items = history(count, payload, "old", lease.trigger_id)
    for start in range(0, count, 10_000):
        store.log.append(job.id, EventBatch.model_construct(epochs={lease.trigger_id: lease.epoch}, events=items[start : start + 10_000]))
    store.close()


def project() -> Project:
    """Return what is run: each event into one table."""
    made = Project(PROJECT)

    @made.pipeline(on="*", table="legs", payload="n long, text string")
    def legs(events: DataFrame) -> DataFrame:
        return events.select("position", "mark", "seq", "id", "follows", "occurred", "payload")

    return made


@contextmanager
def pipeline(api: Api, home: Path, spark: SparkSession, max_rows: int) -> Iterator[threading.Thread]:
    """Run the pipeline in a thread."""
    options = PipelineOptions(api.url, KEY, home, home / "tables", scope=PROJECT, max_rows=max_rows)
    stop = threading.Event()
    thread = threading.Thread(target=run_pipeline, args=(project(), options, stop, spark))
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


def stored(home: Path) -> int:
    """Return how many rows the table has; looked at closely only when there is a new file."""
    return sum(pq.read_metadata(path).num_rows for path in (home / "tables" / "legs").glob("*.parquet"))


def wait_for(rows: int, home: Path, alive: threading.Thread) -> None:
    """Wait until the table has so many rows."""
    while stored(home) < rows:
        if not alive.is_alive():
            raise SystemExit("The pipeline ended; what it said stands above.")
        time.sleep(0.005)


async def throughput(spark: SparkSession, count: int, batch: int, payload: int) -> dict[str, Any]:
    """Return events a second over a whole log: from the first batch's file to the last one's."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        await asyncio.to_thread(fill, home, count, payload)
        async with api_process(home) as api:
            with pipeline(api, home, spark, batch) as thread:
                await asyncio.to_thread(wait_for, count // 2, home, thread)
                await asyncio.to_thread(wait_for, count, home, thread)
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
        }


async def beats(feeder: TriggererClient) -> None:
    """Say again and again that the feeder lives."""
    while True:
        await feeder.heartbeat(Heartbeat())
        await asyncio.sleep(2.0)


async def latency(spark: SparkSession, batches: int) -> dict[str, Any]:
    """Return the milliseconds from the api's answer to 100 events until their table has them."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        async with api_process(home) as api, TriggererClient(api.url, key=KEY) as feeder:
            await feeder.register(registration("triggerer"))
            await feeder.declare(PROJECT, declaration())
            (lease,) = (await feeder.load(10, ["default"])).leases
            took: list[float] = []
            beating = asyncio.create_task(beats(feeder))
            with pipeline(api, home, spark, 20_000) as thread:
                for number in range(batches + 5):
                    items = history(SMALL, 300, f"new{number}", lease.trigger_id)
                    await feeder.store(EventBatch(epochs={lease.trigger_id: lease.epoch}, events=items))
                    begun = time.perf_counter()
                    await asyncio.to_thread(wait_for, (number + 1) * SMALL, home, thread)
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


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=40, help="small ones, for the latency")
    parser.add_argument("--only", nargs="+", default=["latency", "slim", "payload", "reading"])
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
