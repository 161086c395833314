"""Measure Parquet tables of small runs: the files that compactions leave, the time to read them, and the delay of runs.

The sink stores the runs without Spark. The compactions of a day happen between runs, as often as a driver's thread would begin them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipeline.execution.run_lock import RunLock
from headrace.pipeline.runs.identity import Attempt, Origin, RunKey
from headrace.pipeline.tables.compaction.small_files import MIN_SMALL_FILES
from headrace.pipeline.tables.compactor import CHECK_RUNS, TableCompactor
from headrace.pipeline.tables.parquet.compaction import ParquetCompaction
from headrace.pipeline.tables.parquet.sink import ParquetSink
from headrace.pipeline.tables.rows import Rows

RUNS: Final = 86_400
ROWS: Final = 100
READS: Final = 7
PACED_RUNS: Final = 1_000
PACE_SECONDS: Final = 0.05
ORIGIN: Final = Origin("log", "bench", "first")
MEMORY: Final = Path("/dev/shm")
"""A day of syncs to a disk would take an hour."""


def measure(runs: int = RUNS, rows: int = ROWS) -> dict[str, Any]:
    """Return what a day of runs leaves, and the delay of runs by compactions."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        day = _day(Path(folder), runs, rows)
    delays = {}
    for name in ("without", "with"):
        with TemporaryDirectory() as folder:
            delays[f"{name} compactions"] = _percentiles(_paced(Path(folder), rows, compacted=name == "with"))
    return {"runs": runs, "rows of a run": rows, **day, f"milliseconds of a run, one each {PACE_SECONDS * 1000:.0f} ms": delays}


def _day(tables: Path, runs: int, rows: int) -> dict[str, Any]:
    sink = ParquetSink(tables, ORIGIN)
    table = tables / "spent"
    max_files, written = 0, 0
    seconds: list[float] = []
    for batch in range(runs):
        _append(sink, batch, rows)
        if (batch + 1) % CHECK_RUNS == 0:
            max_files = max(max_files, _files(table))
            known = {path.name for path in table.glob("*.parquet")}
            begun = time.perf_counter()
            if ParquetCompaction(tables, "spent", threading.Event()).run(MIN_SMALL_FILES):
                seconds.append(time.perf_counter() - begun)
                written += sum(path.stat().st_size for path in table.glob("*.parquet") if path.name not in known)
                ParquetCompaction(tables, "spent", threading.Event()).vacuum(0)
    for batch in range(runs, runs + MIN_SMALL_FILES):  # the most small files that a table has
        _append(sink, batch, rows)
    parts = _reads(table)
    files, size = _files(table), sum(path.stat().st_size for path in table.glob("*.parquet"))
    one = tables / "one.parquet"
    pq.write_table(pq.read_table(table), one)
    whole = _reads(one)
    return {
        "files at most": max_files,
        "files when read": files,
        "MB when read": round(size / 1e6, 1),
        "compactions": len(seconds),
        "seconds of a compaction": {"median": round(median(seconds), 3), "max": round(max(seconds), 3)},
        "MB written by compactions": round(written / 1e6, 1),
        "milliseconds to read": round(parts * 1000),
        "milliseconds to read one file": round(whole * 1000),
        "of one file": round(parts / whole, 2),
    }


def _append(sink: ParquetSink, batch: int, rows: int) -> None:
    numbers = np.arange(batch * rows, (batch + 1) * rows)
    customers = pa.array([f"customer {number % 5003}" for number in numbers])
    texts = pa.array([f"{number * 2_654_435_761 % 2**32:08x}" * 8 for number in numbers])
    table = pa.table({"seq": numbers, "customer": customers, "amount": np.sqrt(numbers), "text": texts})
    sink.append(RunKey("spent", "spent", batch), Attempt(f"{batch:032x}", 1, f"{batch:036x}"), Rows(table, None, table.schema))


def _files(table: Path) -> int:
    return sum(1 for _ in table.glob("*.parquet"))


def _reads(path: Path) -> float:
    """Return the median time to read a table or a file."""
    seconds = []
    for _ in range(READS):
        begun = time.perf_counter()
        pq.read_table(path)
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def _paced(tables: Path, rows: int, *, compacted: bool) -> Sequence[float]:
    """Return the times of runs that begin one after the other at a steady pace."""
    sink, run_lock = ParquetSink(tables, ORIGIN), RunLock()
    seconds = []
    with TableCompactor(tables, {"spent": "parquet"} if compacted else {}, run_lock.exclusive) as compactor:
        begin = time.perf_counter()
        for batch in range(PACED_RUNS):
            time.sleep(max(0.0, begin + batch * PACE_SECONDS - time.perf_counter()))
            begun = time.perf_counter()
            with run_lock.shared():
                _append(sink, batch, rows)
            seconds.append(time.perf_counter() - begun)
            compactor.runs_ended(1)
    return seconds


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    hundredths = quantiles(seconds, n=100)
    return {"p50": round(hundredths[49] * 1000, 1), "p99": round(hundredths[98] * 1000, 1), "max": round(max(seconds) * 1000, 1)}
