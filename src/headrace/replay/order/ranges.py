"""Each row to the range of the order that it belongs to."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipeline.kernel.forest import NOBODY, Rows
from headrace.pipeline.kernel.kernel import CYCLE_CODE, LOST_CODE, MarkCodes
from headrace.replay.order.boundary import places
from headrace.replay.pieces import pieces
from headrace.replay.schemas import DEPTH, EFF, GID, MARK_CODE, OCCURRED, SHARD_BITS
from headrace.replay.shuffle_store import ShuffleStore

SAMPLE = 2_000
"""Rows of each partition that the ranges are cut by."""


def bounds(parts: int, ranges: int, shelf: ShuffleStore) -> tuple[Rows, Rows]:
    """Return eff and depth of the first row of each range but the first, from a sample of the history."""
    samples = [_sampled(part, shelf) for part in range(parts)]
    eff, depth = np.concatenate([eff for eff, _ in samples]), np.concatenate([depth for _, depth in samples])
    order = np.lexsort((depth, eff))
    cuts = order[np.arange(1, ranges) * len(order) // ranges] if len(order) else order
    return eff[cuts], depth[cuts]


def _sampled(part: int, shelf: ShuffleStore) -> tuple[Rows, Rows]:
    count = len(shelf.get(f"eff-{part}"))
    # Evenly spaced rows would all hit the same link of chains that are laid down one after the other.
    rows = np.sort(np.random.default_rng(part).integers(0, count, SAMPLE)) if count else np.empty(0, dtype=np.int64)
    return _placed(part, rows, shelf)


def _placed(part: int, rows: Any, shelf: ShuffleStore) -> tuple[Rows, Rows]:
    """Return eff and depth in the whole history of some rows of a partition."""
    eff, depth = np.array(shelf.get(f"eff-{part}")[rows]), np.array(shelf.get(f"depth-{part}")[rows])
    at = places(np.asarray(shelf.get(f"boundary-{part}")), np.asarray(shelf.get(f"root-{part}")[rows]))
    beyond = at != NOBODY
    eff[beyond] = np.maximum(eff[beyond], shelf.get(f"later-{part}")[at[beyond]])
    depth[beyond] += shelf.get(f"deeper-{part}")[at[beyond]]
    return eff, depth


def spread(part: int, cuts: tuple[Rows, Rows], shelf: ShuffleStore) -> list[int]:
    """Write each row of a partition, with its place and mark, to its range. Returns how many went to each."""
    eff, depth = _placed(part, slice(None), shelf)
    ranges = _ranges(eff, depth, cuts)
    ranges[shelf.get(f"dropped-{part}")] = NOBODY
    columns = {EFF: eff, DEPTH: depth, OCCURRED: np.asarray(shelf.get(f"occurred-{part}")), MARK_CODE: _marks(part, len(eff), shelf)}
    count = len(cuts[0]) + 1
    with ExitStack() as stack:
        writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        start = 0
        for batch in shelf.rows(f"rows-{part}"):
            span = slice(start, start + batch.num_rows)
            placed = _with_places(batch, {name: column[span] for name, column in columns.items()}, part, start)
            for number, piece in pieces(placed, ranges[span]):
                if number not in writers:
                    writers[number] = stack.enter_context(shelf.writing(f"range-{number}-{part}", placed.schema))
                writers[number].write_batch(piece)
            start = span.stop
    sizes: list[int] = np.bincount(ranges[ranges != NOBODY], minlength=count).tolist()
    return sizes


def _ranges(eff: Rows, depth: Rows, cuts: tuple[Rows, Rows]) -> Rows:
    """Return the range of each row: how many of the cuts, which are in order of (eff, depth), are not after it."""
    ranges = np.searchsorted(cuts[0], eff, side="left").astype(np.int64)
    for value in np.unique(cuts[0]):
        same = np.flatnonzero(eff == value)
        ranges[same] += np.searchsorted(cuts[1][cuts[0] == value], depth[same], side="right")
    return ranges


def _marks(part: int, count: int, shelf: ShuffleStore) -> MarkCodes:
    marks = np.zeros(count, dtype=np.int8)
    marks[shelf.get(f"lost-{part}")] = LOST_CODE
    marks[shelf.get(f"cycle-{part}")] = CYCLE_CODE
    return marks


def _with_places(batch: pa.RecordBatch, columns: dict[str, npt.NDArray[Any]], part: int, start: int) -> pa.RecordBatch:
    gid = (np.int64(part) << SHARD_BITS) + start + np.arange(batch.num_rows)
    given = {name: pa.array(column) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict({**dict(zip(batch.schema.names, batch.columns, strict=True)), **given, GID: pa.array(gid)})
