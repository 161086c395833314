"""Assign each row to its range of the order."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.kernel.forest import NO_ROW, Rows
from headrace.pipeline.kernel.kernel import CYCLE_CODE, LOST_CODE, MarkCodes
from headrace.replay.order.boundary import indexes_of
from headrace.replay.partition import partition
from headrace.replay.schemas import DEPTH, EFF, GID, MARK_CODE, OCCURRED, SHARD_BITS
from headrace.replay.shuffle_store import ShuffleStore

SAMPLE_ROWS = 2_000
"""Sample rows of each partition, from which the ranges are determined."""


def bounds(parts: int, ranges: int, store: ShuffleStore) -> tuple[Rows, Rows]:
    """Return effective time and depth of the first row of each range but the first, from a sample of the history."""
    samples = [_sampled(part, store) for part in range(parts)]
    eff, depth = np.concatenate([eff for eff, _ in samples]), np.concatenate([depth for _, depth in samples])
    order = np.lexsort((depth, eff))
    cuts = order[np.arange(1, ranges) * len(order) // ranges] if len(order) else order
    return eff[cuts], depth[cuts]


def _sampled(part: int, store: ShuffleStore) -> tuple[Rows, Rows]:
    count = len(store.get(f"eff-{part}"))
    # Evenly spaced rows would all hit the same link of chains that are stored one after the other.
    rows = np.sort(np.random.default_rng(part).integers(0, count, SAMPLE_ROWS)) if count else np.empty(0, dtype=np.int64)
    return _global_order(part, rows, store)


def _global_order(part: int, rows: Any, store: ShuffleStore) -> tuple[Rows, Rows]:
    """Return effective time and depth, in the whole history, of some rows of a partition."""
    eff, depth = np.array(store.get(f"eff-{part}")[rows]), np.array(store.get(f"depth-{part}")[rows])
    at = indexes_of(np.asarray(store.get(f"boundary-{part}")), np.asarray(store.get(f"root-{part}")[rows]))
    beyond = at != NO_ROW
    eff[beyond] = np.maximum(eff[beyond], store.get(f"later-{part}")[at[beyond]])
    depth[beyond] += store.get(f"deeper-{part}")[at[beyond]]
    return eff, depth


def assign_ranges(part: int, cuts: tuple[Rows, Rows], store: ShuffleStore) -> list[int]:
    """Write each row of a partition, with its sort columns and mark, to its range. Return the number of rows by range."""
    eff, depth = _global_order(part, slice(None), store)
    ranges = _ranges(eff, depth, cuts)
    ranges[store.get(f"dropped-{part}")] = NO_ROW
    columns = {EFF: eff, DEPTH: depth, OCCURRED: np.asarray(store.get(f"occurred-{part}")), MARK_CODE: _marks(part, len(eff), store)}
    count = len(cuts[0]) + 1
    with ExitStack() as stack:
        writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        start = 0
        for batch in store.rows(f"rows-{part}"):
            span = slice(start, start + batch.num_rows)
            rows = _with_order(batch, {name: column[span] for name, column in columns.items()}, part, start)
            for number, piece in partition(rows, ranges[span]):
                if number not in writers:
                    writers[number] = stack.enter_context(store.writing(f"range-{number}-{part}", rows.schema))
                writers[number].write_batch(piece)
            start = span.stop
    sizes: list[int] = np.bincount(ranges[ranges != NO_ROW], minlength=count).tolist()
    return sizes


def _ranges(eff: Rows, depth: Rows, cuts: tuple[Rows, Rows]) -> Rows:
    """Return the range of each row: the number of cuts, in order of (eff, depth), that are not after it."""
    ranges = np.searchsorted(cuts[0], eff, side="left").astype(np.int64)
    for value in np.unique(cuts[0]):
        same = np.flatnonzero(eff == value)
        ranges[same] += np.searchsorted(cuts[1][cuts[0] == value], depth[same], side="right")
    return ranges


def _marks(part: int, count: int, store: ShuffleStore) -> MarkCodes:
    marks = np.zeros(count, dtype=np.int8)
    marks[store.get(f"lost-{part}")] = LOST_CODE
    marks[store.get(f"cycle-{part}")] = CYCLE_CODE
    return marks


def _with_order(batch: pa.RecordBatch, columns: dict[str, npt.NDArray[Any]], part: int, start: int) -> pa.RecordBatch:
    gid = (np.int64(part) << SHARD_BITS) + start + np.arange(batch.num_rows)
    added = {name: pa.array(column) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict({**dict(zip(batch.schema.names, batch.columns, strict=True)), **added, GID: pa.array(gid)})
