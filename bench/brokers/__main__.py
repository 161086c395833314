"""Measure Kafka to stored and advanced events, and print JSON: python -m bench.brokers [--messages N] [--seconds S] [--only CASE ...]"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from bench.api_process import KEY, api_process, clean_environment, commit, load, machine, process, processor_seconds
from bench.brokers.cluster import PARTITIONS, Cluster, committed, kafka

RATE: Final = 1_000
WARM_UP_SECONDS: Final = 2.0
LIMIT_SECONDS: Final = 180.0
PROJECT: Final = Path(__file__).with_name("project.py")


class Case(NamedTuple):
    """One reader: the bare client, or Headrace with watches."""

    name: str
    watches: int = 0
    match: str = ""


CASES: Final = (
    Case("bare client"),
    Case("1 watch, one in 100 matches", 1, "one in 100"),
    Case("1 watch, all match", 1, "all"),
    Case("100 watches, one in 100 matches", 100, "one in 100"),
    Case("100 watches, all match", 100, "all"),
)


def main() -> None:
    """Measure all cases on one server."""
    arguments = _arguments()
    answer: dict[str, Any] = {"machine": machine(), "commit": commit(), "messages": arguments.messages, "rate": RATE, "cases": {}}
    with kafka() as address:
        cluster = Cluster(address)
        for number, case in enumerate(CASES):
            if arguments.only and case.name not in arguments.only:
                continue
            say(case.name)
            throughput = asyncio.run(_throughput(cluster, case, f"full-{number}", arguments.messages))
            latency = asyncio.run(_latency(cluster, case, f"paced-{number}", arguments.seconds))
            answer["cases"][case.name] = {**throughput, "advanced_ms": latency}
            say(json.dumps(answer["cases"][case.name]))
    answer["machine"]["load_after"] = load()
    print(json.dumps(answer, indent=2))


async def _throughput(cluster: Cluster, case: Case, topic: str, messages: int) -> dict[str, Any]:
    """Return the messages per second from the first to the last commit, and the processor time."""
    cluster.create_topic(topic)
    await asyncio.to_thread(cluster.fill, topic, messages)
    async with _reader(cluster, case, topic) as pid:
        observer, since = cluster.observer(topic), time.perf_counter()
        first: tuple[float, int, float] | None = None
        while True:
            done, now = sum(await asyncio.to_thread(committed, observer, topic)), time.perf_counter()
            if first is None and done:
                first = now, done, _seconds(pid)
            if done >= messages or now - since > LIMIT_SECONDS:
                break
            await asyncio.sleep(0.02)
        observer.close()
        if first is None or now == first[0]:
            return {"complete": False}
        return {
            "complete": done >= messages,
            "messages_per_second": round((done - first[1]) / (now - first[0])),
            "reader_cpu_seconds_per_100k": round((_seconds(pid) - first[2]) / (done - first[1]) * 100_000, 2),
        }


async def _latency(cluster: Cluster, case: Case, topic: str, seconds: float) -> dict[str, Any]:
    """Return the milliseconds from the due time of a message to the commit of its offset, at RATE messages per second."""
    cluster.create_topic(topic)
    async with _reader(cluster, case, topic):
        observer = cluster.observer(topic)
        await asyncio.to_thread(cluster.fill, topic, PARTITIONS)
        until = time.perf_counter() + LIMIT_SECONDS
        while sum(await asyncio.to_thread(committed, observer, topic)) < PARTITIONS and time.perf_counter() < until:  # noqa: ASYNC110  another process commits
            await asyncio.sleep(0.05)
        due: list[float] = []
        sender = threading.Thread(target=lambda: due.extend(cluster.pace(topic, RATE, seconds + WARM_UP_SECONDS)))
        sender.start()
        total = int(RATE * (seconds + WARM_UP_SECONDS))
        seen = [np.full(total // PARTITIONS, np.nan) for _ in range(PARTITIONS)]
        limit = time.perf_counter() + seconds + WARM_UP_SECONDS + 20
        while any(np.isnan(part).any() for part in seen) and time.perf_counter() < limit:
            offsets, now = await asyncio.to_thread(committed, observer, topic), time.perf_counter()
            for part, offset in zip(seen, offsets, strict=True):
                new = part[: max(0, offset - 1)]  # each partition has one message of the warm-up
                new[np.isnan(new)] = now
            await asyncio.sleep(0.001)
        sender.join()
        observer.close()
    moments = np.column_stack(seen).ravel()
    skipped = int(RATE * WARM_UP_SECONDS)
    took = 1_000 * (moments - np.array(due[: len(moments)]))[skipped:]
    if np.isnan(took).any():
        return {"complete": False}
    return {name: round(float(np.percentile(took, percent)), 1) for name, percent in (("p50", 50), ("p99", 99), ("max", 100))}


@asynccontextmanager
async def _reader(cluster: Cluster, case: Case, topic: str) -> AsyncIterator[int]:
    """Run the reader of a case. Its process id is the value."""
    async with AsyncExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        if not case.watches:
            running = await exits.enter_async_context(
                process("-m", "bench.brokers.bare", cluster.address, topic, cwd=PROJECT.parents[2], env=clean_environment())
            )
            yield running.pid
            return
        api = await exits.enter_async_context(api_process(folder))
        settings = {"home": str(folder / "triggerer"), "api_url": api.url, "key": KEY, "project": str(PROJECT), "log_level": "warning"}
        environment = clean_environment(**settings, connection_bench=f"kafka://{cluster.address}") | {
            "BENCH_TOPIC": topic,
            "BENCH_WATCHES": str(case.watches),
            "BENCH_MATCH": case.match,
        }
        running = await exits.enter_async_context(process("-m", "headrace", "triggerer", cwd=folder, env=environment))
        yield running.pid


def _seconds(pid: int) -> float:
    """Return the processor time of a process and of its children."""
    import psutil

    return sum(processor_seconds(one.pid) for one in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)))


def say(text: str) -> None:
    """Print a progress message."""
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.brokers", description="Kafka to stored and advanced events, beside a bare client.")
    parser.add_argument("--messages", type=int, default=300_000, help="messages of the throughput runs (%(default)s)")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of the latency runs (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES], help="only these cases")
    return parser.parse_args()


if __name__ == "__main__":
    main()
