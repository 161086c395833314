"""The event log as a streaming source of Spark: `spark.readStream.format("headrace")`.

An offset is `{"seq", "wall", "clock"}`: the last event read, the moment that was decided (µs), and the scope's clock (µs). The clock
goes forward with the wall clock, but by at most MAX_STEP a batch, so that neither downtime nor catching up makes an event look lost;
and because it is in the offset, a batch that runs again sees the same time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from typing_extensions import override

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiUnavailable, PipelineError
from headrace.pipeline.blocks import pack
from headrace.pipeline.schemas import LOG_BLOCKS

FORMAT: Final = "headrace"

MAX_STEP: Final = 5_000_000
"""The most that the scope's clock goes forward in one batch (µs)."""

PAGE_ROWS: Final = 20_000

_SHARD: Final = 0
_PATIENCE: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reach the api; the last one again and again."""

Offset = dict[str, int]


class LogSource(DataSource):
    """Options: `api_url`, `token_file`, `scope`, `max_rows` (a batch), `tick` (µs after which an idle clock goes on)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return LOG_BLOCKS."""
        return LOG_BLOCKS

    @override
    def streamReader(self, schema: StructType) -> LogReader:
        """Return a reader of the whole log."""
        del schema
        return LogReader(dict(self.options))


class LogPartition(InputPartition):
    """The events with after < seq <= to, and the clock of the batch."""

    def __init__(self, after: int, to: int, clock: int) -> None:
        super().__init__((after, to, clock))
        self.after = after
        self.to = to
        self.clock = clock


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in one process, and reads them in others. An api that is away is waited for, never an error."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._max_rows = int(options["max_rows"])
        self._tick = int(options["tick"])
        self._target: int | None = None
        self._client: PipelineClient | None = None

    @override
    def initialOffset(self) -> Offset:
        """Return the offset before the first event, where the scope's clock begins."""
        return {"seq": 0, "wall": _now(), "clock": 0}

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the most rows of a batch."""
        return ReadMaxRows(self._max_rows)

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the present head of the log, then end."""
        for pause in _pauses():
            try:
                self._target = self._api().head().head
            except ApiUnavailable:
                time.sleep(pause)
            else:
                return

    @override
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where the next batch ends; `start` itself when there is nothing to do, or when the api is away just now."""
        now = _now()
        try:
            head = self._head(start["seq"])
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else head
            end = max(start["seq"], min(head, start["seq"] + most))
            if end == start["seq"] and not self._tick_is_due(start, now):
                return start
        except ApiUnavailable:
            return start  # asked again at the next trigger; the driver's heartbeat says that the api is away
        return {"seq": end, "wall": now, "clock": start["clock"] + max(0, min(now - start["wall"], MAX_STEP))}

    def partitions(self, start: Offset, end: Offset) -> list[LogPartition]:
        """Return one partition: the pages are read one after the other, so that the events stay in order."""
        return [] if start == end else [LogPartition(start["seq"], end["seq"], end["clock"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the partition's events as LOG_BLOCKS, a block for each page, then the tick."""
        if not isinstance(partition, LogPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        after = partition.after
        while after < partition.to:
            page = self._page(after, partition.to)
            if not page.num_rows:
                break
            yield _row(after + 1, partition.clock, pack(page))
            after = page.column("seq")[-1].as_py()
        yield _row(partition.to + 1, partition.clock, None)

    def stop(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _head(self, start: int) -> int:
        if self._target is not None:
            return self._target
        head = self._api().head().head
        if head < start:
            raise PipelineError(
                f"The event log ends at {head}, but this scope has read it up to {start}: the database was replaced.",
                hint="Bring the database back, or delete the scope's folder in 'checkpoints' to start it anew.",
            )
        return head

    def _tick_is_due(self, start: Offset, now: int) -> bool:
        """Whether the clock must go on although nothing came: something may be waiting, and long enough."""
        if self._target is not None or now - start["wall"] < self._tick:
            return False
        cursor = self._api().cursor(self._options["scope"])
        return cursor.cursor < start["seq"] or cursor.waiting > 0

    def _page(self, after: int, to: int) -> pa.Table:
        for pause in _pauses():
            try:
                return self._api().page(after=after, to=to, limit=PAGE_ROWS).table
            except ApiUnavailable:
                time.sleep(pause)
        raise AssertionError("the pauses never end")

    def _api(self) -> PipelineClient:
        if self._client is None:
            self._client = PipelineClient(self._options["api_url"], token_file=Path(self._options["token_file"]))
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}


def _pauses() -> Iterator[float]:
    yield from _PATIENCE
    while True:
        yield _PATIENCE[-1]


def _now() -> int:
    return time.time_ns() // 1000


def _row(first: int, clock: int, block: bytes | None) -> pa.RecordBatch:
    schema = to_arrow_schema(LOG_BLOCKS, timezone="UTC")
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip((_SHARD, first, clock, block), schema, strict=True)], schema=schema
    )
