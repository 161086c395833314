"""A whole history into causal order: by its ordering key, or through all partitions at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.errors import UsageError
from headrace.pipeline.replay.keyed import Ordered, order_shard
from headrace.pipeline.replay.scanning import Scanned, scan
from headrace.pipeline.replay.shelf import Shelf
from headrace.pipeline.replay.tasks import Tasks
from headrace.pipeline.replay.whole import Outcome, order_scanned

RANGE_BYTES: Final = 64 * 1024 * 1024
"""About so much of the history, as Spark reckons it, is sorted by one task at a time."""
RANGE_ROWS: Final = 500_000


@dataclass(frozen=True, slots=True)
class History:
    """The events to order: their own columns and SLIM; `key` is a column that leader and follower share, `bytes` the size of it all."""

    events: DataFrame
    bytes: int
    key: str | None = None


def check_out(folder: Path) -> None:
    """Raise `UsageError` unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already, and is not empty.", hint="Choose another folder with --out, or remove it.")


def order_history(history: History, out: Path, work: Path, tasks: Tasks) -> Outcome:
    """Write the ordered history to the folder `out`, which appears when it is whole. `work` is for what tasks leave for each other.

    All executors must see both folders.
    """
    with _draft(out) as draft, _shelf(work) as shelf:
        if history.key is not None:
            return _by_key(history, history.key, draft, tasks)
        return _through_all(history, draft, shelf, tasks)


def _by_key(history: History, key: str, out: Path, tasks: Tasks) -> Outcome:
    cores = history.events.sparkSession.sparkContext.defaultParallelism
    shards = max(cores, -(-history.bytes // RANGE_BYTES))
    together = history.events.repartition(shards, key)
    answers = tasks.partitions("ordering", together, partial(_order_shard, out=out))
    outcome = Outcome()
    for marks, cycles, copies, unnamed in answers:
        _add(outcome, Ordered(marks, cycles, copies, unnamed))
    return outcome


def _order_shard(batches: Iterable[pa.RecordBatch], shard: int, out: Path) -> Ordered:
    return order_shard(batches, shard, out)


def _add(outcome: Outcome, shard: Ordered) -> None:
    outcome.marks.update(shard.marks)
    outcome.events += sum(shard.marks.values())
    outcome.cycles += shard.cycles
    outcome.copies += shard.copies
    outcome.unnamed += shard.unnamed


def _through_all(history: History, out: Path, shelf: Shelf, tasks: Tasks) -> Outcome:
    parts = tasks.count(history.events)
    scanned = [Scanned(*told) for told in tasks.partitions("reading", history.events, partial(scan, buckets=parts, shelf=shelf))]
    rows = sum(told.rows for told in scanned)
    ranges = max(1, -(-rows // RANGE_ROWS), -(-history.bytes // RANGE_BYTES))
    return order_scanned(scanned, ranges, out, shelf, tasks.each)


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """Give a folder that becomes `out` when all went well."""
    draft = out.with_name(f".{out.name}.{uuid4().hex[:8]}")
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(out)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):
            out.parent.rmdir()  # made for this alone, unless something else is in it
        raise


@contextmanager
def _shelf(work: Path) -> Iterator[Shelf]:
    folder = work / f"replay-{uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    try:
        yield Shelf(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
