"""Measure one reader of one broker: its throughput on a full source, and its latency at a rate."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from bench.brokers.broker import BATCH, Advanced, Broker, pace
from bench.brokers.case import BARE, Case
from bench.brokers.readers import Reader, reader_of

WARM_UP_SECONDS: Final = 2.0
LIMIT_SECONDS: Final = 180.0
LATE_SECONDS: Final = 20.0
"""For how long the reader may still be busy after the last message was sent."""
OFTEN_SECONDS: Final = 0.002
SELDOM_SECONDS: Final = 0.02
LEAST_SECONDS: Final = 1.5
LEAST_LOOKS: Final = 20
"""A throughput counts if the advances took this time, and were seen in this many steps. Otherwise there were too few messages."""
MORE: Final = 4
MAX_MESSAGES: Final = 2_500_000
LEAST_WARM_UPS: Final = 2
MAX_WARM_UPS: Final = 6
WARM_GAIN: Final = 1.1
"""The server is warm once the bare client is not this much faster than in any round before."""


async def warm_up(broker: Broker, kind: str, messages: int) -> list[int | None]:
    """Read sources with the bare client until it gets no faster. Return the messages per second of each round."""
    rates: list[int | None] = []
    while len(rates) < MAX_WARM_UPS:
        best = max((rate or 0 for rate in rates), default=0)
        result = await _on_source(broker, kind, BARE, f"bench_warm_up_{len(rates)}", messages=messages)
        rates.append(result["messages_per_second"])
        if len(rates) >= LEAST_WARM_UPS and (rates[-1] or 0) < WARM_GAIN * best:
            break
    return rates


async def measure(broker: Broker, kind: str, case: Case, name: str, messages: int, seconds: float) -> dict[str, Any]:
    """Measure a case on sources whose names begin with `name`. `kind` is the module of the broker.

    A run that ends too soon for a rate is repeated with more messages.
    """
    while True:
        full = await _on_source(broker, kind, case, f"{name}_full_{messages}", messages=messages)
        is_short = full["seconds"] is None or full["seconds"] < LEAST_SECONDS or full["looks"] < LEAST_LOOKS
        if not full["complete"] or not is_short or messages * MORE > MAX_MESSAGES:
            break
        messages *= MORE
    if not full["complete"] or (not broker.ordered and not case.is_stored):
        return {**full, "advanced_ms": None, "stored_ms": None}
    paced = await _on_source(broker, kind, case, f"{name}_paced", seconds=seconds)
    return {**full, **paced, "complete": full["complete"] and paced["complete"]}


async def _on_source(
    broker: Broker, kind: str, case: Case, name: str, *, messages: int | None = None, seconds: float = 0.0
) -> dict[str, Any]:
    """Measure the throughput with this number of messages, or else the latency."""
    await asyncio.to_thread(broker.create, name)
    try:
        if messages is not None:
            await asyncio.to_thread(broker.fill, name, messages)
        async with reader_of(broker, kind, case, name) as reader:
            if messages is None:
                return await asyncio.to_thread(_latency, broker, case, name, reader, seconds)
            result = await asyncio.to_thread(_throughput, broker, name, reader, messages)
        result["complete"] = result["complete"] and await asyncio.to_thread(broker.is_settled, name)
        return result
    finally:
        await asyncio.to_thread(broker.drop, name)


def _throughput(broker: Broker, name: str, reader: Reader, messages: int) -> dict[str, Any]:
    """Return the messages per second between the first and the last advance, the time between, and the processor time.

    `looks` is the number of looks that saw an advance. The figures are None if one look saw the first and the last advance.
    """
    least = 1 if broker.ordered else BATCH
    first: tuple[float, int, float, float | None] | None = None
    seen = looks = 0
    with broker.observer(name) as advanced:
        since = time.perf_counter()
        while True:
            _check_running(reader)
            done, now = sum(advanced()), time.perf_counter()
            looks, seen = looks + (done > seen), max(done, seen)
            if first is None and done >= least:
                first = now, done, reader.processor_seconds, reader.api_processor_seconds
            if done >= messages or now - since > LIMIT_SECONDS:
                break
            time.sleep(OFTEN_SECONDS if first is None or now - first[0] < 1.0 else SELDOM_SECONDS)
    result: dict[str, Any] = {"complete": done >= messages, "messages": messages, "looks": looks, "seconds": None}
    result |= {"messages_per_second": None, "reader_cpu_seconds_per_100k": None, "api_cpu_seconds_per_100k": None}
    if first is not None and done > first[1]:
        share = 100_000 / (done - first[1])
        result["seconds"] = round(now - first[0], 2)
        result["messages_per_second"] = round((done - first[1]) / (now - first[0]))
        result["reader_cpu_seconds_per_100k"] = round((reader.processor_seconds - first[2]) * share, 2)
        if first[3] is not None and reader.api_processor_seconds is not None:
            result["api_cpu_seconds_per_100k"] = round((reader.api_processor_seconds - first[3]) * share, 2)
    time.sleep(broker.settle_seconds)
    return result


def _latency(broker: Broker, case: Case, name: str, reader: Reader, seconds: float) -> dict[str, Any]:
    """Return the milliseconds from the due time of a message until it is advanced, and until its event is stored."""
    lanes, rate = broker.lanes, broker.rate
    total = lanes + int(rate * (seconds + WARM_UP_SECONDS)) // lanes * lanes  # each lane has one message that opens it
    matches = [number for number in range(total) if case.matches(number)] if case.is_stored else []
    due: list[float] = []
    looks: list[tuple[float, list[int]]] = []
    heads: list[tuple[float, int]] = []
    with ExitStack() as exits:
        advanced = exits.enter_context(broker.observer(name))
        broker.fill(name, lanes)
        _wait_until_advanced(advanced, lanes, reader)
        events = None if reader.database is None else exits.enter_context(closing(_open(reader.database)))
        sender = threading.Thread(target=lambda: due.extend(pace(broker, name, range(lanes, total), rate)))
        sender.start()
        limit = time.perf_counter() + seconds + WARM_UP_SECONDS + LATE_SECONDS
        while time.perf_counter() < limit:
            if events is not None:
                heads.append((time.perf_counter(), _head(events)))
            if broker.ordered or not sender.is_alive():
                looks.append((time.perf_counter(), advanced()))
            if looks and sum(looks[-1][1]) >= total and (not heads or heads[-1][1] >= len(matches)):
                break
            time.sleep(0.001)
        sender.join()
        stored = [] if events is None else events.execute("SELECT seq, id FROM events").fetchall()
    skipped = lanes + int(rate * WARM_UP_SECONDS)
    result: dict[str, Any] = {"advanced_ms": None, "stored_ms": None}
    counts = np.array([counts for _, counts in looks]).reshape(-1, lanes)
    result["complete"] = bool(len(counts)) and int(counts[-1].sum()) >= total and {int(number) for _, number in stored} == set(matches)
    if result["complete"] and broker.ordered:
        ends = [_first(looks, counts[:, number % lanes], number // lanes + 1) - due[number - lanes] for number in range(skipped, total)]
        result["advanced_ms"] = _percentiles(ends)
    if result["complete"] and heads:
        seqs = np.array([head for _, head in heads])
        ends = [_first(heads, seqs, seq) - due[int(number) - lanes] for seq, number in stored if int(number) >= skipped]
        result["stored_ms"] = _percentiles(ends)
    return result


def _check_running(reader: Reader) -> None:
    if not psutil.pid_exists(reader.pid):
        raise SystemExit("The reader has ended. Its output is above.")


def _wait_until_advanced(advanced: Advanced, messages: int, reader: Reader) -> None:
    until = time.perf_counter() + LIMIT_SECONDS
    while sum(advanced()) < messages:
        _check_running(reader)
        if time.perf_counter() > until:
            raise SystemExit(f"The reader has not advanced its first messages within {LIMIT_SECONDS:g} s. Its output is above.")
        time.sleep(0.05)


def _open(database: Path) -> sqlite3.Connection:
    """Open a database to read what its server has committed."""
    return sqlite3.connect(f"file:{database}?mode=ro", uri=True)


def _head(events: sqlite3.Connection) -> int:
    return int(events.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0])


def _first(looks: Sequence[tuple[float, Any]], counts: Any, least: int) -> float:
    """Return the time of the first look at which a count is at least `least`."""
    return looks[int(np.searchsorted(counts, least))][0]


def _percentiles(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    took = {name: round(1_000 * float(np.percentile(seconds, percent)), 1) for name, percent in (("p50", 50), ("p99", 99), ("max", 100))}
    return {**took, "of": len(seconds)}
