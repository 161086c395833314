"""A whole history into causal order: by its ordering key, or through all partitions at once."""

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
from headrace.replay.order.keyed_order import Ordered, ShardCounts, deal, order_shard
from headrace.replay.order.scan import Scanned, scan
from headrace.replay.shuffle_store import ShuffleStore
from headrace.replay.spark_tasks import Tasks

RANGE_BYTES: Final = 128 * 1024 * 1024
"""About so much of the history, unpacked, is sorted by one task at a time."""
RANGE_ROWS: Final = 500_000


def check_out(folder: Path) -> None:
    """Raise `UsageError` unless the folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already, and is not empty.", hint="Choose another folder with --out, or remove it.")


def order_history(history: History, out: Path, work: Path, tasks: Tasks) -> Outcome:
    """Write the ordered history to the folder `out`, which appears when it is whole. `work` is for what tasks leave for each other.

    All executors must see both folders.
    """
    with _draft(out) as draft, _shelf(work) as shelf:
        return (_by_key if history.keyed else _through_all)(history, draft, shelf, tasks)


def _by_key(history: History, out: Path, shelf: ShuffleStore, tasks: Tasks) -> Outcome:
    parts = tasks.count(history.events)
    shards = max(tasks.cores, -(-history.bytes // RANGE_BYTES))
    dealt = [ShardCounts(*told) for told in tasks.partitions("reading", history.events, partial(deal, shards=shards, shelf=shelf))]
    firsts = firsts_of([sum(column) for column in zip(*(told.rows for told in dealt), strict=True)])
    outcome = Outcome(unnamed=sum(told.unnamed for told in dealt), untimed=sum(told.untimed for told in dealt))
    order = partial(_order_shard, parts=parts, firsts=firsts, id=history.id, shelf=shelf, out=out)
    for told in tasks.each("ordering", shards, order):
        shard = Ordered(*told)
        outcome.marks.update(shard.marks)
        outcome.events += sum(shard.marks.values())
        outcome.cycles += shard.cycles
        outcome.copies += shard.copies
    if outcome.lost:
        _tell_crossing(outcome, shards, shelf, tasks)
    return outcome


def _order_shard(shard: int, parts: int, firsts: list[int], id: str, shelf: ShuffleStore, out: Path) -> Ordered:
    return order_shard(shard, parts, firsts[shard], id, shelf, out)


def _tell_crossing(outcome: Outcome, shards: int, shelf: ShuffleStore, tasks: Tasks) -> None:
    buckets = max(tasks.cores, -(-outcome.lost // RANGE_ROWS))
    for told in tasks.each("checking", buckets, partial(find_crossing, shards=shards, buckets=buckets, shelf=shelf)):
        crossing = Crossing(*told)
        outcome.crossing += crossing.followers
        outcome.crossing_ids += crossing.ids
    del outcome.crossing_ids[EXAMPLES:]


def _through_all(history: History, out: Path, shelf: ShuffleStore, tasks: Tasks) -> Outcome:
    parts = tasks.count(history.events)
    scanned = [Scanned(*told) for told in tasks.partitions("reading", history.events, partial(scan, buckets=parts, shelf=shelf))]
    rows = sum(told.rows for told in scanned)
    ranges = max(1, -(-rows // RANGE_ROWS), -(-history.bytes // RANGE_BYTES))
    return order_scanned(scanned, ranges, history.id, out, shelf, tasks.each)


@contextmanager
def _draft(out: Path) -> Iterator[Path]:
    """Give a folder that becomes `out` when all went well."""
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
            out.parent.rmdir()  # made for this alone, unless something else is in it
        raise


@contextmanager
def _shelf(work: Path) -> Iterator[ShuffleStore]:
    folder = work / f"replay-{uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    try:
        yield ShuffleStore(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
