"""Count the firings of watches with Spark: exactly where Columns decide, and as candidates for the driver where they do not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headrace.replay.pattern_columns.watch_rows import MATCHED, WITHIN_LIMIT, WatchRows, pattern_of, watch_rows
from headrace.replay.raw_events import Positions, RawEvents
from headrace.replay.schemas import POSITION
from headrace.replay.spark_tasks import Tasks
from headrace.triggers.watch import WatchTrigger

MIN_EVENTS: Final = 250_000
"""Events below which the index of the driver takes less time than Spark, which compiles each query first."""
MIN_JSON_EVENTS: Final = 1_000_000
"""The same for JSON text, which Spark parses, and the driver again if it does not exclude it."""
MAX_FIELDS: Final = 300
"""Most fields of the patterns of one query; Spark compiles them to one method."""
MAX_QUERIES: Final = 8
"""Most queries over the history; for more watches, the index takes less time."""
_BATCH: Final = 65_536
_PHASE: Final = "backtest of watches"
_Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Firings:
    """The firings of one watch on rows that Spark decided: their number, the first positions in order, and the last."""

    count: int = 0
    first: list[int] = field(default_factory=list)
    last: int = 0

    def add(self, positions: _Numbers, keep: int) -> None:
        """Add positions, in ascending order, of which the first `keep` are kept."""
        self.count += len(positions)
        self.first = sorted([*self.first, *positions[:keep].tolist()])[:keep]
        self.last = max(self.last, int(positions[-1]))


@dataclass(slots=True)
class WatchMatches:
    """The firings of watches by name, and the positions of the events that the driver matches.

    Matches of the watches in `lacking` count as missing, because no event has the fields that these watches declare.
    """

    firings: dict[str, Firings]
    undecided: Positions
    lacking: frozenset[str] = frozenset()


class SparkMatcher:
    """Matches the watches of a project with an ordered history in Spark. Tasks write the matches to `work`."""

    def __init__(self, spark: SparkSession, work: Path, tasks: Tasks) -> None:
        self._spark = spark
        self._work = work
        self._tasks = tasks

    def groups(self, watches: Mapping[str, WatchTrigger], events: RawEvents) -> list[dict[str, WatchTrigger]]:
        """Return the watches of each query, or nothing if the index of the driver matches them in less time."""
        if events.last_position() < (MIN_EVENTS if events.names.raw is None else MIN_JSON_EVENTS):
            return []
        groups: list[dict[str, WatchTrigger]] = [{}]
        room = MAX_FIELDS
        for name, watch in watches.items():
            pattern = pattern_of(watch)
            fields = 1 if pattern is None else sum(len(fields) for fields in pattern.alternatives)
            if fields > room and groups[-1]:
                groups.append({})
                room = MAX_FIELDS
            groups[-1][name] = watch
            room -= fields
            if room < 0 or len(groups) > MAX_QUERIES:
                return []
        return groups

    def match(self, watches: Mapping[str, WatchTrigger], events: RawEvents, keep: int) -> WatchMatches:
        """Return the matches of the watches of one query, with the first `keep` positions of each."""
        matches = WatchMatches({name: Firings() for name in watches}, Positions(events.last_position()))
        if not events.parts():
            return matches
        query = watch_rows(self._spark, events.folder, events.schema(), events.names, list(watches.values()))
        matches.lacking = frozenset(name for number, name in enumerate(watches) if number in query.lacking)
        folder = self._work.absolute() / f"backtest-{uuid4().hex[:8]}"
        try:
            with self._tasks.watched(_PHASE, self._tasks.count(query.rows)):
                query.rows.write.parquet(folder.as_uri())
            for path in sorted(folder.glob("part-*.parquet")):
                for batch in pq.ParquetFile(path).iter_batches(batch_size=_BATCH):
                    _add(batch, query, list(matches.firings.values()), matches.undecided, keep)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return matches


def _add(batch: pa.RecordBatch, query: WatchRows, firings: Sequence[Firings], undecided: Positions, keep: int) -> None:
    positions = batch.column(POSITION).to_numpy()
    if query.is_undecided:
        undecided.add(positions)
        return
    matched = batch.column(MATCHED)
    rows = np.repeat(np.arange(len(positions)), np.diff(matched.offsets.to_numpy()))
    entries = matched.flatten().to_numpy().astype(np.int64)
    watches = np.where(entries < 0, -1 - entries, entries)
    valid = np.stack([batch.column(WatchRows.valid(n)).to_numpy(zero_copy_only=False) for n in range(max(query.envelopes) + 1)])
    is_decided = batch.column(WITHIN_LIMIT).to_numpy(zero_copy_only=False).copy()
    is_decided[rows[(entries < 0) | ~valid[np.array(query.envelopes)[watches], rows]]] = False
    undecided.add(positions[~is_decided])
    rows, watches = rows[is_decided[rows]], watches[is_decided[rows]]
    order = np.lexsort((positions[rows], watches))
    rows, watches = rows[order], watches[order]
    numbers, starts = np.unique(watches, return_index=True)
    for number, its_rows in zip(numbers.tolist(), np.split(rows, starts)[1:], strict=True):
        firings[number].add(positions[its_rows], keep)
