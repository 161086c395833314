"""Write a whole history in causal order: by its ordering key, or over all partitions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from headrace.errors import UsageError
from headrace.replay.inputs.history import History
from headrace.replay.order.crossing import EXAMPLES, Crossing, find_crossing
from headrace.replay.order.global_order import Outcome, firsts_of, order_scanned
from headrace.replay.order.keyed_order import Ordered, ShardCounts, distribute, order_shard
from headrace.replay.order.scan import Scanned, scan
from headrace.replay.shuffle_store import ShuffleStore
from headrace.replay.spark_tasks import Tasks

RANGE_BYTES: Final = 128 * 1024 * 1024
"""Approximate uncompressed bytes that one task sorts."""
RANGE_ROWS: Final = 500_000


def check_out(folder: Path) -> None:
    """Raise `UsageError` unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already, and is not empty.", hint="Choose another folder with --out, or remove it.")


def order_history(history: History, out: Path, work: Path, tasks: Tasks) -> Outcome:
    """Write the ordered history to the folder `out`, which appears when it is complete. Tasks exchange data in `work`.

    All executors must see both folders.
    """
    with _draft(out) as draft, _shuffle_store(work) as store:
        return (_by_key if history.keyed else _globally)(history, draft, store, tasks)


def _by_key(history: History, out: Path, store: ShuffleStore, tasks: Tasks) -> Outcome:
    parts = tasks.count(history.events)
    shards = max(tasks.cores, -(-history.bytes // RANGE_BYTES))
    counts = [
        ShardCounts(*result) for result in tasks.partitions("reading", history.events, partial(distribute, shards=shards, store=store))
    ]
    firsts = firsts_of([sum(column) for column in zip(*(result.rows for result in counts), strict=True)])
    outcome = Outcome(unnamed=sum(result.unnamed for result in counts), untimed=sum(result.untimed for result in counts))
    order = partial(_order_shard, parts=parts, firsts=firsts, id=history.id, store=store, out=out)
    for result in tasks.each("ordering", shards, order):
        shard = Ordered(*result)
        outcome.marks.update(shard.marks)
        outcome.events += sum(shard.marks.values())
        outcome.cycles += shard.cycles
        outcome.copies += shard.copies
    if outcome.lost:
        _count_crossing(outcome, shards, store, tasks)
    return outcome


def _order_shard(shard: int, parts: int, firsts: list[int], id: str, store: ShuffleStore, out: Path) -> Ordered:
    return order_shard(shard, parts, firsts[shard], id, store, out)


def _count_crossing(outcome: Outcome, shards: int, store: ShuffleStore, tasks: Tasks) -> None:
    buckets = max(tasks.cores, -(-outcome.lost // RANGE_ROWS))
    for result in tasks.each("checking", buckets, partial(find_crossing, shards=shards, buckets=buckets, store=store)):
        crossing = Crossing(*result)
        outcome.crossing += crossing.followers
        outcome.crossing_ids += crossing.ids
    del outcome.crossing_ids[EXAMPLES:]


def _globally(history: History, out: Path, store: ShuffleStore, tasks: Tasks) -> Outcome:
    parts = tasks.count(history.events)
    scanned = [Scanned(*result) for result in tasks.partitions("reading", history.events, partial(scan, buckets=parts, store=store))]
    rows = sum(result.rows for result in scanned)
    ranges = max(1, -(-rows // RANGE_ROWS), -(-history.bytes // RANGE_BYTES))
    return order_scanned(scanned, ranges, history.id, out, store, tasks.each)


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """Yield a folder that becomes `out` on success."""
    draft = out.with_name(f".{out.name}.{uuid4().hex[:8]}")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"Cannot make the folder {out.parent}: {error.strerror}.", hint="Choose another with --out.") from error
    try:
        yield draft
        draft.rename(out)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        with suppress(OSError):
            out.parent.rmdir()  # created for this output alone, unless something else is in it
        raise


@contextmanager
def _shuffle_store(work: Path) -> Iterator[ShuffleStore]:
    folder = work / f"replay-{uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    try:
        yield ShuffleStore(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
